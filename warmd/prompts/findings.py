"""From what is wrong, and where in the value, to errors with lines and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warmd.prompts.document import FileError
from warmd.prompts.jsontext import MAX_PROBLEMS, Path, Problem, locate
from warmd.prompts.lines import Lines
from warmd.prompts.vocabulary import show_path


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a value breaks.

    Attributes:
        path: Of the value; of the object, where a key is missing.
        message: What is wrong and what was expected.
        at_key: The key before the value is what is wrong.
        first: Another value, whose line the message ends with.
    """

    path: Path
    message: str
    at_key: bool = False
    first: Path | None = None


def to_errors(text: str, problems: Sequence[Problem], findings: Sequence[Finding]) -> list[FileError]:
    """Give each problem and finding its line and column, in the order of the text.

    At most `MAX_PROBLEMS` are listed; one more error says when there are more.
    """
    lines = Lines(text)
    listed = [(problem.offset, problem.path, problem.message) for problem in problems]
    listed += _located(text, lines, findings)
    listed.sort(key=lambda item: item[0])
    errors = [
        FileError(*lines.position(offset), show_path(path), message)
        for offset, path, message in listed[:MAX_PROBLEMS]
    ]
    # The parser and the rules stop collecting at this number, so at it there may be more.
    if len(listed) >= MAX_PROBLEMS:
        errors.append(FileError(None, None, "$", f"only the first {MAX_PROBLEMS} errors are listed"))
    return errors


def _located(text: str, lines: Lines, findings: Sequence[Finding]) -> list[tuple[int, Path, str]]:
    if not findings:
        return []
    wanted = {finding.path for finding in findings} | {item.first for item in findings if item.first}
    positions = locate(text, wanted)
    return [
        (positions[finding.path][finding.at_key], finding.path, _message(finding, positions, lines))
        for finding in findings
    ]


def _message(finding: Finding, positions: dict[Path, tuple[int, int]], lines: Lines) -> str:
    if finding.first is None:
        return finding.message
    return f"{finding.message} on line {lines.position(positions[finding.first][0])[0]}"
