"""The level trigger."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

from tests.patience import PATIENCE
from warmd.trigger import Signal

pytestmark = pytest.mark.anyio


async def wakes(signal: Signal) -> bool:
    """Whether one wait returns without another `set`."""
    with anyio.move_on_after(0.02) as scope:
        await signal.wait()
    return not scope.cancelled_caught


async def test_without_a_set_nobody_is_woken() -> None:
    assert await wakes(Signal()) is False


async def test_a_set_before_the_wait_is_not_lost() -> None:
    signal = Signal()
    signal.set()
    assert await wakes(signal) is True


async def test_any_number_of_sets_wakes_once() -> None:
    signal = Signal()
    for _ in range(1000):
        signal.set()
    assert [await wakes(signal), await wakes(signal)] == [True, False]


async def test_a_set_during_the_wait_wakes_the_waiter() -> None:
    signal = Signal()
    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(signal.wait)
            await anyio.lowlevel.checkpoint()
            signal.set()


async def test_a_cancelled_wait_does_not_use_up_the_set() -> None:
    signal = Signal()
    signal.set()
    with anyio.CancelScope() as scope:
        scope.cancel()
        await signal.wait()
    assert await wakes(signal) is True


def test_a_signal_may_be_made_and_set_before_there_is_an_event_loop() -> None:
    signal = Signal()
    signal.set()
    assert anyio.run(wakes, signal) is True
