"""What the benchmarks share: the model under test, texts of a given length, and a running server."""

from __future__ import annotations

import ctypes
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
from mlx_lm.utils import dequantize_model, load, load_tokenizer, save_model

from tests.serving.process import Json, Server, serving
from tests.toys import make_model

OPENBLAS = "libopenblas.so.0"
PREFIX_TOKENS = 2000
"""Length of the entries that are measured, as in the project's promises."""

# Distinct first letters: no two texts that begin with different ones share a first token.
_OPENINGS = """
    Apples Bridges Castles Doctors Engines Farmers Gardens Hammers Islands Jackets Kitchens Ladders Mirrors
    Needles Oranges Pencils Quilts Rivers Summers Tables Umbrellas Valleys Windows Xylophones Yards Zebras
    """
_WORDS = """
    the a careful reviewer of code should answer briefly and never guess what weather in paris is today when
    tests fail read them first then change one thing at a time keep names plain and functions short
    """


@dataclass(frozen=True, slots=True)
class Setting:
    """What to measure with.

    Attributes:
        title: The model as shown in the table.
        model: Its folder.
        rounds: Interleaved rounds.
        idle_seconds: How long to watch idle servers.
        reloads: How many reloads to look for growth over.
        scratch: A folder for files.
        preload: The BLAS library to preload into servers, or None.
    """

    title: str
    model: Path
    rounds: int
    idle_seconds: float
    reloads: int
    scratch: Path
    preload: str | None

    @property
    def environment(self) -> dict[str, str]:
        """What processes that compute are given besides our own environment."""
        return {} if self.preload is None else {"LD_PRELOAD": self.preload}

    def folder(self, name: str) -> Path:
        """A new folder."""
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.scratch))


def find_openblas() -> str | None:
    """OpenBLAS's name where it can be preloaded: mlx's CPU build for Linux brings slow matrix products."""
    if sys.platform != "linux":
        return None
    try:
        ctypes.CDLL(OPENBLAS)
    except OSError:
        return None
    return OPENBLAS


def load_architecture(setting: Setting, architecture: str, **config: Any) -> Any:
    """A toy model in this process; `config` overrides its config.json."""
    return load(str(make_model(setting.folder(architecture), architecture=architecture, **config)))[0]


def dequantise(model: Path, folder: Path) -> Path:
    """Write a float32 copy of a model: the only type of weights that OpenBLAS multiplies for mlx.

    Args:
        model: The folder of a quantised model.
        folder: A new folder for the copy.
    """
    loaded, _, config = load(str(model), return_config=True)
    plain = dequantize_model(loaded)
    plain.set_dtype(mx.float32)
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    save_model(folder, plain)
    kept = {key: value for key, value in config.items() if not key.startswith("quantization")}
    (folder / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    return folder


class Texts:
    """Makes texts of a wanted number of tokens, as the model under test counts them."""

    def __init__(self, model: Path) -> None:
        self._tokenizer: Any = load_tokenizer(model)

    def make(self, tokens: int, number: int) -> str:
        """A text of `tokens` tokens or a few less; texts of different numbers begin with different tokens.

        The first letters repeat after 26 numbers, which is more than mlx-lm's prompt cache remembers.
        """
        words = random.Random(number).choices(_WORDS.split(), k=tokens)
        openings = _OPENINGS.split()
        words[0] = openings[number % len(openings)]
        low, high = 1, len(words)
        while low < high:
            middle = (low + high + 1) // 2
            if len(self.encode(" ".join(words[:middle]))) <= tokens:
                low = middle
            else:
                high = middle - 1
        return " ".join(words[:low])

    def encode(self, text: str) -> list[int]:
        """Token ids of a bare text."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def render(self, messages: Sequence[Json]) -> list[int]:
        """Token ids of a chat request."""
        return list(self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True))

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of some tokens, markers included."""
        return str(self._tokenizer.decode(list(tokens)))


def make_entry(name: str, content: str) -> Json:
    """An entry of the warm-prompts file with one system message."""
    return {"name": name, "messages": [{"role": "system", "content": content}]}


def make_messages(system: str, user: str) -> list[Json]:
    """The messages of a request."""
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


@contextmanager
def serve(
    setting: Setting,
    prompts: Path,
    entries: Sequence[Json],
    *,
    flags: Sequence[str] = (),
    module: str = "warmd",
    **variables: str,
) -> Iterator[Server]:
    """A `warmd serve` whose entries are warm."""
    save(prompts, entries)
    environment = setting.environment | variables
    with serving(setting.model, prompts, *flags, environment=environment, module=module) as server:
        for _ in entries:
            server.wait_for("entry.warmed")
        yield server


def save(path: Path, entries: Sequence[Json]) -> None:
    """Save in place."""
    path.write_text(json.dumps({"prompts": entries}), encoding="utf-8")


def replace(path: Path, entries: Sequence[Json]) -> None:
    """Save as most editors do: write another file and rename it over the old one."""
    other = path.with_suffix(".tmp")
    save(other, entries)
    other.replace(path)


def timed_chat(server: Server, messages: list[Json]) -> tuple[float, Json]:
    """Milliseconds to the first token of a chat request, and the answer, which is that token."""
    return _timed_post(server, "/v1/chat/completions", {"messages": messages})


def timed_completion(server: Server, prompt: str) -> tuple[float, Json]:
    """The same for a bare text."""
    return _timed_post(server, "/v1/completions", {"prompt": prompt})


def _timed_post(server: Server, path: str, body: Json) -> tuple[float, Json]:
    began = time.perf_counter()
    status, answer = server.post(path, {**body, "max_tokens": 1, "temperature": 0})
    elapsed = (time.perf_counter() - began) * 1000
    if status != 200:
        raise RuntimeError(f"{path} answered {status}: {answer}")
    return elapsed, dict(answer)


def describe_load() -> str:
    """How busy the machine is: other work slows every number down."""
    return f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
