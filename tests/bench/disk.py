"""Restarts with the entries' state on disk, and what writing it costs live requests."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.bench.report import Result, Row, ratios, summarise
from tests.bench.rig import PREFIX_TOKENS, Setting, Texts, make_entry, make_messages, serve, timed_chat
from tests.serving import process
from tests.serving.process import Json, Server

REQUESTS = 40
WRITE_SECONDS = 8
"""Over which the writing is spread while requests are timed."""
SHORT = 5000
"""Milliseconds: where prefilling takes no longer, there is nothing to be gained, and nothing is promised."""

HOW = (
    f"one entry of about {PREFIX_TOKENS} tokens is prefilled by a server with an empty folder, and all of it "
    "written. Each round then starts two servers on that folder, one that checks a sample of what it loads "
    "and one that does not, and reads the same files in this process; each time the files are dropped from "
    "the system's cache before. Prefill and restart: entry.warmed ms, with the look-up that proves it. "
    "Loading: disk_ms of the server that does not check. "
    f"Live: {REQUESTS} requests of a few tokens one after the other, while the state is being written at a "
    f"rate that spreads it over {WRITE_SECONDS} s, and in the same server once it is written."
)


def run(setting: Setting) -> Result:
    """Measure."""
    folder = setting.folder("disk")
    kv, prompts = folder / "kv", folder / "prompts.json"
    entry = make_entry("long", Texts(setting.model).make(PREFIX_TOKENS, 0))
    variables = {"WARMD_STORE_ENABLED": "true", "WARMD_STORE_PATH": str(kv)}
    with serve(setting, prompts, [entry], **variables) as server:
        (prefilled,) = server.seen("entry.warmed")
        _wait_until_written(kv, prefilled["kv_bytes"])
    checked: list[Json] = []
    unchecked: list[Json] = []
    reading: list[float] = []
    for _ in range(setting.rounds):
        for check, found in (("true", checked), ("false", unchecked)):
            _drop_from_cache(kv)
            with serve(setting, prompts, [entry], WARMD_STORE_CHECK=check, **variables) as server:
                found.append(_loaded(server))
        _drop_from_cache(kv)
        reading.append(_read(kv))
    rows = _restart_rows(prefilled, checked, unchecked, reading)
    share = _bytes(kv) / prefilled["kv_bytes"]
    rows.append(summarise("bytes on disk over those of the state", [share], "x", at_most=1.05))
    return Result("disk", HOW, (*rows, *_live_rows(setting, entry, prefilled["kv_bytes"])))


def _restart_rows(
    prefilled: Json, checked: list[Json], unchecked: list[Json], reading: list[float]
) -> list[Row]:
    saved = [prefilled["ms"] / event["ms"] for event in checked]
    is_long = prefilled["ms"] > SHORT
    loading = [float(event["disk_ms"]) for event in unchecked]
    return [
        summarise("prefill", [prefilled["ms"]], "ms"),
        summarise("restart to warm", [event["ms"] for event in checked], "ms"),
        summarise("prefill over restart", saved, "x", at_least=20 if is_long else None),
        summarise("restart without the check", [event["ms"] for event in unchecked], "ms"),
        summarise("loading", loading, "ms"),
        summarise("reading the bytes", reading, "ms"),
        summarise("loading over reading", ratios(loading, reading), "x", at_most=3 if is_long else None),
    ]


def _live_rows(setting: Setting, entry: Json, kv_bytes: int) -> list[Row]:
    folder = setting.folder("live")
    variables = {
        "WARMD_STORE_ENABLED": "true",
        "WARMD_STORE_PATH": str(folder / "kv"),
        "WARMD_STORE_WRITE_RATE": f"{max(1, kv_bytes // WRITE_SECONDS)}B",
    }
    with serve(setting, folder / "prompts.json", [entry], **variables) as server:
        writing = _requests(server, 0)
        files = len(list((folder / "kv").glob("[!.]*.safetensors")))
        _wait_until_written(folder / "kv", kv_bytes)
        time.sleep(1)
        quiet = _requests(server, REQUESTS)
    rows = [
        summarise("live request while it is written", writing, "ms"),
        summarise("live request afterwards", quiet, "ms"),
        summarise("files written before the last request", [files], "files"),
    ]
    both = [row.p95 or row.high for row in rows[:2]]
    return [*rows, summarise("p95 while it is written over p95 afterwards", [both[0] / both[1]], "x")]


def _requests(server: Server, first: int) -> list[float]:
    """Milliseconds of each request."""
    numbers = range(first, first + REQUESTS)
    return [timed_chat(server, make_messages("Be brief.", f"{number}?"))[0] for number in numbers]


def _loaded(server: Server) -> Json:
    (event,) = server.seen("entry.warmed")
    if event["new_tokens"]:
        raise RuntimeError(f"{event['new_tokens']} tokens were prefilled")
    return event


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("[!.]*.safetensors"))


def _wait_until_written(folder: Path, kv_bytes: int) -> None:
    deadline = time.monotonic() + process.PATIENCE
    while _bytes(folder) < kv_bytes:
        if time.monotonic() > deadline:
            raise RuntimeError("the state was not written")
        time.sleep(0.05)


def _drop_from_cache(folder: Path) -> None:
    """Have the next reader read from the disk; on systems without this call it reads from memory."""
    for path in folder.glob("[!.]*.safetensors"):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def _read(folder: Path) -> float:
    """Milliseconds that reading all files takes."""
    began = time.perf_counter()
    for path in sorted(folder.glob("[!.]*.safetensors")):
        path.read_bytes()
    return (time.perf_counter() - began) * 1000
