"""What the engine's thread and the daemon share."""

from __future__ import annotations

import copy
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warmd.disk.errors import NotNowError
from warmd.disk.identity import Weights, digest_of, weights_of
from warmd.disk.writer import Piece
from warmd.engines.base import EngineDiedError, Identity, LiveRequest
from warmd.engines.mlx_lm.desk import Desk, Job
from warmd.engines.mlx_lm.forms import forms_of
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.keeper import Keeper
from warmd.engines.mlx_lm.measure import UnkeepableError, measure, quantising, trace
from warmd.engines.mlx_lm.ranks import Ranks, Shard, problem_of
from warmd.engines.mlx_lm.render import RequestPath
from warmd.engines.mlx_lm.shared_desk import SharedDesk
from warmd.engines.mlx_lm.store import WarmStore
from warmd.engines.pace import Pace


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """What other threads may know of the model that is loaded."""

    identity: Identity
    request_path: RequestPath


class ModelGoneError(Exception):
    """The model was unloaded or replaced while something was being warmed for it."""


class EngineRoom:
    """What the engine's thread and the daemon share. The thread writes; the daemon reads and leaves jobs.

    Attributes:
        desk: Work for the engine's thread.
        store: The warm prefixes; only the engine's thread touches it, but for its snapshots.
        keeper: Keeps them on disk; None where nothing is written.
        ranks: Who runs the model together.
        guard: Keeps warming within the memory limit.
        pace: Sizes the steps of warming.
        is_prefilling: True while a request's prompt is being computed, or waits for a place in the batch.
        is_waiting: True while a request that was taken has not begun.
        is_queued: Whether a request has not even been taken.
        is_serving: True from when a request is taken until there are none.
        ordinary_bytes: What mlx-lm's own prompt cache holds; from any thread.
        loaded: The loaded model, replaced as a whole; None while there is none.
        is_started: True once the engine's thread asked for its first work: the default model is loaded.
        death: Why the engine's thread ended, if it ended by itself.
    """

    def __init__(
        self,
        store: WarmStore,
        guard: Guard,
        pace: Pace,
        keeper: Keeper | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.desk = Desk() if self.ranks.size == 1 else SharedDesk(self.ranks)
        self.store = store
        self.guard = guard
        self.pace = pace
        self.keeper = keeper
        self.is_prefilling = self.is_waiting = self.is_serving = False
        self.is_queued: Callable[[], bool] = lambda: False
        self.ordinary_bytes: Callable[[], int] = lambda: 0
        self.loaded: LoadedModel | None = None
        self.is_started = False
        self.death: EngineDiedError | None = None
        self.notify: Callable[[], None] = lambda: None
        self.on_request: Callable[[LiveRequest], None] = lambda request: None
        self._loads = 0

    def model_loaded(self, provider: Any, folders: Mapping[str, Path]) -> None:
        """A model has been loaded, from the folders of `model`, `adapter`, `draft_model`. On its thread."""
        self._loads += 1
        model_path = provider.model_key[0]
        request_path = RequestPath(
            # A tokenizer of our own: rendering happens on another thread than serving.
            copy.deepcopy(provider.tokenizer),
            provider.cli_args.chat_template_args,
            provider.processor,
        )
        weights = self._weights(folders)
        unwarmable = self._agreed(self._measure(provider, weights))
        fingerprint = digest_of(weights) if weights else ""
        identity = Identity(str(model_path), self._loads, unwarmable, fingerprint)
        self.loaded = LoadedModel(identity, request_path)
        self.notify()

    def _weights(self, folders: Mapping[str, Path]) -> Mapping[str, Weights] | None:
        """What tells a model's files from others; None where one cannot be read.

        Some megabytes of each file, which have just been read: little beside the loading itself.
        """
        try:
            return {name: weights_of(folder) for name, folder in folders.items()}
        except OSError as error:
            if self.keeper is not None:
                reason = error.strerror or type(error).__name__
                self.keeper.tell.failed("identify", f"the model's files cannot be read: {reason}")
            return None

    def _measure(self, provider: Any, weights: Mapping[str, Weights] | None) -> str | None:
        """Find out what the model's state costs; returns why it cannot be kept at all, if so."""
        self.store.reset(quantising(provider.cli_args))
        self.guard.model_loaded(None)
        self.pace.forget()
        try:
            run = trace(provider.model, provider.draft_model)
            self.guard.model_loaded(measure(run, self.pace.max_tokens, provider.cli_args))
            if self.keeper is not None and weights is not None:
                forms = forms_of(run, provider.cli_args)
                self.keeper.model_loaded(weights, forms, provider.cli_args, str(provider.model_key[0]))
        except UnkeepableError as error:
            return str(error)
        except Exception:  # noqa: BLE001 - a model that does not run says so when it is used
            return None
        return None

    def _agreed(self, unwarmable: str | None) -> str | None:
        """Why the state cannot be kept, given what the other ranks say of theirs."""
        cost = self.guard.cost
        kind = zlib.crc32(repr(cost).encode()) if cost is not None else 0
        shards = [
            Shard(*numbers)
            for numbers in self.ranks.gather(
                int(unwarmable is None and cost is not None), int(cost is not None and cost.is_cuttable), kind
            )
        ]
        # One process alone tells when a request comes; several would leave each other waiting.
        return unwarmable or (problem_of(shards) if self.ranks.size > 1 else None)

    def model_gone(self) -> None:
        """The loaded model is about to be unloaded, and its state with it. On the engine's thread."""
        self.loaded = None
        if self.keeper is not None:
            self.keeper.model_gone()
        self.store.clear()
        self.desk.fail_all(ModelGoneError())
        self.notify()

    def step_while_serving(self) -> None:
        """Between two tokens of live requests: what takes no time, or a share of it if they only decode."""
        if self.desk.is_resting:
            return
        if not self.ranks.leads:
            self.desk.step()
            return
        if self.desk.step_quick():
            return
        if self.is_prefilling or self.is_waiting or self.is_queued():
            self.pace.busy()
            self.desk.rest()
            return
        with self.pace.sharing() as may_step:
            if may_step:
                self.desk.step()
            else:
                self.desk.rest()

    def thread_started(self) -> None:
        """The engine's thread is ready for work."""
        if not self.is_started:
            self.is_started = True
            self.notify()

    def next_piece(self) -> Piece | None:
        """The next file to write, from the engine's thread. On the writer's, which waits for it.

        Raises:
            NotNowError: The model or the engine goes away, or there is no room.
        """
        keeper = self.keeper
        if keeper is None:
            return None
        try:
            return self.desk.submit(Job(lambda: keeper.make_piece(self.store, self.guard))).result()[0]
        except (ModelGoneError, EngineDiedError, MemoryError) as error:
            raise NotNowError from error

    def thread_ended(self, death: EngineDiedError | None) -> None:
        """The engine's thread has ended: by itself when `death` says why. On the engine's thread."""
        self.death = death
        self.loaded = None
        self.store.clear()
        self.desk.close(death or EngineDiedError("the engine has been stopped"))
        self.notify()
