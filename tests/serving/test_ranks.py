"""One model on two processes, over mlx's ring on the loopback address: warm, served, and the cold answer."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE, wait_until
from tests.serving.process import Json, Server, cached, free_port, serving, text, write
from tests.serving.ranks import MODELS, make_shardable, on_two_ranks, rank_pids
from warmd.crash.quarantine import read_suspects

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

RULES = "You are a careful reviewer of code. " * 12
OTHER = "Answer in one short sentence. " * 12
FLAGS = {"qwen2": ["--pipeline"]}
SMALL_STEPS = {"WARMD_WARM_CHUNK_TOKENS": "4"}
"""However late a test gets to act, warming a long prompt goes on."""


def ask(rules: str, question: str = "hello there") -> list[Json]:
    return [{"role": "system", "content": rules}, {"role": "user", "content": question}]


def entry(name: str, rules: str) -> Json:
    return {"name": name, "messages": ask(rules)[:1]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("shardable")
    return {name: make_shardable(root / name, name) for name in MODELS}


def answers(server: Server) -> list[Json]:
    """To two prompts, in a batch and alone."""
    return [
        server.chat(ask(rules, "12 or 123?"), max_tokens=8, **more)
        for rules in (RULES, RULES + OTHER)
        for more in ({}, {"seed": 1})
    ]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.promise(7)
def test_two_ranks_warm_serve_and_answer_as_they_do_cold(
    folders: dict[str, Path], tmp_path: Path, name: str
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [])
    # Nothing but warm prefixes is served from a cache.
    with on_two_ranks(folders[name], prompts, "--prompt-cache-size", "0", *FLAGS.get(name, [])) as server:
        server.wait_for("daemon.ready")
        cold = answers(server)
        write(prompts, [entry("rules", RULES), entry("both", RULES + OTHER)])
        warmed = [server.wait_for("entry.warmed", entry=each) for each in ("rules", "both")]
        warm = answers(server)
        assert [text(answer) for answer in warm] == [text(answer) for answer in cold]
        sizes = [line["tokens"] for line in warmed]
        assert [cached(answer) for answer in cold] == [0] * 4
        assert [cached(answer) for answer in warm] == [sizes[0], sizes[0], sizes[1], sizes[1]]
        assert warmed[1]["reused_tokens"] > 0
        assert [server.seen("rank.joined")[0]["ranks"], server.seen("rank.following")[0]["rank"]] == [2, 1]
        assert server.seen("rank.diverged") == []


def test_an_edit_is_warmed_while_requests_are_answered_and_bad_ones_leave_the_ranks_together(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("a", RULES), entry("b", OTHER)])
    with on_two_ranks(folders["llama"], prompts) as server, ThreadPoolExecutor(3) as pool:
        server.wait_for("entry.warmed", entry="b")
        long = [
            pool.submit(server.chat, ask(rules, f"{n}"), max_tokens=150)
            for n, rules in enumerate((RULES, OTHER, "something else"))
        ]
        server.wait_for("live.hit", entry="a")
        edited = RULES.replace("careful", "kind", 1) + "Be brief."
        write(prompts, [entry("a", edited), entry("c", OTHER + RULES)])
        server.wait_for("entry.warmed", entry="a")
        added = server.wait_for("entry.warmed", entry="c")
        for answer in long:
            answer.result()
        served = server.chat(ask(OTHER + RULES))
        assert cached(served) >= added["tokens"]
        write(prompts, [])
        server.wait_for("entry.dropped", entry="c")
        assert text(server.chat(ask(OTHER + RULES))) == text(served)

        write(prompts, [entry("a", RULES)])
        tokens = server.wait_for("entry.warmed")["tokens"]
        warmings = len(server.seen("entry.warmed"))
        deep: Any = []
        for _ in range(700):
            deep = [deep]
        for refused in ({"model": "/no/such"}, {"tools": deep}):
            status, _ = server.post("/v1/chat/completions", {"messages": ask(RULES), **refused})
            assert status >= 400
        for more in ({}, {"seed": 1}):
            body = json.dumps({"messages": ask(RULES), "max_tokens": 60, "stream": True, **more}).encode()
            request = urllib.request.Request(
                f"http://127.0.0.1:{server.port}/v1/chat/completions",
                body,
                {"Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                response.readline()
            assert cached(server.chat(ask(RULES), **more)) >= tokens
        # Such a client's request, or a bad one, has not cost what was warm.
        assert len(server.seen("entry.warmed")) == warmings
        assert server.seen("engine.died") == server.seen("rank.diverged") == []


def test_a_model_that_one_rank_cannot_load_is_loaded_by_none(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(folders["llama"], tmp_path / "there" / "m")
    shutil.copytree(folders["llama"], tmp_path / "broken" / "m")
    (tmp_path / "broken" / "m" / "model.safetensors").write_bytes(b"nonsense")
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("a", RULES)])
    monkeypatch.chdir(tmp_path / "there")
    with on_two_ranks(folders["llama"], prompts, on_rank_1=f"cd {tmp_path / 'broken'}") as server:
        tokens = server.wait_for("entry.warmed")["tokens"]
        before = text(server.chat(ask(RULES)))
        status, _ = server.post("/v1/chat/completions", {"model": "m", "messages": ask(RULES)})
        assert status >= 400
        assert text(server.chat(ask(RULES))) == before
        server.wait_for("entry.warmed")
        assert cached(server.chat(ask(RULES))) >= tokens
        assert server.seen("engine.died") == []


def test_what_does_not_fit_on_one_rank_is_put_off_on_all_and_requests_are_answered(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("a", RULES)])
    with on_two_ranks(folders["llama"], prompts, on_rank_1="export WARMD_MEMORY_LIMIT=1MB") as server:
        deferred = server.wait_for("entry.deferred", entry="a")
        assert deferred["needed"] > 0
        assert server.chat(ask(RULES))["usage"]["completion_tokens"] > 0
        assert server.seen("entry.warmed") == server.seen("engine.died") == []


def test_a_stop_ends_all_ranks_together(folders: dict[str, Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("a", RULES * 40)])
    with on_two_ranks(folders["llama"], prompts, environment=SMALL_STEPS) as server:
        server.wait_for("entry.warming")
        os.kill(rank_pids(server)[0], signal.SIGTERM)
        assert server.wait() == 0
        stopped = {line.get("rank", 0): line for line in server.seen("daemon.stopped")}
        assert [stopped[rank]["exit_code"] for rank in (0, 1)] == [0, 0]
        assert stopped[1]["reason"] == "rank 0 has stopped"


def test_a_stop_beside_an_answer_that_cannot_be_broken_off_ends_all_ranks_as_well(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("a", RULES)])
    with on_two_ranks(folders["llama"], prompts) as server, ThreadPoolExecutor(1) as pool:
        server.wait_for("entry.warmed")
        # With a seed it is served alone.
        body = {"messages": ask(RULES), "max_tokens": 9999, "seed": 1, "stream": False}
        answer = pool.submit(server.post, "/v1/chat/completions", body)
        server.wait_for("live.hit")
        os.kill(rank_pids(server)[0], signal.SIGTERM)
        server.wait()
        assert answer.exception() is not None
        assert server.seen("daemon.stopped")[0]["reason"] == "SIGTERM"
        assert rank_pids(server) == {}


def test_a_rank_that_waits_for_the_others_can_be_stopped(folders: dict[str, Path], tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.json"
    hosts.write_text(json.dumps([[f"127.0.0.1:{free_port()}"] for _ in range(2)]), encoding="utf-8")
    variables = {"MLX_RANK": "0", "MLX_HOSTFILE": str(hosts), "MLX_RING_VERBOSE": "1"}
    with serving(folders["llama"], tmp_path / "prompts.json", environment=variables, is_group=True) as server:
        server.wait_for("not a JSON line")
        assert server.stop() == -signal.SIGTERM


def test_a_rank_that_falls_out_ends_the_job_and_counts_against_what_was_being_warmed(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("a", RULES * 40)])
    with on_two_ranks(folders["llama"], prompts, environment=SMALL_STEPS) as server:
        server.wait_for("entry.warming")
        os.kill(rank_pids(server)[1], signal.SIGKILL)
        server.wait()
        assert_died_in_mid_warm(server)


def test_so_it_does_where_mlx_launch_stops_the_others_before_they_notice(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.json"
    write(prompts, [entry("a", RULES * 40)])
    with on_two_ranks(folders["llama"], prompts, environment=SMALL_STEPS) as server:
        server.wait_for("entry.warming")
        first, second = (rank_pids(server)[rank] for rank in (0, 1))
        # Held still, it has both to notice when it goes on.
        os.kill(first, signal.SIGSTOP)
        os.kill(second, signal.SIGKILL)
        wait_until(lambda: awaits(first, signal.SIGTERM))
        os.kill(first, signal.SIGCONT)
        server.wait()
        assert_died_in_mid_warm(server)


def awaits(pid: int, number: signal.Signals) -> bool:
    """True when a signal has been sent to a process that is held still."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    pending = next(line for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(pending.split()[1], 16) >> (number - 1) & 1)


def assert_died_in_mid_warm(server: Server) -> None:
    assert rank_pids(server) == {}
    assert len(server.seen("engine.died")) == 1
    assert server.seen("daemon.stopped")[0]["exit_code"] == 1
    assert [suspect.entries for suspect in read_suspects(server.state_folder).warming] == [("a",)]
