"""mlx-lm's server classes with warming let in at their seams (listed in `seams`)."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

from mlx_lm import server, utils

from warmd.disk.writer import Piece
from warmd.engines.base import Chat, EngineDiedError, Identity, LiveRequest
from warmd.engines.mlx_lm.desk import Desk, Job
from warmd.engines.mlx_lm.folder import check_model_folder
from warmd.engines.mlx_lm.forms import forms_of
from warmd.engines.mlx_lm.guard import Guard
from warmd.engines.mlx_lm.keeper import Keeper
from warmd.engines.mlx_lm.measure import UnkeepableError, measure, quantising, trace
from warmd.engines.mlx_lm.pace import Pace
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.render import RequestPath
from warmd.engines.mlx_lm.store import WarmStore


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
        guard: Keeps warming within the memory limit.
        pace: Sizes the steps of warming.
        is_prefilling: True while a request's prompt is being computed, or waits for a place in the batch.
        is_waiting: True while a request that was taken has not begun.
        is_queued: Whether a request has not even been taken.
        ordinary_bytes: What mlx-lm's own prompt cache holds; from any thread.
        loaded: The loaded model, replaced as a whole; None while there is none.
        is_started: True once the engine's thread asked for its first work: the default model is loaded.
        death: Why the engine's thread ended, if it ended by itself.
    """

    def __init__(self, store: WarmStore, guard: Guard, pace: Pace, keeper: Keeper | None = None) -> None:
        self.desk = Desk()
        self.store = store
        self.guard = guard
        self.pace = pace
        self.keeper = keeper
        self.is_prefilling = self.is_waiting = False
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
        unwarmable = self._measure(provider, folders)
        self.loaded = LoadedModel(Identity(str(model_path), self._loads, unwarmable), request_path)
        self.notify()

    def _measure(self, provider: Any, folders: Mapping[str, Path]) -> str | None:
        """Find out what the model's state costs; returns why it cannot be kept at all, if so."""
        self.store.reset(quantising(provider.cli_args))
        self.guard.model_loaded(None)
        self.pace.forget()
        try:
            run = trace(provider.model, provider.draft_model)
            self.guard.model_loaded(measure(run, self.pace.max_tokens, provider.cli_args))
            if self.keeper is not None:
                forms = forms_of(run, provider.cli_args)
                self.keeper.model_loaded(folders, forms, provider.cli_args, str(provider.model_key[0]))
        except UnkeepableError as error:
            return str(error)
        except Exception:  # noqa: BLE001 - a model that does not run says so when it is used
            return None
        return None

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
        if self.desk.step_quick():
            return
        if self.is_prefilling or self.is_waiting or self.is_queued():
            self.pace.busy()
            return
        with self.pace.sharing() as may_step:
            if may_step:
                self.desk.step()

    def thread_started(self) -> None:
        """The engine's thread is ready for work."""
        if not self.is_started:
            self.is_started = True
            self.notify()

    def next_piece(self) -> Piece | None:
        """The next file to write, from the engine's thread. On the writer's, which waits for it."""
        keeper = self.keeper
        if keeper is None:
            return None
        return self.desk.submit(Job(lambda: keeper.make_piece(self.store, self.guard))).result()[0]

    def thread_ended(self, death: EngineDiedError | None) -> None:
        """The engine's thread has ended: by itself when `death` says why. On the engine's thread."""
        self.death = death
        self.loaded = None
        self.store.clear()
        self.desk.close(death or EngineDiedError("the engine has been stopped"))
        self.notify()


class WatchedBatchGenerator(server.BatchGenerator):  # type: ignore[misc] # as below
    """mlx-lm's batch generator, which lets a little warming in between while it only decodes.

    Args:
        room: Is told whether it does, and has the warming.
    """

    def __init__(self, *args: Any, room: EngineRoom, **more: Any) -> None:
        self._room = room
        super().__init__(*args, **more)

    def insert_segments(self, *args: Any, **more: Any) -> Any:
        self._room.is_prefilling, self._room.is_waiting = True, False
        return super().insert_segments(*args, **more)

    def next(self) -> Any:
        # Not after it: the tokens would wait. And not only where the server looks for requests, every half
        # second: while they keep coming, it finds one each time.
        self._room.step_while_serving()
        found = super().next()
        # Responses of the first kind are of prompts. A batch that is full leaves prompts where they are.
        self._room.is_prefilling = bool(found[0] or self._unprocessed_sequences)
        return found


class RequestQueue(Queue[Any]):
    """Where requests wait for the engine's thread, which can be woken when there is other work for it."""

    _WAKE = object()

    def wake(self) -> None:
        """Whoever waits for a request finds that there is none. From any thread."""
        if self.empty():
            self.put(self._WAKE)

    def has_request(self) -> bool:
        """True when a request waits."""
        with self.mutex:
            return any(item is not self._WAKE for item in self.queue)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """The next request.

        Raises:
            queue.Empty: There is none; at once after a `wake`.
        """
        item = super().get(block, timeout)
        while item is self._WAKE:
            item = super().get(block=False)
        return item


class SteppingQueue:
    """Takes the tokens of a request that is served alone, and lets a little warming in between.

    Args:
        queue: Where they go.
        room: Has the warming.
    """

    def __init__(self, queue: Any, room: EngineRoom) -> None:
        self._queue = queue
        self._room = room

    def put(self, item: Any) -> None:
        """Pass it on first: nobody waits for warming."""
        self._queue.put(item)
        if isinstance(item, server.Response):
            self._room.step_while_serving()


class WatchedModelProvider(server.ModelProvider):  # type: ignore[misc] # mlx-lm has no type information
    """mlx-lm's model provider, which tells when the loaded model changes."""

    def __init__(self, cli_args: Any, *, room: EngineRoom) -> None:
        self._room = room
        super().__init__(cli_args)

    def _load(self, model_path: Any, adapter_path: Any = None, draft_model_path: Any = None) -> None:
        # What leads nowhere fails here, while the old model is still loaded and warm.
        folders = {} if adapter_path is None else {"adapter": Path(adapter_path)}
        for name, path in (("model", model_path), ("draft_model", draft_model_path)):
            if path is not None and not self.is_distributed:
                check_model_folder(str(path))
                folders[name] = utils._download(path)
        self._room.model_gone()
        super()._load(model_path, adapter_path, draft_model_path)
        self._room.model_loaded(self, folders)


class WarmingResponseGenerator(server.ResponseGenerator):  # type: ignore[misc] # as above
    """mlx-lm's response generator, which warms a chunk whenever no live request waits.

    Args:
        provider: A `WatchedModelProvider` on the same room.
        cache: What requests are served from.
        room: Where jobs are left.
    """

    def __init__(self, provider: Any, cache: WarmPromptCache, room: EngineRoom) -> None:
        # The base class starts its thread at once.
        self._room = room
        self._warm_cache = cache
        room.ordinary_bytes = lambda: int(cache.nbytes)
        super().__init__(provider, cache)
        # The thread may wait at the old queue, a tenth of a second at most; no request has come yet.
        self.requests = RequestQueue()
        room.is_queued = self.requests.has_request
        room.desk.on_submit = self.requests.wake

    def _next_request(self, timeout: float | None = None) -> Any:
        self._room.thread_started()
        self._warm_cache.model_key = self.model_provider.model_key
        request = super()._next_request(None)
        if request is None and timeout is not None:
            self._room.pace.idle()
            has_stepped = self._room.desk.step()
            request = super()._next_request(None if has_stepped else timeout)
        self._room.is_waiting = request is not None
        return request

    def _serve_single(self, request: Any, stream: Any) -> None:
        queue, *rest = request
        self._room.is_waiting = False
        super()._serve_single((SteppingQueue(queue, self._room), *rest), stream)

    def _tokenize(self, tokenizer: Any, request: Any, args: Any) -> Any:
        # Each of these would raise outside of any handler later, and end the engine's thread.
        if request.request_type == "text" and not isinstance(request.prompt, str):
            raise ValueError("prompt must be a string")
        if not (isinstance(args.stop_words, list) and all(isinstance(word, str) for word in args.stop_words)):
            raise ValueError("stop must be a string or a list of strings")
        # The server flattens messages in place.
        chat = take_chat(request, args) if request.request_type == "chat" else None
        found = super()._tokenize(tokenizer, request, args)
        if not found[0]:
            raise ValueError("the prompt is empty")
        self._warm_cache.chat = chat
        return found

    def _run_generate(self) -> None:
        death: EngineDiedError | None = None
        try:
            self._generate()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the thread is gone
            self._generation_failed = True
            death = EngineDiedError(_describe(error, is_started=self._room.is_started))
        finally:
            # The base class frees its state on this thread as well: streams belong to threads.
            with contextlib.suppress(AttributeError):
                del self._warm_cache
            self._room.thread_ended(death)

    def stop(self, timeout: float) -> bool:
        """Ask the engine's thread to end, and wait for it; False when it is still running."""
        self._stop = True
        self._generation_thread.join(timeout)
        return not self._generation_thread.is_alive()


def take_chat(request: Any, args: Any) -> Chat:
    """What a client sent, as it was before the server works on it."""
    # It works on the messages only, and a template cannot change what it is given.
    return Chat(copy.deepcopy(request.messages), request.tools, dict(args.chat_template_kwargs or {}))


def _describe(error: BaseException, *, is_started: bool) -> str:
    if is_started:
        # At work, a message may quote what it worked on.
        return f"the engine's thread ended with {type(error).__name__}"
    # While loading a model there are no prompts yet, and the message says what is wrong with the model.
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
