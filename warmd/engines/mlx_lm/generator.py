"""mlx-lm's server classes with warming let in at their seams (listed in `seams`)."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mlx_lm import server, utils

from warmd.engines.base import Chat, EngineDiedError
from warmd.engines.mlx_lm.orders import Worker
from warmd.engines.mlx_lm.prompt_cache import WarmPromptCache
from warmd.engines.mlx_lm.queues import RequestQueue, SharedRequestQueue, SteppingQueue
from warmd.engines.mlx_lm.room import EngineRoom
from warmd.engines.mlx_lm.shared_desk import RankError, SharedDesk
from warmd.engines.model_folder import ModelError, check_model_folder


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


class WatchedModelProvider(server.ModelProvider):  # type: ignore[misc] # mlx-lm has no type information
    """mlx-lm's model provider, which tells when the loaded model changes."""

    def __init__(self, cli_args: Any, *, room: EngineRoom) -> None:
        self._room = room
        super().__init__(cli_args)

    def _load(self, model_path: Any, adapter_path: Any = None, draft_model_path: Any = None) -> None:
        # What leads nowhere fails here, while the old model is still loaded and warm.
        with self._together(model_path):
            folders = self._find(model_path, adapter_path, draft_model_path)
        self._room.model_gone()
        try:
            with self._together(model_path, meets=True):
                super()._load(model_path, adapter_path, draft_model_path)
        except Exception:
            self.reset()
            raise
        self._room.model_loaded(self, folders)

    @contextlib.contextmanager
    def _together(self, model: Any, *, meets: bool = False) -> Iterator[None]:
        """What fails on one rank fails on all: one that goes on alone waits for the others for ever.

        Args:
            model: Its name.
            meets: mlx-lm's ranks wait for each other at the end of it, so that one that fails has to as well.
        """
        problem = None
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever it is, the other ranks wait to hear of it
            problem = error
            if meets:
                self._room.ranks.meet()
        are_fine = self._room.ranks.gather(int(problem is None))
        failed = [rank for rank, (is_fine,) in enumerate(are_fine) if not is_fine]
        if failed:
            raise problem or ModelError(str(model), f"rank {failed[0]} cannot")

    def _find(self, model: Any, adapter: Any, draft_model: Any) -> dict[str, Path]:
        folders = {} if adapter is None else {"adapter": Path(adapter)}
        for name, path in (("model", model), ("draft_model", draft_model)):
            if path is not None:
                check_model_folder(str(path))
                # A rank downloads its own part of the weights only.
                if not self.is_distributed:
                    folders[name] = utils._download(path)
        return folders


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
        self._is_to_stop = False
        if isinstance(room.desk, SharedDesk):
            room.desk.make_job = Worker(room, provider).job
        room.ordinary_bytes = lambda: int(cache.nbytes)
        super().__init__(provider, cache)
        # The thread may wait at the old queue, a tenth of a second at most; no request has come yet.
        self.requests = RequestQueue() if room.ranks.size == 1 else SharedRequestQueue()
        room.is_queued = self.requests.has_request
        room.desk.on_submit = self.requests.wake

    def _next_request(self, timeout: float | None = None) -> Any:
        self._room.thread_started()
        self._warm_cache.model_key = self.model_provider.model_key
        request = super()._next_request(None)
        if request is None and timeout is not None:
            self._room.is_serving = False
            self._room.pace.idle()
            has_stepped = self._room.desk.step()
            request = super()._next_request(None if has_stepped else timeout)
        if self._room.desk.begin_round(stop=self._is_to_stop):
            self._stop = True
        self._room.is_waiting = request is not None
        self._room.is_serving |= request is not None
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
            death = EngineDiedError(self._describe(error))
        finally:
            # The base class frees its state on this thread as well: streams belong to threads.
            with contextlib.suppress(AttributeError):
                del self._warm_cache
            self._room.thread_ended(death)

    def _describe(self, error: BaseException) -> str:
        found = _describe(error, is_started=self._room.is_started)
        if self._room.ranks.size > 1:
            return f"{found}; another rank has gone, most likely: its own lines say why"
        return found

    def stop(self, timeout: float) -> bool:
        """Ask the engine's thread to end, and wait for it; False when it is still running."""
        self._is_to_stop = True
        # Several ranks end together, where they look for requests together.
        self._stop = self._room.ranks.size == 1
        return self.join_for(timeout)

    def join_for(self, timeout: float) -> bool:
        """Wait for the engine's thread to end; False when it is still running after so many seconds."""
        self._generation_thread.join(timeout)
        return not self._generation_thread.is_alive()


def take_chat(request: Any, args: Any) -> Chat:
    """What a client sent, as it was before the server works on it."""
    # It works on the messages only, and a template cannot change what it is given.
    return Chat(copy.deepcopy(request.messages), request.tools, dict(args.chat_template_kwargs or {}))


def _describe(error: BaseException, *, is_started: bool) -> str:
    if is_started:
        if isinstance(error, RankError):
            return f"the engine's thread ended: {error}"
        # At work, a message may quote what it worked on.
        return f"the engine's thread ended with {type(error).__name__}"
    # While loading a model there are no prompts yet, and the message says what is wrong with the model.
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
