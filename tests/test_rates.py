"""The rates that the doctor compares."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from warmd.events import Event, make_event
from warmd.rates import FILE_NAME, Rates, read_rates


def ready(model: str = "m") -> Event:
    return make_event("daemon.ready", model=model, entries=1, url=None)


def warmed(tokens: int, milliseconds: int, from_disk: int = 0) -> Event:
    return make_event(
        "entry.warmed",
        entry="a",
        tokens=tokens,
        new_tokens=tokens,
        reused_tokens=0,
        source="prefill",
        ms=milliseconds,
        kv_bytes=1,
        disk_tokens=from_disk,
        disk_bytes=from_disk,
        disk_ms=0,
    )


def keep(folder: Path, *events: Event, under_launchd: bool = False) -> list[Event]:
    passed: list[Event] = []
    rates = Rates(folder, passed.append, {"XPC_SERVICE_NAME": "dev.warmd" if under_launchd else "0"})
    for event in events:
        rates(event)
    return passed


def test_the_best_rate_of_each_place_and_model_is_kept(tmp_path: Path) -> None:
    events = [ready(), warmed(1000, 2000), warmed(1000, 1000), warmed(1000, 4000)]
    assert keep(tmp_path, *events) == events
    keep(tmp_path, ready(), warmed(1000, 500), under_launchd=True)
    keep(tmp_path, ready("n"), warmed(512, 1000))
    assert read_rates(tmp_path) == {"n": {"terminal": 512.0}, "m": {"terminal": 1000.0, "launchd": 2000.0}}
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("event", [warmed(255, 1), warmed(1000, 0), warmed(1000, 10, 1)])
def test_what_says_nothing_about_speed_is_left_out(event: Event, tmp_path: Path) -> None:
    keep(tmp_path, ready(), event)
    assert list(tmp_path.iterdir()) == []


def test_before_a_model_is_known_nothing_is_kept(tmp_path: Path) -> None:
    keep(tmp_path, warmed(1000, 10))
    assert read_rates(tmp_path) == {}


def test_a_model_that_was_unloaded_and_is_there_anew_is_known_again(tmp_path: Path) -> None:
    unloaded = make_event("engine.model_changed", model=None, previous="m")
    reloaded = make_event("engine.reloaded", model="m")
    keep(tmp_path, ready(), unloaded, reloaded, warmed(1000, 1000))
    assert read_rates(tmp_path) == {"m": {"terminal": 1000.0}}


def test_only_some_models_are_remembered(tmp_path: Path) -> None:
    for number in range(20):
        keep(tmp_path, ready(f"m{number}"), warmed(1000, 10))
    assert list(read_rates(tmp_path)) == [f"m{number}" for number in range(12, 20)]


def test_a_folder_that_cannot_be_written_to_hurts_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    events = [ready(), warmed(1000, 10)]
    assert keep(tmp_path / "missing", *events) == events
    assert keep(tmp_path / "file", *events) == events


@pytest.mark.parametrize("content", ["", "[", "[1]", '{"m": 1}', '{"m": {"launchd": "x", "terminal": -1}}'])
def test_a_file_that_makes_no_sense_is_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    assert all(rates == {} for rates in read_rates(tmp_path).values())


def test_the_best_of_a_model_is_that_of_any_place_also_of_earlier_runs(tmp_path: Path) -> None:
    keep(tmp_path, ready(), warmed(1000, 500), under_launchd=True)
    rates = Rates(tmp_path, lambda event: None, {})
    assert (rates.best("m"), rates.best("n")) == (2000.0, None)
    for event in (ready(), warmed(1000, 1000), ready("n"), warmed(1000, 100)):
        rates(event)
    assert (rates.best("m"), rates.best("n")) == (2000.0, 10_000.0)


def test_without_a_folder_the_best_is_that_of_this_run() -> None:
    rates = Rates(None, lambda event: None, {})
    for event in (ready(), warmed(1000, 1000)):
        rates(event)
    assert rates.best("m") == 1000.0
