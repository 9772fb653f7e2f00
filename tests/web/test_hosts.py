"""Host headers."""

from __future__ import annotations

import pytest

from warmd.web.hosts import is_ours


@pytest.mark.parametrize(
    "header",
    [
        "localhost",
        "LOCALHOST:8080",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.1.2.3:65535",
        "[::1]",
        "[::1]:8080",
        "[0:0:0:0:0:0:0:1]:80",
        " localhost:8080 ",
    ],
)
def test_names_of_the_loopback_are_answered(header: str) -> None:
    assert is_ours([header], "127.0.0.1")


@pytest.mark.parametrize(
    "header",
    [
        "",
        ":8080",
        "evil.example",
        "evil.example:8080",
        "localhost.evil.example",
        "evil-localhost",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "evil.example#127.0.0.1",
        "localhost:8080:1",
        "localhost:",
        "localhost:x",
        "localhost,evil.example",
        "localhost evil.example",
        "http://localhost",
        "128.0.0.1",
        "192.168.1.20",
        "0.0.0.0",
        "127.1",
        "2130706433",
        "::1",
        "[::1",
        "[::2]",
        "[::ffff:127.0.0.1]",
        "[::1%eth0]",
        "[localhost]:80",
        "localhost\u0130",
        "x" * 10_000,
    ],
)
def test_every_other_name_is_refused(header: str) -> None:
    assert not is_ours([header], "127.0.0.1")


@pytest.mark.parametrize(
    ("configured", "header"),
    [
        ("studio.local", "studio.local:8080"),
        ("Studio.local", "STUDIO.LOCAL"),
        ("192.168.1.20", "192.168.1.20:8080"),
        ("0.0.0.0", "0.0.0.0:8080"),
        ("fe80::1", "[fe80:0::1]:8080"),
    ],
)
def test_so_is_the_configured_host_answered_and_nothing_beside_it(configured: str, header: str) -> None:
    assert is_ours([header], configured)
    assert is_ours(["localhost"], configured)
    assert not is_ours(["evil.example"], configured)


@pytest.mark.parametrize("configured", ["", "127.0.0.1"])
def test_none_is_no_name_and_two_are_none(configured: str) -> None:
    assert not is_ours([], configured)
    assert not is_ours([""], configured)
    assert not is_ours(["localhost", "localhost"], configured)
    assert not is_ours(["evil.example", "localhost"], configured)
