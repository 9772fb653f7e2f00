"""The machine and the engine: Python, mlx, mlx-lm, the GPU and what it may use."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from warmd.doctor.finding import Finding
from warmd.memory.size import format_size

PROBE_SECONDS = 120.0
"""A first import after an installation compiles everything."""
_REINSTALL = "install it again: `pip install --force-reinstall mlx mlx-lm`"


@dataclass(frozen=True, slots=True)
class Engine:
    """What the probe says.

    Attributes:
        error: Why there is no engine; None when there is one.
        metal: The GPU can be used.
        device: Its name.
        recommended: Bytes that Metal recommends to take of it; None where it says nothing.
        missing: Places of mlx-lm that warmd builds on and that are not there.
    """

    error: str | None = None
    metal: bool = False
    device: str = ""
    recommended: int | None = None
    missing: tuple[str, ...] = ()


def probe_engine() -> Engine:
    """Import the engine in another process and ask it."""
    command = [sys.executable, "-P", "-m", "warmd.engines.mlx_lm.probe"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_SECONDS,
            # Nothing is downloaded to look at what is there.
            env={**os.environ, "HF_HUB_OFFLINE": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Engine(error=f"importing mlx-lm takes more than {PROBE_SECONDS:g} s")
    except OSError as error:
        return Engine(error=error.strerror or str(error))
    return parse_probe(done.returncode, done.stdout, done.stderr)


def parse_probe(code: int, output: str, errors: str) -> Engine:
    """Read what the probe printed."""
    try:
        # Libraries may print above it.
        found = json.loads(output.strip().splitlines()[-1])
        if "error" in found:
            return Engine(error=" ".join(str(found["error"]).split())[:300])
        return Engine(
            None, found["metal"], found["device"], found["recommended_bytes"], tuple(found["missing"])
        )
    except (LookupError, ValueError, TypeError):
        lines = errors.strip().splitlines()
        return Engine(
            error=f"importing mlx-lm ended with {code}: {lines[-1][:300] if lines else 'no message'}"
        )


def is_mac() -> bool:
    """True on macOS."""
    return platform.system() == "Darwin"


def check_python() -> Finding:
    """The interpreter, and whether it runs on this processor itself."""
    what = f"{platform.python_version()} at {sys.executable}, {platform.machine()}"
    if is_mac() and platform.machine() != "arm64":
        fix = "mlx needs Apple silicon: use a Python for arm64, not one that Rosetta translates"
        return Finding("Python", "problem", what, fix)
    return Finding("Python", "ok", what)


def check_packages(engine: Engine) -> Finding:
    """mlx and mlx-lm are there, and where warmd hooks in, mlx-lm is as it expects."""
    what = ", ".join(f"{package} {_version(package)}" for package in ("mlx", "mlx-lm", "warmd"))
    if engine.error is not None:
        return Finding("engine", "problem", f"{what}: {engine.error}", _REINSTALL)
    if engine.missing and find_spec("vllm_mlx") is not None:
        return Finding("engine", "ok", f"{what}: what vllm-mlx needs, for `warmd serve --engine vllm-mlx`")
    if engine.missing:
        fix = "install an mlx-lm that warmd knows: `pip install 'mlx-lm>=0.32,<0.33'`"
        return Finding("engine", "problem", f"{what}: missing {', '.join(engine.missing)}", fix)
    return Finding("engine", "ok", f"{what}; everything in mlx-lm that warmd builds on is there")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed)"


def check_metal(engine: Engine) -> Finding:
    """The GPU can be used."""
    if engine.error is not None:
        return Finding("Metal", "unknown", "the engine cannot be imported")
    if not engine.metal:
        if not is_mac():
            return Finding("Metal", "unknown", "no Mac: mlx computes on the CPU")
        return Finding(
            "Metal", "problem", "not available: mlx computes on the CPU", "update macOS; " + _REINSTALL
        )
    if engine.recommended is None:
        return Finding("Metal", "ok", engine.device)
    size = format_size(engine.recommended)
    return Finding("Metal", "ok", f"{engine.device}, {size} recommended as working set")


def check_wired(engine: Engine, wired_megabytes: int | None, model_bytes: int | None) -> Finding:
    """The model fits into what the system lets the GPU have.

    Args:
        engine: Tells what Metal recommends, which follows the limit.
        wired_megabytes: `iogpu.wired_limit_mb`, 0 for the system's default; None where there is none.
        model_bytes: Size of the weights; None when unknown.
    """
    if wired_megabytes is None:
        return Finding("wired limit", "unknown", "no such setting here")
    what = (
        "the system's default" if wired_megabytes == 0 else f"{wired_megabytes:,} MiB (iogpu.wired_limit_mb)"
    )
    if model_bytes is None or engine.recommended is None or model_bytes <= engine.recommended:
        return Finding("wired limit", "ok", what)
    needed = model_bytes * 5 // 4 >> 20
    return Finding(
        "wired limit",
        "warning",
        f"{what}: the model's {format_size(model_bytes)} are more than {format_size(engine.recommended)}",
        "take a smaller model, or allow more until the Mac restarts: "
        f"sudo sysctl iogpu.wired_limit_mb={needed}",
    )


def read_wired_limit() -> int | None:
    """`iogpu.wired_limit_mb` in MiB; None where it cannot be read."""
    command = ["/usr/sbin/sysctl", "-n", "iogpu.wired_limit_mb"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = done.stdout.strip()
    return int(text) if done.returncode == 0 and text.isdigit() else None


def model_size(folder: Path | None) -> int | None:
    """Bytes of a model's weights on disk."""
    if folder is None:
        return None
    try:
        return sum(path.stat().st_size for path in folder.glob("*.safetensors")) or None
    except OSError:
        return None


def check_all(engine: Engine, model: Path | None) -> Iterator[Finding]:
    """Every finding of this module.

    Args:
        engine: What the probe says.
        model: The model's folder, where it is known.
    """
    yield check_python()
    yield check_packages(engine)
    yield check_metal(engine)
    yield check_wired(engine, read_wired_limit(), model_size(model))
