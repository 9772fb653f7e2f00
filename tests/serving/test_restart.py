"""Warm again after a restart: real servers on one folder of state, however the ones before them ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.patience import PATIENCE, wait_until
from tests.serving.process import Json, Server, cached, serving, text, write
from tests.toys import ARCHITECTURES, make_model

RULES = "You are a careful reviewer of code. " * 12
SHELL = RULES[:200] + "You write shell commands. " * 12
ENTRIES = {"rules": RULES, "shell": SHELL}
QUESTION = {"role": "user", "content": "hello there"}


def entry(name: str) -> Json:
    return {"name": name, "messages": [{"role": "system", "content": ENTRIES[name]}]}


class Place:
    """A model, a prompts file and a folder of state."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.model = model
        self.prompts = folder / "prompts.json"
        self.kv = folder / "kv"
        write(self.prompts, [entry(name) for name in ENTRIES])

    @contextmanager
    def serving(self, *flags: str, model: Path | None = None, **variables: str) -> Iterator[Server]:
        """A server on all of them."""
        environment = {"WARMD_STORE_ENABLED": "true", "WARMD_STORE_PATH": str(self.kv), **variables}
        more = [*flags, "--log-level", "DEBUG"]
        with serving(
            model or self.model, self.prompts, *more, environment=environment, module="tests.serving.patient"
        ) as server:
            yield server

    def files(self) -> list[str]:
        """What is there."""
        return sorted(path.name for path in self.kv.glob("*"))

    def fill(self, *flags: str) -> list[str]:
        """Have all on disk; returns the answers."""
        with self.serving(*flags) as server:
            warm(server)
            answers = ask(server)
            settled(self)
        return answers


def warm(server: Server) -> dict[str, Json]:
    """Wait until both entries are warm."""
    return {name: server.wait_for("entry.warmed", entry=name) for name in ENTRIES}


def run(server: Server, *command: str) -> None:
    """Run a command of warmd's on a server."""
    environment = {**os.environ, "WARMD_STATE_DIR": server.state.name}
    subprocess.run([sys.executable, "-m", "warmd", *command], env=environment, check=True, timeout=PATIENCE)


def ask(server: Server) -> list[str]:
    """An answer behind each entry."""
    messages = [[{"role": "system", "content": content}, QUESTION] for content in ENTRIES.values()]
    answers = [server.chat(each, max_tokens=8) for each in messages]
    assert all(cached(answer) > 50 for answer in answers)
    return [text(answer) for answer in answers]


def failure(server: Server) -> str:
    """Wait until the disk is complained of, if that has not been done yet; the one reason."""
    wait_until(lambda: server.seen("store.failed"))
    (failed,) = server.seen("store.failed")
    return str(failed["reason"])


FILES = 3
"""With what both entries begin with, and with the rest of each."""


def settled(place: Place, files: int = FILES) -> None:
    """Wait until so many files are there, and for no more to come."""
    wait_until(lambda: len(list(place.kv.glob("[!.]*.safetensors"))) >= files)
    time.sleep(0.3)


@pytest.fixture
def place(tmp_path: Path, models: dict[str, Path]) -> Place:
    """One for a model with per-token caches."""
    return Place(tmp_path, models["llama"])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_restart_prefills_nothing_and_answers_alike(
    models: dict[str, Path], tmp_path: Path, architecture: str
) -> None:
    place = Place(tmp_path, models[architecture])
    with place.serving() as server:
        assert [event["source"] for event in warm(server).values()] == ["prefill", "prefill"]
        before = ask(server)
        settled(place)
        wait_until(lambda: len(server.seen("store.written")) == FILES)
        told = "".join(server.lines)
    files = place.files()
    with place.serving() as server:
        events = warm(server)
        assert [event["new_tokens"] for event in events.values()] == [0, 0]
        assert [event["source"] for event in events.values()] == ["disk", "disk"]
        assert all(event["disk_bytes"] > 0 and event["disk_tokens"] > 50 for event in events.values())
        assert ask(server) == before
        time.sleep(0.3)
        assert server.seen("store.written") == []
        told += "".join(server.lines)
    assert place.files() == files
    # Nor is there any of a prompt's text in what is logged of files, or in their names.
    assert "careful" not in told + "".join(files)


@pytest.mark.parametrize(
    "flags",
    [["--kv-bits", "8", "--kv-group-size", "32", "--quantized-kv-start", "0"], ["--draft-model", "same"]],
    ids=["kv-bits", "draft-model"],
)
def test_settings_of_the_server_are_part_of_what_is_kept(place: Place, flags: list[str]) -> None:
    flags = [str(place.model) if flag == "same" else flag for flag in flags]
    before = place.fill(*flags)
    with place.serving(*flags) as server:
        assert [event["new_tokens"] for event in warm(server).values()] == [0, 0]
        assert ask(server) == before
    with place.serving() as server:
        assert [event["source"] for event in warm(server).values()] == ["prefill", "prefill"]
        assert len(server.seen("store.rejected")) >= 1


def test_nothing_is_written_where_that_is_not_wanted(place: Place) -> None:
    with place.serving(WARMD_STORE_ENABLED="false") as server:
        warm(server)
        time.sleep(0.5)
    assert not place.kv.exists()


def test_what_is_taken_out_and_put_back_costs_nothing_unless_a_person_wants_it_anew(place: Place) -> None:
    with place.serving() as server:
        warm(server)
        settled(place)
        write(place.prompts, [entry("rules")])
        server.wait_for("entry.dropped", entry="shell")
        write(place.prompts, [entry(name) for name in ENTRIES])
        assert server.wait_for("entry.warmed", entry="shell")["new_tokens"] == 0
        run(server, "rewarm", "rules")
        assert server.wait_for("entry.warmed", entry="rules")["source"] == "prefill"


def test_after_the_grace_period_removed_entries_are_removed(place: Place) -> None:
    place.fill()
    write(place.prompts, [])
    for path in place.kv.glob("[!.]*.safetensors"):
        os.utime(path, (time.time() - 100, time.time() - 100))
    with place.serving(WARMD_STORE_GRACE="60") as server:
        server.wait_for("store.pruned", files=FILES)
    assert place.files() == ["writer.lock"]


def test_a_stop_before_an_entry_is_warmed_again_takes_nothing_from_the_others(place: Place) -> None:
    """Also of files that were written before there was another one to share them."""
    write(place.prompts, [entry("rules")])
    with place.serving() as server:
        server.wait_for("entry.warmed", entry="rules")
        settled(place, files=1)
        write(place.prompts, [entry(name) for name in ENTRIES])
        assert server.wait_for("entry.warmed", entry="shell")["reused_tokens"] > 50
        settled(place, files=2)
        for command in (["pause"], ["rewarm", "rules"]):
            run(server, *command)
    with place.serving() as server:
        events = warm(server)
        assert (events["shell"]["new_tokens"], events["shell"]["source"]) == (0, "disk")
        # Of its own nothing is used again.
        assert events["rules"]["new_tokens"] > 50
        assert events["rules"]["disk_tokens"] + events["rules"]["reused_tokens"] > 50
        answers = ask(server)
    shutil.rmtree(place.kv)
    with place.serving() as server:
        warm(server)
        assert ask(server) == answers


def test_another_model_loaded_by_a_request_has_files_of_its_own(place: Place, tmp_path: Path) -> None:
    other = make_model(tmp_path / "other", seed=5)
    place.fill()
    message = [{"role": "user", "content": "hi"}]
    with place.serving() as server:
        warm(server)
        server.chat(message, model=str(other))
        assert [event["source"] for event in warm(server).values()] == ["prefill", "prefill"]
        settled(place, files=2 * FILES)
        server.chat(message)
        assert [event["new_tokens"] for event in warm(server).values()] == [0, 0]
        server.chat(message, model=str(other))
        assert [event["new_tokens"] for event in warm(server).values()] == [0, 0]


# --- ends and faults -----------------------------------------------------------------------------------


def test_a_server_that_is_killed_at_any_moment_leaves_a_usable_folder(place: Place) -> None:
    random = Random(3)
    before: list[str] | None = None
    for _ in range(6):
        with place.serving(WARMD_STORE_WRITE_RATE="300KB") as server:
            server.wait_for(random.choice(["daemon.ready", "entry.warming", "entry.warmed"]))
            time.sleep(random.random() * 0.4)
            server.process.send_signal(signal.SIGKILL)
            assert server.wait() == -signal.SIGKILL
            assert server.seen("store.rejected") == server.seen("store.failed") == []
        if random.random() < 0.3:
            shutil.rmtree(place.kv, ignore_errors=True)
    with place.serving() as server:
        warm(server)
        before = ask(server)
        settled(place)
        assert server.seen("store.rejected") == []
    shutil.rmtree(place.kv)
    with place.serving() as server:
        warm(server)
        assert ask(server) == before


def test_spoilt_files_are_prefilled_told_and_replaced(place: Place) -> None:
    before = place.fill()
    # But for what both begin with.
    spoilt, cut = sorted(path for path in place.kv.glob("[!.]*.safetensors") if "-0-" not in path.name)
    content = bytearray(spoilt.read_bytes())
    content[len(content) // 2] ^= 8
    spoilt.write_bytes(content)
    cut.write_bytes(cut.read_bytes()[:1000])
    with place.serving() as server:
        assert [event["source"] for event in warm(server).values()] == ["prefill", "prefill"]
        assert ask(server) == before
        assert {line["file"] for line in server.seen("store.rejected")} == {spoilt.name, cut.name}
        settled(place)
    with place.serving() as server:
        assert [event["new_tokens"] for event in warm(server).values()] == [0, 0]
        assert server.seen("store.rejected") == []


def test_two_servers_on_one_folder_are_both_warm_and_one_writes(place: Place, tmp_path: Path) -> None:
    with place.serving() as first:
        warm(first)
        settled(place)
        files = place.files()
        write(place.prompts, [entry("rules")])
        first.wait_for("entry.dropped")
        other = Place(tmp_path / "late", place.model)
        other.kv = place.kv
        with other.serving() as second:
            assert [event["source"] for event in warm(second).values()] == ["disk", "disk"]
            ask(second)
            assert failure(second) == "another process writes to this folder, which this one only reads"
        assert place.files() == files


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_is_told_once_and_hurts_nobody(place: Place) -> None:
    place.kv.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=80k,mode=700", "tmpfs", str(place.kv)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("cannot mount")
    try:
        with place.serving(WARMD_STORE_MAX_BYTES="1GB") as server:
            warm(server)
            before = ask(server)
            assert failure(server) == "No space left on device"
        with place.serving(WARMD_STORE_MAX_BYTES="1GB") as server:
            sources = [event["source"] for event in warm(server).values()]
            assert sorted(sources) == ["disk", "prefill"]
            assert ask(server) == before
    finally:
        subprocess.run(["umount", str(place.kv)], check=False)


def test_a_folder_that_cannot_be_made_is_told_once_and_hurts_nobody(place: Place) -> None:
    place.kv.write_text("in the way")
    with place.serving() as server:
        warm(server)
        ask(server)
        assert failure(server) == "File exists"
