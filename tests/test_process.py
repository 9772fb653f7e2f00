"""How a process of ours ends."""

from __future__ import annotations

import io
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from tests.patience import eventually
from warmd.control.run import Control, control_of
from warmd.crash.quarantine import read_suspects
from warmd.engines.base import EngineDiedError
from warmd.errors import CannotStartError
from warmd.logs import Log
from warmd.process import DaemonProcess, last_line_if_not_started, log_stopped
from warmd.settings import Settings, StateSettings
from warmd.signals import STOP_SIGNALS
from warmd.testing import FakeEngine

ENTRY = {"name": "a", "messages": [{"role": "system", "content": "Be brief."}]}
NO_CONTROL = Control(None, lambda event: None)


class FaultyEngine(FakeEngine):
    """An engine with a fault that nobody thought of."""

    async def changed(self) -> None:
        raise LookupError("secret")


class Written:
    """A log, and what is in it."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.log = Log(self.stream)

    def lines(self, event: str) -> list[dict[str, Any]]:
        """The lines of one event."""
        found = [json.loads(line) for line in self.stream.getvalue().splitlines()]
        return [line for line in found if line["event"] == event]


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture(autouse=True)
def stops() -> Iterator[None]:
    """The next stop would end the process of the tests."""
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def make(engine: FakeEngine, folder: Path, written: Written, control: Control = NO_CONTROL) -> DaemonProcess:
    return DaemonProcess(engine, folder / "p.json", Settings(), written.log, control, url="http://x")


async def test_an_unexpected_fault_of_the_daemon_ends_the_process_with_one(
    tmp_path: Path, written: Written
) -> None:
    process = make(FaultyEngine(), tmp_path, written)
    await process.run()
    assert (process.exit_code, process.death) == (1, None)
    assert process.stop_reason == "the daemon ended with an unexpected error"
    assert "LookupError" in written.stream.getvalue()
    assert "secret" not in written.stream.getvalue()


async def test_nothing_is_to_be_asked_before_it_says_that_it_has_started_nor_once_it_stops(
    tmp_path: Path, written: Written
) -> None:
    process = make(FakeEngine(), tmp_path, written)
    told = [process.problem]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(process.run, lambda: told.append(process.problem))
        while process.problem is not None:
            assert written.lines("daemon.started") == []
            await anyio.lowlevel.checkpoint()
        assert len(written.lines("daemon.started")) == 1
        os.kill(os.getpid(), signal.SIGTERM)
    assert told == ["the server is starting", "the server is stopping"]


async def test_a_death_of_the_engine_is_told_once(tmp_path: Path, written: Written) -> None:
    engine = FakeEngine()
    engine.die("it is gone")
    process = make(engine, tmp_path, written)
    await process.run()
    assert (str(process.death), process.stop_reason) == ("it is gone", "")
    for _ in range(2):
        await process.report_death(EngineDiedError("it is gone"))
    assert [line["reason"] for line in written.lines("engine.died")] == ["it is gone"]
    assert (process.exit_code, process.stop_reason) == (1, "it is gone")


@pytest.mark.parametrize("number", STOP_SIGNALS)
async def test_what_ends_by_itself_comes_to_its_last_line_whatever_a_first_signal_asks_for(
    tmp_path: Path, written: Written, number: int
) -> None:
    await make(FaultyEngine(), tmp_path, written).run()
    for asked in (signal.SIGHUP, signal.SIGUSR1, number):
        os.kill(os.getpid(), asked)
    # Nor is there a traceback of a ctrl-C. The next one forces, as after a stop.
    handlers = {getattr(signal.getsignal(each), "__name__", None) for each in STOP_SIGNALS}
    assert handlers == {"_force"}


@pytest.mark.parametrize("has_died", [True, False])
async def test_a_stop_ends_with_zero_unless_the_engine_had_died_before(
    tmp_path: Path, written: Written, has_died: bool
) -> None:
    (tmp_path / "p.json").write_text(json.dumps([ENTRY]))
    engine, told = FakeEngine(), []
    engine.hold("a")
    with control_of(tmp_path / "s", written.log) as control:
        settings = Settings(state=StateSettings(str(tmp_path / "s")))
        process = DaemonProcess(engine, tmp_path / "p.json", settings, written.log, control, url="http://x")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.run, lambda: told.append(process.stop_reason))
            await eventually(lambda: read_suspects(tmp_path / "s").warming)
            os.kill(os.getpid(), signal.SIGTERM)
        assert (told, process.exit_code) == (["SIGTERM"], 0)
        assert read_suspects(tmp_path / "s").warming == ()
        if has_died:
            await process.report_death_before_stop(EngineDiedError("another rank has gone"))
        marks = [suspect.entries for suspect in read_suspects(tmp_path / "s").warming]
    assert marks == ([("a",)] if has_died else [])
    assert process.exit_code == int(has_died)
    assert len(written.lines("engine.died")) == int(has_died)


async def test_a_death_after_a_stop_that_broke_off_nothing_is_no_matter(
    tmp_path: Path, written: Written
) -> None:
    process = make(FakeEngine(), tmp_path, written)
    await process.report_death_before_stop(EngineDiedError("another rank has gone"))
    assert (process.exit_code, written.lines("engine.died")) == (0, [])


@pytest.mark.parametrize(("code", "level"), [(0, "info"), (1, "error")])
def test_the_last_line_is_an_error_unless_all_is_well(written: Written, code: int, level: str) -> None:
    log_stopped(written.log, code, "why")
    (line,) = written.lines("daemon.stopped")
    assert (line["level"], line["exit_code"], line["reason"]) == (level, code, "why")
    # The log may be another process's, too.
    assert line["pid"] == os.getpid()


def test_what_cannot_start_is_told_once(written: Written) -> None:
    error = CannotStartError("no model")
    with pytest.raises(CannotStartError), last_line_if_not_started(written.log):
        raise error
    assert error.is_told
    assert [line["reason"] for line in written.lines("daemon.stopped")] == ["no model"]
