"""Processes that are killed in the midst of it, for real."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.patience import wait_until
from tests.serving.held import STEP
from tests.serving.process import Server, serving, write
from tests.serving.test_control import command, named
from tests.toys import make_model
from warmd.crash.quarantine import read_suspects
from warmd.disk.identity import fingerprint_of

# Some seconds of prefill on any machine.
LONG = "You are a careful reviewer of code. " * 1000
RULES = "Be brief. " * 20
SMALL_STEPS = {"WARMD_WARM_CHUNK_TOKENS": "4"}


def wait_until_marked(folder: Path, ends: int = 0) -> None:
    """Wait until something is marked by a process that knows of so many ends."""

    def is_marked() -> bool:
        found = read_suspects(folder)
        return bool(found.warming) and sum(each.ends for each in found.ended) >= ends

    wait_until(is_marked)


def states(server: Server) -> dict[str, str]:
    found = json.loads(command(server, "status", "--json").stdout)
    return {entry["name"]: entry["state"] for entry in found["entries"]}


@pytest.mark.promise(9)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_what_killed_the_process_twice_is_quarantined_until_it_is_edited(
    models: dict[str, Path], tmp_path: Path, number: int
) -> None:
    prompts, state = tmp_path / "prompts.json", tmp_path / "s"
    environment = {**SMALL_STEPS, "WARMD_STATE_DIR": str(state)}
    write(prompts, [named("long", LONG), named("brief", RULES)])
    for ends in range(2):
        with serving(models["llama"], prompts, environment=environment) as server:
            server.wait_for("entry.warming", entry="long")
            wait_until_marked(state, ends)
            assert server.stop(number) == -number
            assert [line["ends"] for line in server.seen("entry.suspected")] == [1] * ends
    with serving(models["llama"], prompts, environment=environment) as server:
        assert server.wait_for("entry.failed", entry="long")["state"] == "quarantined"
        server.wait_for("entry.warmed", entry="brief")
        assert states(server) == {"long": "quarantined", "brief": "warm"}
        assert "quarantined" in command(server, "status").stdout
        # Requests that begin like it are answered all the same.
        server.chat([{"role": "system", "content": RULES}, {"role": "user", "content": "x"}], max_tokens=1)
        write(prompts, [named("long", RULES * 2), named("brief", RULES)])
        server.wait_for("entry.warmed", entry="long")
        write(prompts, [named("long", LONG), named("brief", RULES)])
        assert server.wait_for("entry.failed", entry="long")["state"] == "quarantined"
        assert command(server, "rewarm", "long").returncode == 0
        server.wait_for("entry.warming", entry="long")
        assert server.stop() == 0
    assert read_suspects(state).warming == read_suspects(state).ended == ()


def test_other_weights_in_the_same_folder_lift_a_quarantine(tmp_path: Path) -> None:
    prompts, state, folder = tmp_path / "prompts.json", tmp_path / "s", make_model(tmp_path / "model")
    environment = {**SMALL_STEPS, "WARMD_STATE_DIR": str(state)}
    write(prompts, [named("long", LONG)])
    for ends in range(2):
        with serving(folder, prompts, environment=environment) as server:
            server.wait_for("entry.warming", entry="long")
            wait_until_marked(state, ends)
            assert server.stop(signal.SIGKILL) == -signal.SIGKILL
    # The doctor can tell, without loading it.
    assert {found.fingerprint for found in read_suspects(state).warming} == {
        fingerprint_of({"model": folder})
    }
    make_model(folder, seed=1)
    assert {found.fingerprint for found in read_suspects(state).warming} != {
        fingerprint_of({"model": folder})
    }
    with serving(folder, prompts, environment=environment) as server:
        server.wait_for("entry.warming", entry="long")
        assert states(server) == {"long": "warming"}
        assert server.stop() == 0


@pytest.mark.promise(6)
def test_a_stop_in_the_midst_of_warming_takes_less_than_five_seconds_and_leaves_no_mark(
    models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", [named("long", LONG)])
    state = tmp_path / "s"
    environment = {**SMALL_STEPS, "WARMD_STATE_DIR": str(state)}
    with serving(models["llama"], tmp_path / "prompts.json", environment=environment) as server:
        server.wait_for("entry.warming")
        wait_until_marked(state)
        assert server.stop_promptly() == 0
    assert read_suspects(state).warming == ()


@pytest.mark.promise(6)
@pytest.mark.parametrize("numbers", [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGINT)])
def test_a_second_signal_forces_in_the_midst_of_warming(
    models: dict[str, Path], tmp_path: Path, numbers: tuple[signal.Signals, signal.Signals]
) -> None:
    write(tmp_path / "prompts.json", [named("long", LONG)])
    state = tmp_path / "s"
    environment = {"WARMD_WARM_CHUNK_TOKENS": str(STEP), "WARMD_STATE_DIR": str(state)}
    # By itself it would not end before the test is given up.
    with serving(
        models["llama"], tmp_path / "prompts.json", environment=environment, module="tests.serving.held"
    ) as server:
        server.wait_for("entry.warming")
        wait_until_marked(state)
        server.process.send_signal(numbers[0])
        server.wait_for("daemon.stopping")
        server.process.send_signal(numbers[1])
        assert server.wait() == 128 + numbers[1]
        assert server.seen("daemon.stopped") == []
