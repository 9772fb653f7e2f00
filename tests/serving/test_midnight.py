"""A template that prints the date, in a real server whose local midnight is a moment away."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.serving.process import cached, serving, write
from tests.toys import CHATML, make_model

RULES = "You are a careful reviewer of code. " * 40
DATED = "{{- 'Today Date: ' + strftime_now('%d %b %Y') + '\\n' }}" + CHATML
TIMED = "{{- 'It is ' + strftime_now('%H:%M:%S') + '\\n' }}" + CHATML


def zone_in_which_midnight_comes_in(seconds: int) -> str:
    """A TZ in POSIX form, whose offsets go to the second."""
    utc = int(time.time()) % 86_400
    # POSIX counts westward: local = UTC - offset.
    west = (utc + seconds) % 86_400
    sign = ""
    if west > 43_200:
        west, sign = 86_400 - west, "-"
    return f"XXX{sign}{west // 3600:02d}:{west // 60 % 60:02d}:{west % 60:02d}"


@pytest.mark.parametrize("seconds", [3, 40_000, 80_000])
def test_the_zone_is_right(seconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", zone_in_which_midnight_comes_in(seconds))
    time.tzset()
    try:
        now = datetime.now()
    finally:
        monkeypatch.undo()
        time.tzset()
    left = 86_400 - (now - now.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()
    assert abs(left - seconds) <= 2


def test_the_first_request_of_the_day_starts_warm(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", template=DATED)
    write(tmp_path / "prompts.json", [{"name": "rules", "messages": [{"role": "system", "content": RULES}]}])
    messages = [{"role": "system", "content": RULES}, {"role": "user", "content": "12 or 123?"}]
    # A machine may be too slow to start before the day is over.
    for patience in (15, 30, 60, 120):
        zone = zone_in_which_midnight_comes_in(patience)
        midnight = time.time() + patience
        with serving(model, tmp_path / "prompts.json", environment={"TZ": zone}) as server:
            first = server.wait_for("entry.warmed")
            before = cached(server.chat(messages))
            if time.time() < midnight - 1:
                assert before >= first["tokens"]
                second = server.wait_for("entry.warmed")
                assert time.time() > midnight - 1
                assert cached(server.chat(messages)) >= second["tokens"]
                assert server.seen("entry.lost") == []
                assert [line["generation"] for line in server.seen("plan.made")] == [1, 1]
                return
    pytest.fail("the server never started before midnight")


def test_a_template_that_prints_the_time_is_volatile_and_served_as_before(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", template=TIMED)
    write(tmp_path / "prompts.json", [{"name": "rules", "messages": [{"role": "system", "content": RULES}]}])
    with serving(model, tmp_path / "prompts.json") as server:
        found = server.wait_for("entry.volatile")
        assert found["entry"] == "rules"
        assert "'%H:%M:%S' (line 1 of the chat template)" in found["reason"]
        assert 0 < found["position"] < 20
        answer = server.chat([{"role": "system", "content": RULES}, {"role": "user", "content": "hi"}])
        assert cached(answer) < 20
        assert server.seen("entry.warming") == []
        assert not [line for line in server.lines if "careful reviewer" in line]
