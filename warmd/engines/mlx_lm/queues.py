"""Queues of mlx-lm's server that let other work in."""

from __future__ import annotations

import pickle
from queue import Queue
from typing import Any

from mlx_lm import server

from warmd.engines.mlx_lm.room import EngineRoom

ROUND = 25
"""Tokens of a request that is served alone, after which ranks look whether there is something to do."""


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


class SharedRequestQueue(RequestQueue):
    """The same of several ranks: what cannot be passed on to the others is refused before it is taken."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Queue a request, on the thread of its client.

        Raises:
            ValueError: It is nested too deeply. The engine's thread would end, and the job with it.
        """
        if item is not self._WAKE:
            try:
                pickle.dumps(item[1:])
            except RecursionError:
                raise ValueError("the request is nested too deeply") from None
        super().put(item, block, timeout)


class SteppingQueue:
    """Takes the tokens of a request that is served alone, and lets a little warming in between.

    Args:
        queue: Where they go.
        room: Has the warming.
    """

    def __init__(self, queue: Any, room: EngineRoom) -> None:
        self._queue = queue
        self._room = room
        self._tokens = 0

    def put(self, item: Any) -> None:
        """Pass it on first: nobody waits for warming."""
        if isinstance(item, server.GenerationContext) and self._room.ranks.size > 1:
            # mlx-lm's server would stop on this rank only, and the others wait for it for ever.
            item.stop = lambda: None
        self._queue.put(item)
        if isinstance(item, server.Response):
            self._tokens += 1
            if self._tokens % ROUND == 0:
                # Nobody looks for requests meanwhile.
                self._room.desk.begin_round()
            self._room.step_while_serving()
