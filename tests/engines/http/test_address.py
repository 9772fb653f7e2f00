"""What the command line says of a server and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmd.engines.http.address import parse_base_url, read_api_key
from warmd.errors import UsageError


@pytest.mark.parametrize(
    "text",
    [
        "http://localhost:1234",
        "http://localhost:1234/",
        "http://localhost:1234/v1",
        "http://localhost:1234/v1/",
        "http://localhost:1234/v1//",
        "http://localhost:1234//v1",
        "http://localhost:1234/v1?",
        "http://localhost:1234/v1#",
        "http://localhost:1234/v1/chat/completions",
        "HTTP://LOCALHOST:1234/v1 ",
    ],
)
def test_an_address_is_the_same_with_and_without_the_version(text: str) -> None:
    assert parse_base_url(text) == "http://localhost:1234"


def test_a_path_before_the_version_is_kept() -> None:
    assert parse_base_url("https://host/llm/v1") == "https://host/llm"


@pytest.mark.parametrize(
    "text",
    [
        *("", "localhost:1234", "ftp://host", "http://", "http://[::1", "http://a b", "http://a/ b"),
        *("http://host:x", "http://host:99999999", "http://host:0", "http://host:-1"),
    ],
)
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_base_url(text)
    expected = f"--base-url: expected an address such as http://localhost:8080, found {text!r}"
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    "text",
    [
        "http://me:quagga@host/v1",
        "ftp://me:quagga@host",
        "me:quagga@host:x",
        "http://host/v1?key=quagga",
        "http://host/v1#quagga",
        "host:1234?key=quagga",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_base_url(text)
    assert "quagga" not in str(caught.value)


def test_a_key_comes_from_the_variable_or_the_file_that_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-1\n")
    assert read_api_key(None, None, {"OPENAI_API_KEY": "sk-0"}) is None
    assert read_api_key("MINE", None, {"MINE": "sk-2"}) == "sk-2"
    assert read_api_key(None, tmp_path / "key") == "sk-1"
    (tmp_path / "key").write_text("\ufeffsk-3\r\n", "utf-8")
    assert read_api_key(None, tmp_path / "key") == "sk-3"


@pytest.mark.parametrize(
    "text", ["", "\n", "two words", "quagga\x00", "quagga\nquagga", "quägga", "q" * 20_000]
)
def test_what_cannot_be_a_key_is_a_usage_error_that_does_not_quote_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(UsageError, match="expected an API key") as caught:
        read_api_key(None, tmp_path / "key")
    assert "quagga" not in str(caught.value)


def test_of_what_has_no_end_not_all_is_read() -> None:
    with pytest.raises(UsageError, match="/dev/zero: expected an API key"):
        read_api_key(None, Path("/dev/zero"))


def test_a_key_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no variable MINE"):
        read_api_key("MINE", None, {})
    with pytest.raises(UsageError, match="No such file"):
        read_api_key(None, tmp_path / "none")
