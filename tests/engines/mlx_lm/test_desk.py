from collections.abc import Callable

import pytest

from warmd.engines.base import EngineDiedError
from warmd.engines.mlx_lm.desk import Desk, Job


def counting(steps: int, log: list[str], name: str) -> Callable[[], str | None]:
    """A step function that is done after `steps` calls."""

    def step() -> str | None:
        log.append(name)
        return name if log.count(name) == steps else None

    return step


def test_an_empty_desk_has_nothing_to_do() -> None:
    assert Desk().step() is False


def test_jobs_are_done_one_after_the_other_and_quick_ones_in_between() -> None:
    desk, log = Desk(), list[str]()
    first = desk.submit(Job(counting(2, log, "first")))
    second = desk.submit(Job(counting(1, log, "second")))
    assert desk.step() is True
    quick = desk.submit(Job(counting(1, log, "quick")), is_quick=True)
    while desk.step():
        pass
    assert log == ["first", "quick", "first", "second"]
    assert (first.result(), second.result(), quick.result()) == ("first", "second", "quick")


def test_only_quick_jobs_are_done_where_only_those_are_asked_for() -> None:
    desk = Desk()
    desk.submit(Job(lambda: "long"))
    quick = desk.submit(Job(lambda: "quick"), is_quick=True)
    assert [desk.step_quick(), desk.step_quick()] == [True, False]
    assert quick.result() == "quick"


def test_a_cancelled_job_gets_no_further_step() -> None:
    desk, log = Desk(), list[str]()
    cancelled = desk.submit(Job(counting(9, log, "cancelled")))
    desk.step()
    cancelled.cancel()
    assert [desk.step(), desk.step()] == [True, False]
    assert log == ["cancelled"]


def test_an_exception_goes_to_the_waiter_and_not_to_the_thread() -> None:
    def fail() -> str:
        raise ValueError("broken")

    desk = Desk()
    failed, other = desk.submit(Job(fail)), desk.submit(Job(lambda: "fine"))
    while desk.step():
        pass
    assert (type(failed.exception()), other.result()) == (ValueError, "fine")


def test_closing_fails_what_is_queued_and_what_comes_later() -> None:
    desk, death = Desk(), EngineDiedError("gone")
    queued = desk.submit(Job(lambda: "never"))
    desk.close(death)
    assert queued.exception() is death
    with pytest.raises(EngineDiedError, match="gone"):
        desk.submit(Job(lambda: "never"))


def test_failing_all_leaves_the_desk_open() -> None:
    desk = Desk()
    queued = desk.submit(Job(lambda: "never"))
    desk.fail_all(LookupError())
    later = desk.submit(Job(lambda: "later"))
    desk.step()
    assert (type(queued.exception()), later.result()) == (LookupError, "later")
