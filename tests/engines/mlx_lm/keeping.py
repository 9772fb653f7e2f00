"""What tests of state on disk share: a folder that outlives stores, and both ways between them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warmd.disk.files import Files
from warmd.disk.identity import weights_of
from warmd.disk.tell import Tell
from warmd.disk.writer import Piece, WriterSettings
from warmd.engines.base import Foreseen, Prefix, Warmed
from warmd.engines.mlx_lm.foresight import foresight
from warmd.engines.mlx_lm.forms import forms_of
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.keeper import Keeper
from warmd.engines.mlx_lm.layers import Kind
from warmd.engines.mlx_lm.measure import trace
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.mlx_lm.warming import Warming
from warmd.events import Event
from warmd.memory.cost import Cost


class Start:
    """One run of a server on a folder of state, without threads that write: `write` does that.

    Args:
        folder: Of the state.
        weights: A folder with a `config.json` and perhaps weights: what the state's identity is taken from.
        provider: See `make_provider`.
        store: An empty one.
        files: Another way to the folder, perhaps a broken one.
        more: For the `Keeper`.
    """

    def __init__(
        self,
        folder: Path,
        weights: Path,
        provider: Any,
        store: WarmStore | None = None,
        files: Files | None = None,
        guard: Guard | None = None,
        **more: Any,
    ) -> None:
        self.events: list[Event] = []
        self.declared: list[Prefix] = []
        self.store = store or WarmStore()
        self.provider = provider
        self.guard = guard
        tell = Tell(self.events.append)
        self.keeper = Keeper(files or Files(folder), WriterSettings(), tell, **more)
        run = trace(provider.model, provider.draft_model)
        args = provider.cli_args
        self.keeper.model_loaded({"model": weights_of(weights)}, forms_of(run, args), args, "toy")

    def declare(self, *prefixes: Sequence[int]) -> None:
        """What is to be held."""
        self.declared = [Prefix(tuple(tokens)) for tokens in prefixes]
        self.keeper.declare(self.declared)
        self.store.declare(self.declared)

    def foresee(self, *prefixes: Sequence[int]) -> list[Foreseen]:
        """What a plan would be told of them."""
        kinds = self.keeper.forms[False].kinds
        cost = Cost(0, constant=int(Kind.SNAPSHOT in kinds))
        return foresight(self.store, self.keeper, cost).foresee([Prefix(tuple(each)) for each in prefixes])

    def warm(self, tokens: Sequence[int], chunk: int = 9) -> Warmed:
        """Load and prefill a prefix, which is declared before, as the daemon does."""
        prefix = Prefix(tuple(tokens))
        if not self.declared:
            self.declare(tokens)
        prefill = Prefill(prefix, self.store, self.provider, chunk, lambda done: None, self.guard)
        warming = Warming(
            prefill,
            self.keeper,
            lambda: self.keeper.loading(prefix, self.store, self.provider, lambda done: None, self.guard),
        )
        while (warmed := warming.step()) is None:
            pass
        return warmed

    def write(self) -> list[tuple[int, int]]:
        """Write all that is not on disk; returns the first and last position of each file."""
        written = []
        self.keeper.shelf.refresh()
        self.keeper.shelf.files.make_folder()
        while (piece := self._next_piece()) is not None:
            self.keeper.shelf.files.write(piece.record.name, piece.content)
            self.keeper.shelf.add(piece.record)
            written.append((piece.record.start, piece.record.end))
        return written

    def _next_piece(self) -> Piece | None:
        while (found := self.keeper.make_piece(self.store, self.guard)) is None:
            pass
        return found[0]

    def told(self, name: str) -> list[Any]:
        """The fields of every event of this name."""
        return [dict(event.fields) for event in self.events if event.name == name]


def make_weights(folder: Path, text: str = "{}") -> Path:
    """A folder that stands for a model's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(text)
    return folder
