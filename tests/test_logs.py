"""Lines of the log: strict JSON for machines, pretty for people, harmless when the sink fails."""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.events import Level, make_event
from warmd.logs import LEVELS, Log, plain


class FailingStream(io.StringIO):
    """A text stream that fails as often as there are errors left."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.failures = list(errors)

    def write(self, text: str) -> int:
        """Fail or write."""
        if self.failures:
            raise self.failures.pop(0)
        return super().write(text)


class MeanFile(io.RawIOBase):
    """A raw file that takes a few bytes at a time, or what a script says: bytes to take, or an error."""

    def __init__(self, *script: int | OSError | None) -> None:
        self.script = list(script)
        self.data = b""

    def writable(self) -> bool:
        """True."""
        return True

    def write(self, data: Any) -> int | None:
        """Take a part of the data."""
        step = self.script.pop(0) if self.script else 7
        if isinstance(step, OSError):
            raise step
        self.data += bytes(data[: step or 0])
        return None if step is None else min(step, len(data))


class Unprintable:
    """Raises whenever one asks for its text."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


def refuse(constant: str) -> None:
    """NaN and Infinity are not JSON."""
    raise AssertionError(constant)


def parse(text: str) -> list[dict[str, Any]]:
    """The objects of strict JSON lines, without their time."""
    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    return [{key: value for key, value in line.items() if key != "ts"} for line in lines]


def written(level: Level, /, **fields: Any) -> str:
    """What one event looks like."""
    stream = io.StringIO()
    Log(stream, level="debug").write("x.happened", level, **fields)
    return stream.getvalue()


def stream_on(raw: io.RawIOBase) -> io.TextIOWrapper:
    """Text over a raw file, as stderr is."""
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", line_buffering=True)


def test_a_line_begins_with_time_level_and_event() -> None:
    line = written("warning", b=1, a=2)
    assert re.fullmatch(
        r'\{"ts": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", "level": "warning", "event": "x.happened", '
        r'"b": 1, "a": 2\}\n',
        line,
    )


def test_the_time_is_now_in_utc() -> None:
    stamp = datetime.fromisoformat(json.loads(written("info"))["ts"])
    assert stamp.utcoffset() == timedelta(0)
    assert abs(datetime.now(UTC) - stamp) < timedelta(minutes=1)


def test_events_of_the_catalogue_are_written_with_all_their_fields() -> None:
    stream = io.StringIO()
    Log(stream)(make_event("entry.lost", entry="a", tokens=3, cause="gone"))
    assert parse(stream.getvalue()) == [
        {"level": "warning", "event": "entry.lost", "entry": "a", "tokens": 3, "cause": "gone"},
    ]


def test_lower_levels_are_left_out() -> None:
    stream = io.StringIO()
    log = Log(stream, level="warning")
    for level in LEVELS:
        log.write("x.happened", level)
    assert [line["level"] for line in parse(stream.getvalue())] == ["warning", "error"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (math.nan, None),
        (-math.inf, None),
        ([1.5, {"a": math.inf}], [1.5, {"a": None}]),
        ((1, True, None), [1, True, None]),
        ({1: "a", None: "b"}, {"1": "a", "None": "b"}),
        (Path("/a/b"), "/a/b"),
        ("line\nbreak\u2028é", "line\nbreak\u2028é"),
        ("lone \udc80", "lone ?"),
        (b"secret", "<bytes>"),
        ({"secret"}, "<set>"),
        (ValueError("secret"), "<ValueError>"),
        (Unprintable(), "<Unprintable>"),
        (1 << 64, "<int>"),
        (1 + 2j, "<complex>"),
    ],
)
def test_a_value_becomes_what_json_can_hold(value: Any, expected: Any) -> None:
    assert parse(written("info", value=value)) == [
        {"level": "info", "event": "x.happened", "value": expected},
    ]


def test_a_value_that_holds_itself_is_cut_off() -> None:
    value: list[Any] = []
    value.append(value)
    assert parse(written("info", value=value))[0]["value"] == [[[[[[[["<list>"]]]]]]]]


@given(st.recursive(st.floats() | st.text() | st.integers() | st.binary(), lambda x: st.lists(x, max_size=3)))
def test_every_value_is_one_line_of_strict_json(value: Any) -> None:
    line = written("info", value=value)
    assert line.count("\n") == 1
    assert line.isascii()
    assert parse(line)[0]["value"] == plain(value)


def test_fields_cannot_pose_as_those_of_every_line() -> None:
    fields: dict[str, Any] = {
        "ts": 1,
        "level": 2,
        "event": 3,
        "exc_info": True,
        "stack_info": True,
        "stack": "s",
    }
    try:
        raise ValueError("secret")
    except ValueError:
        line = parse(written("info", **fields))
    expected = {"ts_": 1, "level_": 2, "event_": 3, "exc_info_": True, "stack_info_": True, "stack_": "s"}
    assert line == [{"level": "info", "event": "x.happened", **expected}]


@pytest.mark.parametrize(
    "error", [BrokenPipeError(), OSError(errno.ENOSPC, "full"), ValueError("I/O operation on closed file")]
)
def test_a_failing_sink_hurts_nobody_and_its_losses_are_reported_once_it_works(error: Exception) -> None:
    stream = FailingStream(error, error)
    log = Log(stream)
    for number in range(4):
        log.write("x.happened", "info", number=number)
    assert log.sink.dropped == 2
    assert parse(stream.getvalue()) == [
        {"level": "info", "event": "x.happened", "number": 2},
        {"level": "warning", "event": "log.dropped", "lines": 2},
        {"level": "info", "event": "x.happened", "number": 3},
    ]


def test_a_closed_stream_hurts_nobody() -> None:
    stream = io.StringIO()
    log = Log(stream)
    stream.close()
    log.write("x.happened", "info")
    assert log.sink.dropped == 1


def test_a_line_is_whole_even_if_the_file_takes_it_in_parts() -> None:
    raw = MeanFile()
    log = Log(stream_on(raw))
    log.write("x.happened", "info", text="é" * 40)
    assert parse(raw.data.decode()) == [{"level": "info", "event": "x.happened", "text": "é" * 40}]


def test_after_half_a_line_the_next_one_begins_on_its_own() -> None:
    raw = MeanFile(5, OSError(errno.ENOSPC, "full"), None)
    log = Log(stream_on(raw))
    for number in range(3):
        log.write("x.happened", "info", number=number)
    torn, *whole = raw.data.decode().splitlines()
    assert torn == '{"ts"'
    assert parse("\n".join(whole)) == [
        {"level": "info", "event": "x.happened", "number": 2},
        {"level": "warning", "event": "log.dropped", "lines": 2},
    ]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a full disk to order is there on Linux only")
def test_a_full_disk_does_not_change_the_exit_status() -> None:
    code = (
        "import sys; from warmd.logs import Log; log = Log(sys.stderr)\n"
        "for _ in range(9): log.write('x.happened', 'info', text='x' * 3000)\n"
        "sys.exit(log.sink.dropped)"
    )
    with Path("/dev/full").open("w") as full:
        status = subprocess.run([sys.executable, "-c", code], stderr=full, check=False).returncode
    assert status == 9


def test_a_broken_pipe_does_not_change_the_exit_status() -> None:
    code = (
        "import sys; from warmd.logs import Log; log = Log(sys.stderr); log.write('x.happened', 'info')\n"
        "sys.exit(log.sink.dropped)"
    )
    read, write = os.pipe()
    os.close(read)
    status = subprocess.run([sys.executable, "-c", code], stderr=write, check=False).returncode
    os.close(write)
    assert status == 1


def test_a_reader_that_does_not_read_stops_nobody_and_hears_of_its_losses() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, encoding="utf-8") as reader, os.fdopen(writing, "w", encoding="utf-8") as stream:
        log = Log(stream)
        while not log.sink.dropped:
            log.write("test.written", "info", text="x" * 9000)
        received = [json.loads(reader.readline())]
        log.write("test.written", "info", text="y")
        log.write("test.written", "info", text="z")
        while received[-1]["event"] != "log.dropped":
            line = reader.readline()
            received += [json.loads(line)] if line.endswith("}\n") else []
    assert received[-1]["lines"] == log.sink.dropped


def test_lines_of_many_threads_do_not_mix() -> None:
    raw = MeanFile()
    log = Log(stream_on(raw))

    def work(number: int) -> None:
        for _ in range(20):
            log.write("x.happened", "info", text=str(number) * 50)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    texts = sorted(line["text"] for line in parse(raw.data.decode()))
    assert texts == sorted(str(number) * 50 for number in range(8) for _ in range(20))


def pretty(monkeypatch: pytest.MonkeyPatch, name: str, **fields: Any) -> str:
    """A pretty event without colours, its time checked and cut off."""
    monkeypatch.setenv("NO_COLOR", "1")
    stream = io.StringIO()
    Log(stream, pretty=True).write(name, "warning", **fields)
    match = re.fullmatch(r"\d\d:\d\d:\d\d (.*)\n", stream.getvalue(), re.DOTALL)
    assert match is not None
    return match[1]


def test_a_pretty_line_is_time_level_event_and_fields_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    line = pretty(monkeypatch, "entry.failed", entry="a b", state="failed", retry_in_s=None, reason="x")
    assert line == "[warning  ] entry.failed       entry='a b' state=failed reason=x"


def test_people_are_not_shown_zeros_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = {"entry": "a", "reused_tokens": 0, "source": "prefill", "disk_tokens": 0, "disk_bytes": 0}
    assert pretty(monkeypatch, "entry.warmed", **fields).endswith("entry=a reused_tokens=0 source=prefill")
    assert "disk_tokens=5 disk_bytes=7" in pretty(
        monkeypatch, "entry.warmed", entry="a", disk_tokens=5, disk_bytes=7
    )
    assert "disk_tokens=0" in pretty(monkeypatch, "x.happened", disk_tokens=0)


def test_pretty_errors_of_the_file_stand_below_as_compilers_print_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = [
        {"line": 3, "column": 14, "path": "$[0]", "message": "unknown key \x1b[31m"},
        {"line": None, "column": None, "path": "/p.json", "message": "missing"},
    ]
    expected = [
        "[warning  ] prompts.rejected   kept_generation=1",
        "    3:14  $[0]  unknown key \\x1b[31m",
        "    /p.json  missing",
    ]
    line = pretty(monkeypatch, "prompts.rejected", sha256=None, kept_generation=1, errors=errors)
    assert expected == line.splitlines()


def test_a_pretty_exception_stays_in_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    line = pretty(monkeypatch, "x.happened", exception="ValueError", where=["a.py:3 f"])
    assert line == "[warning  ] x.happened         where=['a.py:3 f'] raised=ValueError"


def test_no_escape_sequence_reaches_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    line = pretty(monkeypatch, "x.happened", a="\x1b]0;title\x07", b="two\nlines", c=["\x1b[2J"])
    assert [char for char in line if not char.isprintable()] == []


def test_a_pretty_line_has_colours_where_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = io.StringIO()
    Log(stream, pretty=True).write("x.happened", "info")
    assert "\x1b[" in stream.getvalue()


def test_a_terminal_that_lacks_a_character_gets_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    log = Log(stream, pretty=True)
    log.write("x.happened", "info", entry="é")
    assert log.sink.dropped == 0
    assert raw.getvalue().endswith(b"entry=\\xe9\n")
