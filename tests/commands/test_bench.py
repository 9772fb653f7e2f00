"""`warmd bench`: what it measures, and what it leaves alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.engines.http.scripted import Script, scripted, usage
from tests.patience import PATIENCE, wait_until
from tests.serving.process import write
from warmd.bench.report import report
from warmd.bench.requests import cold_request, prompts_file, tail_request, user_text, warm_request
from warmd.bench.result import HOW, BenchResult, EntryResult, Interference, Times
from warmd.prompts import load_document

RULES = "zanzibar: be a careful reviewer of code. " * 12
TOOL = {"type": "function", "function": {"name": "search", "parameters": {}}}
ENTRIES: list[dict[str, Any]] = [
    {"name": "coder", "messages": [{"role": "system", "content": RULES}]},
    {"messages": [{"role": "system", "content": "Be brief."}], "priority": 3, "tools": [TOOL]},
]


def warmd(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warmd", *args],
        cwd=cwd,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_it_measures_every_entry_and_another_server(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", ENTRIES)
    before = (tmp_path / "prompts.json").read_bytes()
    script = Script(usage=[usage(120, 0)])
    with scripted(script) as url:
        done = warmd(
            *("bench", "--model", str(models["llama"]), "--prompts", "prompts.json"),
            *("--rounds", "2", "--json", "--compare", url),
            cwd=tmp_path,
        )
    assert (done.returncode, done.stderr.splitlines()) == (
        0,
        [
            "the server starts and warms every entry",
            f"{url} gets coder for the first time",
            f"{url} gets #1 for the first time",
            "round 1 of 2",
            "round 2 of 2",
            "beside the warming of coder: 1 of 2",
            "beside the warming of coder: 2 of 2",
            "every entry is edited",
            "the server starts again",
        ],
    )
    assert "zanzibar" not in done.stdout
    found = json.loads(done.stdout)
    coder, second = found["entries"]
    assert (coder["name"], second["name"]) == ("coder", "#1")
    assert coder["times"]["warm_cached"] == coder["tokens"] > 100 > coder["times"]["cold_cached"]
    assert 0 < coder["edit_tokens"] < 20
    # Nothing where it comes from disk, which is not so where prefilling is quicker.
    assert coder["restart_tokens"] >= 0
    assert found["kv_bytes"] >= coder["kv_bytes"] > 0
    assert found["interference"]["entry"] == "coder"
    assert found["how"] == HOW
    seconds = [each[side][kind] for each in (coder, second) for side in ("times", "other") for kind in KINDS]
    assert min([*seconds, found["restart_s"], found["interference"]["beside_s"]]) > 0
    # The first of all, one of each entry, and three kinds for each entry and round.
    assert len(script.requests) == 1 + 2 + 2 * 2 * 3
    assert (tmp_path / "prompts.json").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["prompts.json"]


KINDS = ("cold_s", "warm_s", "tail_s")


@pytest.mark.parametrize(
    ("args", "code", "told"),
    [
        (("--compare", "h?k"), 2, "--compare: expected an address such as http://localhost:8080, found 'h'"),
        (("--engine", "vllm-mlx"), 2, "--engine: bench measures mlx-lm's server"),
        (("--port", "9"), 2, "--port: bench chooses it for the server that it starts"),
        (("--log-level=ERROR",), 2, "--log-level: bench chooses it for the server that it starts"),
        (("--compare-model", "x"), 2, "--compare-model: it is for the server of --compare, which is not"),
        (("--api-key-file", ""), 2, "--api-key-file: it is for the server of --compare, which is not given"),
        (
            ("--compare", "ftp://x"),
            2,
            "--compare: expected an address such as http://localhost:8080, found 'f",
        ),
        (("--compare", "http://127.0.0.1:1/v1"), 1, "http://127.0.0.1:1: no connection can be made with"),
        (
            ("--no-such-flag", "3"),
            2,
            "the server refuses its command line: unrecognized arguments: --no-such-flag 3; see `warmd serve",
        ),
        (
            ("--max-tokens", "lots"),
            2,
            "the server refuses its command line: argument --max-tokens: expected a whole number",
        ),
        (("--model", "./none"), 3, "the server has ended: cannot load the model"),
    ],
)
def test_what_cannot_be_measured_is_told_in_a_line(
    args: tuple[str, ...], code: int, told: str, models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", ENTRIES)
    model = str(models["llama"])
    done = warmd("bench", "--model", model, "--prompts", "prompts.json", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    *progress, last = done.stderr.splitlines()
    assert last.startswith(f"warmd: {told}")
    is_the_server_s = told.startswith("the server ")
    assert progress == (["the server starts and warms every entry"] if is_the_server_s else [])


@pytest.mark.parametrize(
    ("script", "args", "code", "told"),
    [
        (Script(status=500), (), 1, "{url}: the server answered 500"),
        (Script(models=None), (), 1, "{url}: the server answered 404 (is the path right?)"),
        (Script(models=None, status=503), ("--compare-model", "x"), 1, "{url}: the server answered 503"),
        (
            Script(models=["a", "b"]),
            (),
            2,
            "--compare {url}: the server has several models: name one with --compare-model (a, b)",
        ),
    ],
)
def test_what_is_wrong_with_the_other_server_is_told_with_its_address(
    script: Script, args: tuple[str, ...], code: int, told: str, models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", ENTRIES)
    with scripted(script) as url:
        given = ("--model", str(models["llama"]), "--prompts", "prompts.json", "--compare", url, *args)
        done = warmd("bench", *given, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.splitlines()[-1] == f"warmd: {told.format(url=url)}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_and_the_server_that_it_started(
    number: signal.Signals, models: dict[str, Path], tmp_path: Path
) -> None:
    write(tmp_path / "prompts.json", ENTRIES)
    (tmp_path / "t").mkdir()
    bench = subprocess.Popen(
        [sys.executable, "-m", "warmd", "bench", "--model", str(models["llama"]), "--rounds", "1000"],
        env={
            **os.environ,
            "TMPDIR": str(tmp_path / "t"),
            "WARMD_PROMPTS_PATH": str(tmp_path / "prompts.json"),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: list((tmp_path / "t").glob("warmd-bench-*/state/*")))
    (server,) = psutil.Process(bench.pid).children()
    bench.send_signal(number)
    out, told = bench.communicate(timeout=PATIENCE)
    assert (out, told.splitlines()[:1], bench.returncode) == (
        b"",
        [b"the server starts and warms every entry"],
        130,
    )
    # asyncio would have its own words for a process that two wait for.
    assert b"child process" not in told
    assert not server.is_running()
    assert list((tmp_path / "t").glob("warmd-bench-*")) == []


def test_a_wrong_file_is_left_to_check(tmp_path: Path) -> None:
    (tmp_path / "prompts.json").write_text('{"zanzibar": 1}')
    done = warmd("bench", "--model", "m", "--prompts", "prompts.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    path = tmp_path / "prompts.json"
    assert done.stderr == f"warmd: {path}: is wrong: `warmd check {path}` says what\n"
    path.write_text("[]")
    done = warmd("bench", "--model", "m", "--prompts", "prompts.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "warmd: no entry can be measured: the file has none\n")
    path.unlink()
    done = warmd("bench", "--model", "m", "--prompts", "prompts.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, f"warmd: {path}: there is no such file\n")


def test_requests_are_the_same_in_each_run_and_differ_from_the_first_word(tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", ENTRIES)
    coder, second = load_document(tmp_path / "prompts.json").entries
    assert warm_request(coder, 3) == warm_request(coder, 3)
    assert len({user_text(number).split()[0] for number in range(26)}) == 26
    assert tail_request(3)["messages"] == warm_request(coder, 3)["messages"][-1:]
    cold = cold_request(second, 3)
    assert cold["messages"][0]["content"] == "Doctors 3. Be brief."
    assert cold["tools"][0]["function"]["name"] == "doctors_3_search"
    assert second.tools == (TOOL,)


def test_the_copy_of_the_file_is_the_same_document(tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", ENTRIES)
    entries = load_document(tmp_path / "prompts.json").entries
    write(tmp_path / "copy.json", prompts_file(entries))
    assert load_document(tmp_path / "copy.json").entries == entries
    write(tmp_path / "copy.json", prompts_file(entries, ["coder"]))
    coder, second = load_document(tmp_path / "copy.json").entries
    assert coder.messages[0]["content"] == f"{RULES} Be brief."
    assert second == entries[1]


def test_the_report_says_what_was_found_and_how() -> None:
    from rich.console import Console

    warm = EntryResult("a", "warm", None, 1000, 4096, Times(12.25, 0.5, 0.25, 200, 1000), None, 9, 1000)
    cold = EntryResult("b", "deferred", "no room")
    result = BenchResult("1", "m", 3, (warm, cold), 4096, 7.5, Interference("a", 0.25, 0.5, 2))
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(report(result))
    lines = [line.rstrip() for line in capture.get().splitlines()]
    assert lines[:11] == [
        "m, warmd 1, medians of 3 rounds",
        "",
        "name  tokens   bytes    cold    warm    tail  edit  restart",
        "a      1,000  4.1 KB  12.2 s  500 ms  250 ms     9    1,000",
        "b          -       -       -       -       -     -        -",
        "",
        "4.1 KB held for all entries",
        "7.5 s from a restart until all is warm, loading the model included",
        "a request beside the warming of a: 500 ms instead of 250 ms; "
        "answered while that went on: 2 of 3 requests",
        "a: cold requests found up to 200 tokens in a cache; start that server anew",
        "b is deferred: no room",
    ]
    legend = lines[12:]
    assert len(legend) >= len(HOW) - 1
    assert any(line.startswith("a request beside the warming: the largest entry gets") for line in legend)
    assert not any(line.startswith(("interference", "compare")) for line in legend)
