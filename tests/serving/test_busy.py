"""A server that is never idle gets warm all the same, and its requests come first."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.serving.process import serving, write
from tests.serving.test_warm import RULES, ask, entry


def keep_busy(server: object, stop: threading.Event, more: dict[str, object]) -> None:
    """One request after the other, each decoding for a while."""
    while not stop.is_set():
        server.chat(ask("Nothing of this is warm."), max_tokens=200, **more)  # type: ignore[attr-defined]


@pytest.mark.parametrize("more", [{}, {"seed": 1}], ids=["batched", "sequential"])
def test_while_requests_only_decode_entries_are_warmed(
    models: dict[str, Path], tmp_path: Path, more: dict[str, object]
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("first", RULES)])
    with serving(models["llama"], prompts, environment={"WARMD_WARM_LIVE_SHARE": "0.5"}) as server:
        server.wait_for("entry.warmed", entry="first")
        stop = threading.Event()
        # Two at once: there is always one that decodes. Alone, one of them would always wait for the other.
        count = 1 if more else 2
        threads = [threading.Thread(target=keep_busy, args=(server, stop, more)) for _ in range(count)]
        for thread in threads:
            thread.start()
        try:
            write(prompts, [entry("first", RULES), entry("second", "2. " + RULES * 3)])
            warmed = server.wait_for("entry.warmed", entry="second")
            assert warmed["new_tokens"] > 100
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_an_entry_that_requests_leave_no_time_for_is_told_of_and_warmed_when_they_do(
    models: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("first", RULES)])
    environment = {"WARMD_WARM_LIVE_SHARE": "0", "WARMD_WARM_MAX_PAUSE": "0.5"}
    with serving(models["llama"], prompts, environment=environment) as server:
        server.wait_for("entry.warmed", entry="first")
        # Long enough that the file is read in the midst of it.
        long = ask("Nothing of this is warm.")
        request = threading.Thread(target=server.chat, args=(long,), kwargs={"max_tokens": 3000})
        request.start()
        write(prompts, [entry("first", RULES), entry("second", "2. " + RULES * 3)])
        deferred = server.wait_for("entry.deferred", entry="second")
        assert deferred["reason"].startswith("live requests have left no time for it for 0.5 s or more")
        assert [line["entry"] for line in server.seen("entry.warmed")] == ["first"]
        request.join()
        server.wait_for("entry.warmed", entry="second")
