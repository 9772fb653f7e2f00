"""What other code logs, warns, raises and prints: lines of JSON without a word of any prompt."""

from __future__ import annotations

import ast
import importlib.util
import io
import json
import logging
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from warmd.events import Level
from warmd.foreign import ForeignHandler, describe_exception, safe_message
from warmd.logs import Log
from warmd.stray import StrayOutput

CANARY = "CANARY-7f3a the secret prompt"

PRELUDE = """
import asyncio, gc, logging, sys, threading, warnings
from warmd.foreign import capture, capture_stderr, adopt_loggers
from warmd.logs import Log
CANARY = "CANARY-7f3a the secret prompt"
log = Log(sys.stderr, level="debug")
capture(log, "debug")
capture_stderr(log)
"""

Line = dict[str, Any]


def lines_of(text: str) -> list[Line]:
    """The objects of a log; fails where a line is no JSON or holds the canary."""
    assert "CANARY" not in text
    return [json.loads(line) for line in text.splitlines()]


def misbehave(code: str, prelude: str = PRELUDE) -> list[Line]:
    """The lines of a process that misbehaves, without time and event, and with line numbers left out."""
    script = prelude + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    lines = lines_of(done.stderr)
    assert {line["event"] for line in lines} <= {"foreign.logged"}
    return [{key: value for key, value in line.items() if key not in ("ts", "event")} for line in lines]


def misbehave_in_a_file(folder: Path, code: str) -> list[Line]:
    """The same, from a file: then the source is at hand."""
    (folder / "library.py").write_text(textwrap.dedent(code))
    return misbehave("import library\n", f"import sys; sys.path.insert(0, {str(folder)!r})\n{PRELUDE}")


def logged(record: logging.LogRecord, level: Level = "debug") -> list[Line]:
    """The lines of one record."""
    stream = io.StringIO()
    ForeignHandler(Log(stream, level=level)).handle(record)
    return [
        {key: value for key, value in line.items() if key != "ts"} for line in lines_of(stream.getvalue())
    ]


def record(
    name: str, message: object, *args: object, level: int = logging.WARNING, **more: Any
) -> logging.LogRecord:
    """A record from a place without source."""
    return logging.LogRecord(name, level, "/lib/thing/code.py", 7, message, args, more.get("exc_info"))


def raised(error: Exception) -> Exception:
    """The error with a traceback, and the canary in a local variable."""
    secret = f"{CANARY} in a local variable"
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - whatever it was given
        assert secret
        return caught


# --- mlx-lm's server, whose every log call is tried ------------------------------------------------------


def server_file() -> Path:
    """The installed mlx-lm's server, without importing it."""
    spec = importlib.util.find_spec("mlx_lm")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).with_name("server.py")


def server_calls() -> list[ast.Call]:
    """Every call of a logging function in mlx-lm's server."""
    return [
        node
        for node in ast.walk(ast.parse(server_file().read_bytes()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "logging"
        and node.func.attr in ("debug", "info", "warning", "error", "exception", "critical")
    ]


def fill_in(node: ast.expr) -> str:
    """The message of a call with the canary in every place that the program fills in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(fill_in(value) for value in node.values)
    return CANARY


def server_record(call: ast.Call) -> logging.LogRecord:
    """The record of a call: through the root logger, already formatted."""
    assert isinstance(call.func, ast.Attribute)
    name = call.func.attr
    error = raised(ValueError(CANARY)) if name == "exception" else None
    level = logging.ERROR if name == "exception" else getattr(logging, name.upper())
    exc_info = (type(error), error, error.__traceback__) if error else None
    return logging.LogRecord(
        "root", level, str(server_file()), call.lineno, fill_in(call.args[0]), (), exc_info
    )


def test_mlx_lms_server_has_log_calls_with_content_in_them() -> None:
    # Otherwise the tests below would pass for want of calls.
    with_content = [call for call in server_calls() if CANARY in fill_in(call.args[0])]
    assert len(with_content) >= 5
    assert len(server_calls()) >= 10


@pytest.mark.parametrize("call", server_calls(), ids=lambda call: f"line {call.lineno}")
def test_no_message_of_mlx_lms_server_shows_what_was_filled_in(call: ast.Call) -> None:
    source = server_record(call)
    # `logged` fails if the canary is in a line.
    lines = logged(source)
    expected = fill_in(call.args[0]).replace(CANARY, "…").strip()
    assert ([] if expected == "…" else [expected]) == [line["message"] for line in lines]
    assert {f"server.py:{call.lineno}"} >= {line["at"] for line in lines}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("Prompt Cache: 3 sequences, 0.12 GB", "Prompt Cache: 3 sequences, 0.12 GB"),
        ("- system: 1 sequences, 0.01 GB", "- system: 1 sequences, 0.01 GB"),
        ("Prompt processing progress: 5/17", "Prompt processing progress: 5/17"),
        (f"Prompt processing progress: 5/17 {CANARY}", "Prompt processing progress: 5/17"),
        (f"- {CANARY}: 1 sequences, 0.01 GB", None),
        (CANARY, None),
        ("", None),
    ],
)
def test_numbers_of_known_messages_pass_and_generated_text_does_not(
    message: str, expected: str | None
) -> None:
    assert expected == safe_message(record("root", message))


def test_what_the_server_says_for_every_request_is_for_debugging() -> None:
    expected = {
        "level": "debug",
        "event": "foreign.logged",
        "logger": "root",
        "message": "Prompt processing progress: 5/17",
        "at": "code.py:7",
    }
    progress = record("root", "Prompt processing progress: 5/17", level=logging.INFO)
    assert [expected] == logged(progress)
    assert logged(progress, "info") == []


# --- other libraries' records ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["warmd", "warmd.http", "filelock", "huggingface_hub.file_download", "transformers.modeling_utils"],
)
def test_a_library_that_sees_no_request_may_say_what_it_likes(name: str) -> None:
    expected = {"level": "warning", "event": "foreign.logged", "logger": name, "message": "took 3 s"}
    assert [expected] == logged(record(name, "took %d s", 3))


@pytest.mark.parametrize(
    "name",
    [
        "root",
        "jinja2",
        "httpx",
        "urllib3.connectionpool",
        "mlx_lm.tool_parsers.x",
        "transformers",
        "transformers.tokenization_utils_base",
        "transformers.models.llama.tokenization_llama",
        "transformers_modules.some.remote.code",
        "warmdish",
    ],
)
def test_of_any_other_library_only_the_place_is_told(name: str) -> None:
    expected = {
        "level": "warning",
        "event": "foreign.logged",
        "logger": name,
        "message": None,
        "at": "code.py:7",
    }
    assert [expected] == logged(record(name, f"bad {CANARY}"))
    assert [expected] == logged(record(name, f"{CANARY} took %d s", 3))
    assert logged(record(name, f"bad {CANARY}", level=logging.INFO)) == []


def test_an_exception_is_told_by_type_and_place() -> None:
    error = raised(KeyError(CANARY))
    expected = {
        "level": "warning",
        "event": "foreign.logged",
        "logger": "root",
        "message": None,
        "at": "code.py:7",
        "exception": "KeyError",
        "where": [f"test_foreign.py:{error.__traceback__.tb_lineno if error.__traceback__ else 0} raised"],
    }
    assert [expected] == logged(record("root", CANARY, exc_info=(KeyError, error, error.__traceback__)))
    # `logger.error(error)`
    assert [expected] == logged(record("root", error))


def test_a_group_of_exceptions_names_what_is_in_it() -> None:
    group = BaseExceptionGroup(CANARY, [ExceptionGroup(CANARY, [raised(OSError(CANARY))])])
    described = describe_exception(group)
    assert described["exception"] == "ExceptionGroup of ExceptionGroup of OSError"
    assert [place.split()[1] for place in described["where"]] == ["raised"]


def test_a_record_that_cannot_be_formatted_is_counted_as_dropped() -> None:
    log = Log(io.StringIO())
    ForeignHandler(log).handle(record("warmd", "%d", "no number"))
    assert log.sink.dropped == 1


# --- a whole process -------------------------------------------------------------------------------------


def test_records_of_a_library_come_with_the_words_of_their_source(tmp_path: Path) -> None:
    lines = misbehave_in_a_file(
        tmp_path,
        """
        import logging
        logger = logging.getLogger("library")
        secret = "CANARY"
        logger.warning("%s is not a tool", secret)
        logger.error(f"cannot parse {secret!r}: " f"line {1}")
        logger.info(secret)
        logger.critical(secret)
        logging.debug("Incoming Request Body: " + secret)
        """,
    )
    assert lines == [
        {"level": "warning", "logger": "library", "message": "… is not a tool", "at": "library.py:5"},
        {"level": "error", "logger": "library", "message": "cannot parse …: line …", "at": "library.py:6"},
        {"level": "error", "logger": "library", "message": None, "at": "library.py:8"},
        {"level": "debug", "logger": "root", "message": "Incoming Request Body: …", "at": "library.py:9"},
    ]


def test_logged_exceptions_show_neither_message_nor_variables(tmp_path: Path) -> None:
    lines = misbehave_in_a_file(
        tmp_path,
        """
        import logging
        def f(messages):
            try:
                {}[messages[0]["content"]]
            except KeyError:
                logging.exception("failed")
        f([{"role": "system", "content": "CANARY"}])
        """,
    )
    expected = {"exception": "KeyError", "where": ["library.py:5 f"], "at": "library.py:7"}
    assert lines == [{"level": "error", "logger": "root", "message": "failed", **expected}]


def test_warnings_show_their_message_only_where_it_speaks_of_code(tmp_path: Path) -> None:
    lines = misbehave_in_a_file(
        tmp_path,
        """
        import warnings
        secret = "CANARY"
        warnings.warn(f"odd text: {secret}")
        warnings.warn("f() is on its way out", FutureWarning)
        warnings.warn(secret, RuntimeWarning)
        """,
    )
    common = {"level": "warning", "logger": "py.warnings"}
    assert lines == [
        {**common, "message": "odd text: …", "at": "library.py:4", "category": "UserWarning"},
        {**common, "message": "f() is on its way out", "at": "library.py:5", "category": "FutureWarning"},
        {**common, "message": None, "at": "library.py:6", "category": "RuntimeWarning"},
    ]


def test_an_uncaught_exception_is_one_line() -> None:
    lines = misbehave("def f(secret): raise ValueError(secret)\nf(CANARY)\n")
    places = [place.split()[1] for line in lines for place in line.pop("where")]
    common = {"level": "error", "logger": "python", "message": "uncaught exception"}
    assert [{**common, "exception": "ValueError"}] == lines
    assert places == ["<module>", "f"]


def test_an_uncaught_exception_of_a_thread_is_one_line() -> None:
    lines = misbehave(
        """
        def f(secret): raise ValueError(secret)
        thread = threading.Thread(target=f, args=(CANARY,), name=CANARY)
        thread.start(); thread.join()
        """
    )
    assert [(line["logger"], line["exception"]) for line in lines] == [("python", "ValueError")]


def test_an_unraisable_exception_is_one_line() -> None:
    lines = misbehave(
        """
        class Bad:
            def __repr__(self): return CANARY
            def __del__(self): raise ValueError(CANARY)
        Bad()
        """
    )
    assert [(line["logger"], line["exception"]) for line in lines] == [("python", "ValueError")]


def test_an_interruption_is_no_error() -> None:
    assert misbehave("raise KeyboardInterrupt") == []


def test_a_task_whose_exception_nobody_asked_for_is_told_without_it() -> None:
    lines = misbehave(
        """
        async def f(secret): raise ValueError(secret)
        async def main():
            task = asyncio.create_task(f(CANARY), name=CANARY)
            await asyncio.sleep(0)
            del task
            gc.collect()
        asyncio.run(main())
        """
    )
    lines = [line for line in lines if line["level"] == "error"]
    assert [(line["logger"], line["message"], line["exception"]) for line in lines] == [
        ("asyncio", "Task exception was never retrieved", "ValueError")
    ]


def test_a_failing_callback_of_a_loop_is_told_without_its_arguments() -> None:
    lines = misbehave(
        """
        def f(secret): raise ValueError(secret)
        async def main():
            asyncio.get_running_loop().call_soon(f, CANARY)
            await asyncio.sleep(0.01)
        asyncio.run(main(), debug=True)
        """
    )
    lines = [line for line in lines if line["level"] == "error"]
    assert [(line["logger"], line["message"], line["exception"]) for line in lines] == [
        ("asyncio", None, "ValueError")
    ]


def test_what_is_printed_to_stderr_is_one_line_that_tells_how_much() -> None:
    lines = misbehave(
        """
        import traceback
        try:
            raise ValueError(CANARY)
        except ValueError:
            traceback.print_exc()
        print(CANARY, file=sys.stderr)
        sys.stderr.writelines([CANARY, CANARY])
        """
    )
    assert lines == [{"level": "warning", "logger": "stderr", "message": None, "characters": 35}]


def test_watchfiles_is_silent_about_changes() -> None:
    lines = misbehave(
        """
        logging.getLogger("watchfiles.main").info("1 change detected")
        logging.getLogger("watchfiles.main").debug("raw changes: %s", CANARY)
        logging.getLogger("watchfiles.main").warning("out of watches")
        """
    )
    assert lines == [{"level": "warning", "logger": "watchfiles.main", "message": "out of watches"}]


def test_handlers_that_libraries_print_with_are_taken_away(tmp_path: Path) -> None:
    lines = misbehave(
        f"""
        class Fancy(logging.StreamHandler): pass
        printing, writing = logging.getLogger("printing"), logging.getLogger("writing")
        printing.handlers = [logging.StreamHandler(), Fancy(sys.stdout)]
        writing.handlers = [logging.FileHandler({str(tmp_path / "own.log")!r})]
        printing.propagate = writing.propagate = False
        adopt_loggers()
        printing.warning(CANARY)
        writing.warning("for its own file")
        """
    )
    assert [line["logger"] for line in lines] == ["printing", "writing"]
    assert (tmp_path / "own.log").read_text() == "for its own file\n"


def test_transformers_and_the_hub_log_to_us_too() -> None:
    lines = misbehave(
        """
        import huggingface_hub.utils.logging as hub, transformers.utils.logging as transformers
        hub.get_logger("huggingface_hub.x"); transformers.get_logger("transformers.x")
        adopt_loggers()
        logging.getLogger("huggingface_hub.x").warning("retrying")
        logging.getLogger("transformers.x").warning(f"unknown token {CANARY}")
        """
    )
    lines = [line for line in lines if line["logger"].endswith(".x")]
    assert [(line["logger"], line["message"]) for line in lines] == [
        ("huggingface_hub.x", "retrying"),
        ("transformers.x", None),
    ]


def test_a_level_leaves_out_what_is_below_it() -> None:
    lines = misbehave(
        """
        capture(log, "warning")
        logging.getLogger("warmd.http").info("GET")
        logging.getLogger("warmd.http").warning("malformed request")
        """
    )
    assert lines == [{"level": "warning", "logger": "warmd.http", "message": "malformed request"}]


def test_the_stand_in_for_stderr_is_a_text_stream_like_any_other(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("w") as original:
        stray = StrayOutput(Log(io.StringIO()), original)
        expected = (original.fileno(), True, False, "utf-8", 3)
        found = (stray.fileno(), stray.writable(), stray.isatty(), stray.encoding, stray.write(" \n "))
    assert expected == found
