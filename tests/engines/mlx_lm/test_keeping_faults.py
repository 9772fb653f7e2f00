"""Whatever is wrong with the files: never a wrong answer, and no more is lost than what they held."""

from __future__ import annotations

import errno
import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import mlx.core as mx
import mlx_lm
import pytest
from mlx_lm.models.cache import make_prompt_cache

from tests.architectures import build
from tests.engines.mlx_lm.keeping import Start, make_weights
from tests.engines.mlx_lm.warming import answer, assert_same_answer, ids, make_provider
from tests.patience import PATIENCE
from tests.toys import make_model
from warmd.disk.files import Files
from warmd.engines.base import NoRoomError, Prefix
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.measure import measure, trace
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.store import Checkpoints, WarmStore
from warmd.engines.mlx_lm.warming import Warming
from warmd.memory.fake import FakeMeter
from warmd.memory.readings import Limit

TAIL = [7, 300, 21, 5]
ONE, TWO = ids(60), ids(30) + ids(30, seed=5)
NAMES = ("llama", "gemma3_text", "granitemoehybrid")
GB = 10**9
MARGIN = 8 + 200
"""Of a file: the header's length and its beginning."""


class Disk:
    """A folder with the state of two prefixes that share a half, and servers that are started on it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / "kv"
        self.weights = make_weights(folder / "model")
        self.model = build(name)
        self._cold = {tuple(tokens): self._answer(tokens) for tokens in (ONE, TWO)}

    def _answer(self, tokens: list[int]) -> mx.array:
        return answer(self.model, tokens + TAIL, make_prompt_cache(self.model))

    def start(self, *, files: Files | None = None, weights: Path | None = None, **more: Any) -> Start:
        """A run with nothing in memory."""
        start = Start(
            self.folder,
            weights or self.weights,
            make_provider(self.model),
            WarmStore(Checkpoints(16)),
            files,
            **{"piece_bytes": 8192, **more},
        )
        start.declare(ONE, TWO)
        return start

    def fill(self) -> list[Path]:
        """Write all; returns the files."""
        start = self.start()
        for tokens in (ONE, TWO):
            start.warm(tokens)
        start.write()
        return sorted(self.folder.glob("[!.]*.safetensors"))

    def assert_right(self, start: Start) -> int:
        """Both prefixes get warm and give the cold answer; returns the tokens that were prefilled."""
        new = 0
        for tokens in (ONE, TWO):
            new += start.warm(tokens).new_tokens
            found = start.store.match([*tokens, *TAIL])
            assert found is not None
            assert found.length == 60
            assert_same_answer(self._cold[tuple(tokens)], answer(self.model, TAIL, found.copy(len(TAIL))))
        return new


@pytest.fixture
def disk(name: str, tmp_path: Path) -> Disk:
    """A folder for one model."""
    return Disk(tmp_path, name)


every_model = pytest.mark.parametrize("name", NAMES)
llama = pytest.mark.parametrize("name", ["llama"])


@every_model
def test_flipped_bits_cost_what_the_file_held(disk: Disk) -> None:
    random = Random(1)
    for path in disk.fill():
        content = path.read_bytes()
        for place in (3, random.randrange(MARGIN), random.randrange(MARGIN, len(content)), len(content) - 1):
            spoilt = bytearray(content)
            spoilt[place] ^= 1 << random.randrange(8)
            path.write_bytes(spoilt)
            start = disk.start()
            assert disk.assert_right(start) <= 120
            # Where it says that it is for other tokens, nobody asks for it.
            assert {rejected["file"] for rejected in start.told("store.rejected")} <= {path.name}
        path.write_bytes(content)
    assert disk.assert_right(disk.start()) == 0


@every_model
def test_a_file_that_is_cut_short_costs_what_it_held(disk: Disk) -> None:
    for path in disk.fill():
        content = path.read_bytes()
        for length in (0, 5, 100, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:length])
            start = disk.start()
            disk.assert_right(start)
            assert [rejected["file"] for rejected in start.told("store.rejected")] == [path.name]
        path.write_bytes(content)


@llama
def test_only_what_the_spoilt_file_held_is_prefilled_and_written_again(disk: Disk) -> None:
    last = next(path for path in disk.fill() if "-60-" in path.name)
    begin = int(last.name.split("-")[1])
    spoilt = bytearray(last.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    last.write_bytes(spoilt)
    start = disk.start()
    assert disk.assert_right(start) == 60 - begin
    # Nobody has removed the old one here.
    assert start.write() == [(begin, 60)]
    assert disk.assert_right(disk.start()) == 0


@every_model
def test_files_under_each_other_s_names_are_not_used(disk: Disk) -> None:
    paths = disk.fill()
    contents = [path.read_bytes() for path in paths]
    for path, content in zip(paths, contents[1:] + contents[:1], strict=True):
        path.write_bytes(content)
    start = disk.start()
    assert disk.assert_right(start) > 0


@every_model
def test_another_model_s_files_are_left_alone_and_told(disk: Disk, tmp_path: Path) -> None:
    paths = disk.fill()
    other = disk.start(weights=make_weights(tmp_path / "other", '{"other": 1}'))
    assert disk.assert_right(other) > 60
    (rejected,) = other.told("store.rejected")
    assert rejected["reason"] == "it is of other model"
    assert [event.level for event in other.events] == ["info"]
    assert sorted(disk.folder.glob("[!.]*.safetensors")) == paths


def changed(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Replace a file by one that says something else of itself, under a name that fits."""
    content = path.read_bytes()
    length = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8 : 8 + length])
    said = json.loads(header["__metadata__"]["warmd"])
    change(said)
    header["__metadata__"]["warmd"] = json.dumps(said)
    text = json.dumps(header).encode()
    new = struct.pack("<Q", len(text)) + text + content[8 + length :]
    path.unlink()
    stem = path.name.rsplit("-", 1)[0]
    (path.parent / f"{stem}-{zlib.crc32(new):08x}.safetensors").write_bytes(new)


@llama
@pytest.mark.parametrize("field", ["mlx", "mlx_lm", "device", "cache_layout", "kv_bits", "draft_model"])
def test_state_of_other_versions_and_settings_is_not_used(disk: Disk, field: str) -> None:
    for path in disk.fill():
        changed(path, lambda said: said["identity"].update({field: "another"}))
    start = disk.start()
    assert disk.assert_right(start) == 90
    assert {rejected["reason"] for rejected in start.told("store.rejected")} == {f"it is of other {field}"}
    assert len(start.told("store.rejected")) == 1


@every_model
@pytest.mark.parametrize(
    "change",
    [
        lambda said: said.update(start=said["start"] + 1),
        lambda said: said.update(format=99),
        lambda said: said.update(is_quantised=True),
        lambda said: said.update(snapshot=[None] * 50),
        lambda said: said.update(snapshot="no"),
        lambda said: said.pop("identity"),
    ],
    ids=["start", "format", "quantised", "parts", "text", "identity"],
)
def test_a_file_that_says_what_is_not_so_is_not_used(disk: Disk, change: Any) -> None:
    for path in disk.fill():
        changed(path, change)
    start = disk.start()
    assert disk.assert_right(start) > 0


def test_one_weight_that_differs_is_another_model(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    prefix = ids(60)

    def start() -> Start:
        model = mlx_lm.load(str(folder))[0]
        return Start(tmp_path / "kv", folder, make_provider(model))

    first = start()
    first.warm(prefix)
    first.write()
    assert start().warm(prefix).disk_tokens == 60
    weights: Any = mx.load(str(folder / "model.safetensors"))
    name = next(name for name in weights if "v_proj" in name)
    weights[name] = mx.concatenate([weights[name][:1] + 1e-3, weights[name][1:]])
    mx.eval(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    second = start()
    assert second.warm(prefix).new_tokens == 60
    assert [rejected["reason"] for rejected in second.told("store.rejected")] == ["it is of other model"]


# --- disks that do not do what they should ----------------------------------------------------------------


class Bad(Files):
    """A disk that cannot be read as it should, after some files."""

    def __init__(self, folder: Path, good: int = 0, number: int = errno.EIO) -> None:
        super().__init__(folder)
        self.left = good
        self._number = number
        self.released = threading.Event()

    def read(self, name: str) -> bytes:
        if self.left == 0:
            self.fail(name)
        self.left -= 1
        return super().read(name)

    def fail(self, name: str) -> None:
        """What happens then."""
        raise OSError(self._number, os.strerror(self._number))


class Hanging(Bad):
    """One that does not answer any more."""

    def fail(self, name: str) -> None:
        self.released.wait(PATIENCE)


@every_model
@pytest.mark.parametrize("good", [0, 1, 2])
@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES, errno.ENOENT])
def test_a_disk_that_cannot_be_read_is_no_hindrance(disk: Disk, good: int, number: int) -> None:
    disk.fill()
    start = disk.start(files=Bad(disk.folder, good, number))
    assert disk.assert_right(start) > 0


DYING = """
import os, signal, sys
from pathlib import Path
from tests.engines.mlx_lm.test_keeping_faults import Bad, Disk, ONE, TWO

class Dying(Bad):
    def fail(self, name):
        os.kill(os.getpid(), signal.SIGKILL)

disk = Disk(Path(sys.argv[1]), "llama")
start = disk.start(files=Dying(disk.folder, int(sys.argv[2])))
start.warm(ONE)
start.warm(TWO)
"""


@llama
@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_process_that_is_killed_while_it_loads_changes_nothing(
    disk: Disk, tmp_path: Path, good: int
) -> None:
    before = {path.name: path.read_bytes() for path in disk.fill()}
    done = subprocess.run(
        [sys.executable, "-c", DYING, str(tmp_path), str(good)], check=False, timeout=PATIENCE
    )
    assert done.returncode == -signal.SIGKILL
    assert before == {path.name: path.read_bytes() for path in disk.folder.iterdir()}
    assert disk.assert_right(disk.start()) == 0


@llama
def test_a_disk_that_hangs_is_waited_for_no_longer_than_prefilling_takes(disk: Disk) -> None:
    disk.fill()
    hanging = Hanging(disk.folder)
    start = disk.start(files=hanging)
    start.keeper.tokens_per_s = 200.0
    try:
        assert disk.assert_right(start) == 90
    finally:
        hanging.released.set()
    # The second prefix did not even try.
    (slow,) = start.told("store.slow")
    assert (slow["tokens"], slow["prefill_ms"]) == (60, 550)


@llama
def test_a_folder_that_hangs_is_tried_once(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    class HangingFolder(Files):
        """One that cannot even be listed."""

        released = threading.Event()

        def listed(self) -> Any:
            self.released.wait(PATIENCE)
            return []

    monkeypatch.setattr("warmd.engines.mlx_lm.loading.FIRST_PATIENCE", 0.2)
    disk.fill()
    hanging = HangingFolder(disk.folder)
    start = disk.start(files=hanging)
    try:
        assert disk.assert_right(start) == 90
    finally:
        hanging.released.set()
    assert len(start.told("store.slow")) == 1


@llama
def test_whatever_goes_wrong_while_loading_the_rest_is_prefilled(disk: Disk) -> None:
    class OutOfMemory(WarmStore):
        """A store that can take nothing in."""

        def take_in(self, *args: Any, **more: Any) -> Any:
            raise RuntimeError("[metal::malloc] Unable to allocate")

    disk.fill()
    start = disk.start()
    start.store = OutOfMemory()
    assert disk.assert_right(start) > 0
    assert start.told("store.failed") == [{"operation": "read", "reason": "RuntimeError"}]


@llama
def test_whatever_goes_wrong_while_it_is_found_out_what_to_read_is_told_once(disk: Disk) -> None:
    class Faulty(Files):
        def listed(self) -> Any:
            raise RuntimeError("secret")

    disk.fill()
    start = disk.start(files=Faulty(disk.folder))
    assert disk.assert_right(start) == 90
    assert start.told("store.failed") == [{"operation": "read", "reason": "RuntimeError"}]


@llama
def test_a_folder_that_cannot_be_listed_is_no_hindrance(disk: Disk) -> None:
    class Unlisted(Files):
        def listed(self) -> Any:
            raise PermissionError(errno.EACCES, "Permission denied")

    disk.fill()
    assert disk.assert_right(disk.start(files=Unlisted(disk.folder))) == 90


@every_model
def test_a_cancelled_loading_leaves_nothing_behind(disk: Disk) -> None:
    disk.fill()
    start = disk.start()
    prefix = Prefix(tuple(ONE))
    for steps in range(6):
        prefill = Prefill(prefix, start.store, start.provider, 9, lambda done: None)
        warming = Warming(
            prefill,
            start.keeper,
            lambda: start.keeper.loading(prefix, start.store, start.provider, lambda done: None, None),
        )
        for _ in range(steps):
            if warming.step() is not None:
                break
        else:
            warming.abandon()
    assert disk.assert_right(start) == 0


@every_model
@pytest.mark.parametrize("left", [(), (TWO,)])
def test_what_nobody_wants_any_more_when_it_has_been_read_is_not_kept(
    disk: Disk, left: tuple[list[int], ...]
) -> None:
    disk.fill()
    start, prefix = disk.start(), Prefix(tuple(ONE))
    loading = start.keeper.loading(prefix, start.store, start.provider, lambda done: None, None)
    assert loading is not None
    start.declare(*left)
    while not loading.step():
        pass
    assert (start.store.warm_bytes > 0) == bool(left)
    tree = start.store.tree(is_quantised=False)
    assert tree is not None
    # What the other one goes along as well, and no more.
    assert max((node.end for node in tree.nodes()), default=0) == (30 if left else 0)


class Counting:
    """A model that tells how many tokens it is given."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.computed = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def __call__(self, tokens: mx.array, **more: Any) -> Any:
        self.computed += tokens.size
        return self._model(tokens, **more)


@every_model
def test_what_was_read_is_joined_and_checked_in_small_steps_before_anybody_can_find_it(disk: Disk) -> None:
    disk.fill()
    start, prefix = disk.start(), Prefix(tuple(ONE))
    start.declare(ONE)
    model = start.provider.model = Counting(disk.model)
    loading = start.keeper.loading(prefix, start.store, start.provider, lambda done: None, None)
    assert loading is not None
    computed = [0]
    while not loading.step():
        computed.append(model.computed)
        assert start.store.match([*ONE, *TAIL]) is None
    assert max(after - before for before, after in itertools.pairwise(computed)) == 1
    assert computed[-1] == 4
    tree = start.store.tree(is_quantised=False)
    assert tree is not None
    # One where all can be cut, else one to each snapshot: not one a file.
    snapshots = [node.end for node in tree.nodes() if node.payload.snapshot is not None]
    assert len(list(tree.nodes())) == max(1, len(snapshots))


@llama
def test_what_is_freed_while_it_is_being_read_is_prefilled(disk: Disk) -> None:
    disk.fill()
    start = disk.start()
    start.warm(ONE)
    prefix = Prefix(tuple(TWO))
    loading = start.keeper.loading(prefix, start.store, start.provider, lambda done: None, None)
    assert loading is not None
    # It was to go on from what the first has in common with it.
    start.store.clear()
    while not loading.step():
        pass
    assert loading.loaded.tokens == 0
    assert disk.assert_right(start) == 0


@llama
def test_what_is_dropped_although_it_is_wanted_is_not_read_again(disk: Disk) -> None:
    disk.fill()
    start = disk.start()
    disk.assert_right(start)
    distrust(start, ONE)
    start.store.drop([Prefix(tuple(ONE)).key])
    again = disk.start()
    # All of the other one is as good as before, with what both begin with.
    assert again.warm(TWO).new_tokens == 0
    assert again.warm(ONE).new_tokens == 30


@llama
def test_what_is_dropped_while_a_file_of_it_is_written_is_not_read_again(disk: Disk) -> None:
    start = disk.start()
    start.declare(ONE)
    start.warm(ONE)
    while (found := start.keeper.make_piece(start.store, None)) is None or found[0] is None:
        pass
    start.keeper.distrust([Prefix(tuple(ONE)).key])
    assert [item.name for item in start.keeper.shelf.damaged] == [found[0].record.name]


@llama
def test_what_is_shared_by_those_only_that_are_dropped_is_not_read_again(disk: Disk) -> None:
    disk.fill()
    start = disk.start()
    disk.assert_right(start)
    keys = [Prefix(tuple(tokens)).key for tokens in (ONE, TWO)]
    start.keeper.distrust(keys)
    start.store.drop(keys)
    assert start.store.warm_bytes == 0
    assert disk.assert_right(start) == 90


@llama
def test_the_first_tokens_of_a_template_are_no_reason_to_distrust_a_file(disk: Disk) -> None:
    prefixes = [ids(4) + ids(56, seed=seed) for seed in (2, 3, 4)]

    def begin() -> Start:
        start = Start(disk.folder, disk.weights, make_provider(disk.model), piece_bytes=1 << 20)
        start.declare(*prefixes)
        return start

    first = begin()
    for tokens in prefixes:
        first.warm(tokens)
    first.write()
    distrust(first, prefixes[0])
    second = begin()
    assert [second.warm(tokens).new_tokens for tokens in prefixes[::-1]] == [0, 0, 56]


@llama
def test_what_another_model_has_for_the_same_tokens_is_not_distrusted(disk: Disk) -> None:
    disk.fill()
    other = Start(disk.folder, make_weights(disk.folder / "other", '{"other": 1}'), make_provider(disk.model))
    other.keeper.shelf.refresh()
    other.declare(ONE)
    distrust(other, ONE)
    assert disk.assert_right(disk.start()) == 0


@every_model
def test_of_a_file_that_is_dropped_the_rows_that_another_one_goes_along_stay(disk: Disk) -> None:
    first = disk.start(piece_bytes=1 << 20)
    # The other one is added later, so that one file holds all of this one.
    first.declare(ONE)
    first.warm(ONE)
    first.write()
    first.declare(ONE, TWO)
    first.warm(TWO)
    first.write()
    before = disk.start().warm(TWO).new_tokens
    distrust(first, ONE)
    again = disk.start()
    assert again.warm(TWO).new_tokens == before
    assert again.warm(ONE).disk_tokens == 0
    assert disk.assert_right(again) == 0


def distrust(start: Start, *prefixes: list[int]) -> None:
    """Have some of what is declared go, and wait until it has."""
    keeper = start.keeper
    keeper.start(lambda: None)
    keeper.declare(start.declared)
    keeper.distrust([Prefix(tuple(tokens)).key for tokens in prefixes])
    deadline = time.monotonic() + 20
    while keeper.shelf.damaged:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@llama
def test_nothing_is_read_or_written_that_does_not_fit(disk: Disk) -> None:
    meter = FakeMeter(active=2 * GB, footprint=2 * GB)
    guard = Guard(Limit(4 * GB, 0), meter)
    provider = make_provider(disk.model)
    guard.model_loaded(measure(trace(disk.model), 256, provider.cli_args))
    start = disk.start(guard=guard)
    start.warm(ONE)
    meter.active = meter.footprint = 4 * GB
    with pytest.raises(MemoryError):
        start.write()
    meter.active = meter.footprint = 2 * GB
    assert len(start.write()) >= 1
    again = disk.start(guard=guard)
    meter.active = meter.footprint = 4 * GB
    with pytest.raises(NoRoomError):
        again.warm(ONE)
    assert again.store.warm_bytes == 0
    meter.active = meter.footprint = 2 * GB
    assert again.warm(ONE).disk_tokens == 60
