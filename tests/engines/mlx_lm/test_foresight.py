"""What a plan foretells is what is then prefilled, on real tiny models of every architecture."""

from __future__ import annotations

from functools import cache

import pytest

from tests.architectures import CONFIGS, build
from tests.engines.mlx_lm.warming import ids, make_provider, warm
from warmd.engines.base import Foreseen, Prefix
from warmd.engines.mlx_lm.foresight import foresight
from warmd.engines.mlx_lm.measure import measure, trace
from warmd.engines.mlx_lm.prefill import Prefill
from warmd.engines.mlx_lm.store import Checkpoints, WarmStore
from warmd.memory.cost import Cost

BASE = tuple(ids(61))
MORE = (
    BASE[:50] + tuple(ids(20, seed=2)),
    BASE[:12] + tuple(ids(20, seed=3)),
    BASE[:50] + tuple(ids(9, seed=4)),
    BASE[:40],
    BASE + tuple(ids(9, seed=5)),
    BASE[:12] + tuple(ids(19, seed=3)),
)


@cache
def cost_of(name: str) -> Cost:
    """As a server measures it."""
    provider = make_provider(build(name))
    return measure(trace(provider.model), 9, provider.cli_args)


class Case:
    """A store, and a model to fill it."""

    def __init__(self, name: str) -> None:
        self.store = WarmStore(Checkpoints(16))
        self.provider = make_provider(build(name))
        self.cost = cost_of(name)

    def declare(self, *prefixes: tuple[int, ...]) -> None:
        self.store.declare([Prefix(tokens) for tokens in prefixes])

    def foresee(self, *prefixes: tuple[int, ...]) -> list[Foreseen]:
        return foresight(self.store, None, self.cost).foresee([Prefix(tokens) for tokens in prefixes])

    def warm(self, *prefixes: tuple[int, ...]) -> list[Foreseen]:
        """What it took."""
        return [Foreseen(warm(self.store, self.provider, tokens).new_tokens) for tokens in prefixes]


@pytest.fixture
def case(name: str) -> Case:
    """Of one architecture."""
    return Case(name)


every_architecture = pytest.mark.parametrize("name", CONFIGS)


@every_architecture
def test_what_is_foretold_is_what_is_prefilled(case: Case) -> None:
    case.declare(BASE)
    assert case.foresee(BASE) == case.warm(BASE) == [Foreseen(61)]
    foreseen = case.foresee(*MORE)
    case.declare(BASE, *MORE)
    assert case.warm(*MORE) == foreseen
    # From the last checkpoint before the edit, where not from the edit itself.
    assert foreseen[0] == Foreseen(20 if case.cost.is_cuttable else 22)
    assert case.foresee(BASE, *MORE) == [Foreseen(0)] * 7


@every_architecture
def test_what_a_stopped_warming_has_done_is_not_foretold_again(case: Case) -> None:
    case.declare(BASE, MORE[0])
    prefill = Prefill(Prefix(BASE), case.store, case.provider, 9, lambda done: None)
    for _ in range(3):
        prefill.step()
    prefill.abandon()
    foreseen = case.foresee(BASE, MORE[0])
    assert foreseen == [Foreseen(61 - 25), Foreseen(20)]
    assert case.warm(BASE, MORE[0]) == foreseen
