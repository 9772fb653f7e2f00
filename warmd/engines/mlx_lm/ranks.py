"""The ranks of one job: processes, on one machine or on several, that run one model together (`mlx.launch`).

Every rank holds its own shard of the weights and of the state, and does the same in the same order: a step
of the model waits for all of them. Rank 0 takes the requests, watches and plans, and says what is done next;
what depends on one rank alone, such as its memory, is agreed on before it decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import mlx.core as mx
from mlx_lm import server

T = TypeVar("T")


class Ranks:
    """This process among the ranks of its job. One process alone is rank 0 of 1, and talks to nobody.

    Every method is a meeting: each rank has to call it, in the same place. On one thread at a time.

    Args:
        size: How many there are.
        rank: Which one this is.
    """

    # mlx-lm's server shares its requests with it: objects are pickled, and summed up with nothing.
    _share_object = server.ResponseGenerator._share_object

    def __init__(self, size: int = 1, rank: int = 0) -> None:
        self.size = size
        self.leads = rank == 0
        self.rank = rank
        self._is_distributed = size > 1
        self._rank = rank

    @classmethod
    def join(cls) -> Ranks:
        """The ranks that `mlx.launch` has started, or this process alone.

        Raises:
            RuntimeError: The others cannot be reached.
        """
        group = mx.distributed.init()
        return cls(group.size(), group.rank())

    def share(self, item: T) -> T:
        """What rank 0 has; the others' own is ignored."""
        shared: T = self._share_object(item)
        return shared

    def gather(self, *numbers: int) -> list[tuple[int, ...]]:
        """Everybody's numbers, by rank."""
        if self.size == 1:
            return [numbers]
        rows: Any = mx.distributed.all_gather(mx.array([numbers], mx.int64)).tolist()
        return [tuple(row) for row in rows]

    def meet(self) -> None:
        """Wait for the others, as `mlx_lm.utils.sharded_load` does once a rank has its part of a model."""
        if self.size > 1:
            mx.eval(mx.distributed.all_sum(mx.array(1.0), stream=mx.cpu))

    def agree(self, number: int) -> bool:
        """True when everybody has the same one."""
        return len(set(self.gather(number))) == 1


@dataclass(frozen=True, slots=True)
class Shard:
    """One rank's part of the loaded model's state, in numbers.

    Attributes:
        is_keepable: 1 when the model runs there, and the state can be kept.
        is_cuttable: 1 when any beginning of the state is the state of that beginning.
        kind: Names what it costs: equal where that is equal.
    """

    is_keepable: int
    is_cuttable: int
    kind: int


def problem_of(shards: Sequence[Shard]) -> str | None:
    """Why nothing can be kept warm for a model whose ranks hold these, in one line, or None.

    Where state cannot be cut, each rank keeps snapshots as far as there is room for their bytes: with other
    bytes it would keep others.
    """
    for rank, shard in enumerate(shards):
        if not shard.is_keepable:
            return f"its state cannot be kept warm: rank {rank} cannot run the model or keep its part"
    if len(set(shards)) > 1 and not all(shard.is_cuttable for shard in shards):
        return "its state cannot be kept warm: it cannot be cut, and its ranks hold layers of different kinds"
    return None
