"""The LaunchAgent as a value: built, checked against our rules, compared with what is installed."""

from __future__ import annotations

import contextlib
import plistlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from xml.parsers.expat import ExpatError

from warmd.errors import WarmdError
from warmd.launchd.flags import flag_value, has_flag, is_host, port_of
from warmd.launchd.nested import is_shallow
from warmd.launchd.packaged import read_packaged
from warmd.launchd.places import LABEL, is_versioned
from warmd.launchd.variables import PATH_VARIABLES, is_relative
from warmd.prompts.files import UnreadableError, read_file

Plist = dict[str, Any]
Session = Literal["Aqua", "Background"]

_SYSTEM_PATH = ("/opt/homebrew/bin", "/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin")
_SERVE = "serve"
LARGEST = 1 << 20
"""Bytes of a plist."""
# plistlib lets the errors of what it is made of through: of dates and numbers, of XML.
_BROKEN = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError, ExpatError)
_NO_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold, or, as a carriage return, gives back as another."""

_EXPECTED: Mapping[str, Any] = {
    "RunAtLoad": True,
    "KeepAlive": {"SuccessfulExit": False},
    "ThrottleInterval": 30,
    "ExitTimeOut": 30,
    "ProcessType": "Interactive",
    "SoftResourceLimits": {"NumberOfFiles": 4096},
    "Umask": 0o077,
}
_FORBIDDEN = {
    "WatchPaths": "a save would start a second process",
    "LowPriorityIO": "loading the model would be throttled",
    "LowPriorityBackgroundIO": "loading the model would be throttled",
    "Nice": "the engine would be throttled",
    "StartInterval": "warmd is started once and stays",
    "UserName": "a LaunchAgent runs as its owner",
}
_PATH_KEYS = ("StandardOutPath", "StandardErrorPath", "WorkingDirectory")
_PATH_FLAGS = ("--prompts", "--adapter-path")


class UnreadablePlistError(WarmdError):
    """The installed file is none that we could have written."""

    def __init__(self, path: Path, reason: str) -> None:
        self.reason = f"{path}: {reason}"
        super().__init__(f"{self.reason}; `warmd uninstall` removes it, `warmd install --model M` writes it")


@dataclass(frozen=True, slots=True)
class Agent:
    """What differs from one installation to another.

    Attributes:
        python: Absolute path of the interpreter.
        arguments: Of `warmd serve`.
        home: The user's home folder.
        logs: The folder for launchd's own copy of the output.
        environment: Variables besides those that the template has.
        session: `Background` where there is no graphical login: launchd then takes the job into `user/UID`
            only with this word.
    """

    python: Path
    arguments: tuple[str, ...]
    home: Path
    logs: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    session: Session = "Aqua"


def build_plist(agent: Agent) -> Plist:
    """Fill the template in."""
    path = ":".join(dict.fromkeys([str(agent.python.parent), *_SYSTEM_PATH]))
    words = {
        "@PYTHON@": str(agent.python),
        "@HOME@": str(agent.home),
        "@PATH@": path,
        "@LOGS@": str(agent.logs),
    }
    plist = _fill(plistlib.loads(read_packaged(f"{LABEL}.plist")), words)
    arguments = plist["ProgramArguments"]
    place = arguments.index("@ARGUMENTS@")
    arguments[place : place + 1] = agent.arguments
    plist["EnvironmentVariables"] |= agent.environment
    if agent.session != "Aqua":
        plist["LimitLoadToSessionType"] = agent.session
    return dict(plist)


def _fill(value: Any, words: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _fill(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, words) for item in value]
    if isinstance(value, str):
        for word, text in words.items():
            value = value.replace(word, text)
    return value


def to_bytes(plist: Plist) -> bytes:
    """As XML, in the template's order of keys."""
    return plistlib.dumps(plist, sort_keys=False)


def read_plist(path: Path) -> Plist:
    """An installed file.

    Raises:
        FileNotFoundError: There is none.
        UnreadablePlistError: It cannot be read, is no plist, or one without a command line.
    """
    # Also tells a file that is not there from one that cannot be read.
    with contextlib.suppress(PermissionError, NotADirectoryError):
        path.lstat()
    try:
        data = read_file(path, LARGEST, "a file of ours can have")
    except UnreadableError as error:
        raise UnreadablePlistError(path, str(error)) from None
    try:
        found = plistlib.loads(data)
    # plistlib lets the errors of what it is made of through: of dates and numbers, of XML.
    except _BROKEN as error:
        raise UnreadablePlistError(path, f"not a property list ({type(error).__name__})") from None
    if not is_shallow(found):
        raise UnreadablePlistError(path, "nested too deeply")
    if not isinstance(found, dict) or not _is_command(found.get("ProgramArguments")):
        raise UnreadablePlistError(path, "expected ProgramArguments, a list of texts")
    return found


def _is_command(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


def serve_arguments(plist: Plist) -> tuple[str, ...]:
    """What an installed file gives to `warmd serve`; nothing if it runs something else."""
    arguments: list[str] = plist["ProgramArguments"]
    if _SERVE not in arguments:
        return ()
    place = arguments.index(_SERVE)
    is_ours = place > 0 and arguments[place - 1].rpartition("/")[2] == "warmd"
    return tuple(arguments[place + 1 :]) if is_ours else ()


def variables_of(plist: Plist) -> dict[str, str]:
    """The variables of an installed file; nothing of it that no process can have."""
    found = plist.get("EnvironmentVariables")
    texts = {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
    return {
        name: value
        for name, value in texts.items()
        if name and "=" not in name and "\0" not in f"{name}{value}"
    }


# --- rules ----------------------------------------------------------------------------------------


def find_faults(plist: Plist, path: Path) -> tuple[str, ...]:
    """Everything in a plist that is against our rules, a line each."""
    return (
        *_label_faults(plist, path),
        *(
            f"{key}: expected {expected!r}, found {plist.get(key)!r}"
            for key, expected in _EXPECTED.items()
            if not _is_same(plist.get(key), expected)
        ),
        *(f"{key}: {reason}" for key, reason in _FORBIDDEN.items() if key in plist),
        *_command_faults(plist.get("ProgramArguments")),
        *_environment_faults(plist.get("EnvironmentVariables")),
        *(
            f"{key}: expected an absolute path, found {plist[key]!r}"
            for key in _PATH_KEYS
            if key in plist and not _is_absolute(plist[key])
        ),
        *(
            f"{key}: {text!r} has characters that a property list cannot hold"
            for key, value in plist.items()
            for text in _texts(value)
            if _NO_XML.search(text)
        ),
    )


def _texts(value: Any) -> Iterator[str]:
    """Every text in a value, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _is_same(found: Any, expected: Any) -> bool:
    """Also of the same types: launchd does not take 1 for true, as Python does."""
    if type(found) is not type(expected):
        return False
    if isinstance(found, dict):
        return found.keys() == expected.keys() and all(_is_same(found[key], expected[key]) for key in found)
    if isinstance(found, list):
        return len(found) == len(expected) and all(map(_is_same, found, expected))
    return bool(found == expected)


def _label_faults(plist: Plist, path: Path) -> Iterator[str]:
    if plist.get("Label") != path.stem:
        yield f"Label: expected the file's name, {path.stem!r}, found {plist.get('Label')!r}"


def _command_faults(arguments: Any) -> Iterator[str]:
    if not _is_command(arguments):
        yield "ProgramArguments: expected a list of texts"
        return
    if not _is_absolute(arguments[0]):
        yield f"ProgramArguments: expected the interpreter's absolute path, found {arguments[0]!r}"
    elif is_versioned(arguments[0]):
        yield f"ProgramArguments: {arguments[0]} goes with Homebrew's next upgrade"
    # launchd has no shell: nobody expands ~, and the folder is /.
    for argument in arguments[1:]:
        if argument.startswith(("~", "./", "../")):
            yield f"ProgramArguments: expected an absolute path, found {argument!r}"
    for flag in _PATH_FLAGS:
        value = flag_value(arguments, flag)
        if value is not None and not _is_absolute(value) and not value.startswith(("~", "./", "../")):
            yield f"ProgramArguments: {flag}: expected an absolute path, found {value!r}"
    for flag, is_right, expected in (("--port", port_of, "1 to 65535"), ("--host", is_host, "a host")):
        value = flag_value(arguments, flag)
        if has_flag(arguments, flag) and not (value and is_right(value)):
            yield f"ProgramArguments: {flag}: expected {expected}, found {value!r}"


def _environment_faults(variables: Any) -> Iterator[str]:
    if not isinstance(variables, dict):
        yield "EnvironmentVariables: expected HOME, PATH and PYTHONUNBUFFERED"
        return
    if not _is_absolute(variables.get("HOME")):
        yield f"EnvironmentVariables: HOME: expected an absolute path, found {variables.get('HOME')!r}"
    if not all(_is_absolute(part) for part in str(variables.get("PATH", "")).split(":")):
        yield f"EnvironmentVariables: PATH: expected absolute paths, found {variables.get('PATH')!r}"
    if variables.get("PYTHONUNBUFFERED") != "1":
        yield "EnvironmentVariables: PYTHONUNBUFFERED: expected '1'"
    for name, value in variables.items():
        if not isinstance(value, str):
            yield f"EnvironmentVariables: {name}: expected text, found {value!r}"
        elif name in PATH_VARIABLES and is_relative(name, value):
            yield f"EnvironmentVariables: {name}: expected an absolute path, found {value!r}"


def _is_absolute(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("/")


def differing_keys(installed: Plist, wanted: Plist) -> tuple[str, ...]:
    """Keys in which an installed plist is not what would be written today."""
    keys = dict.fromkeys([*wanted, *installed])
    return tuple(key for key in keys if not _is_same(installed.get(key), wanted.get(key)))
