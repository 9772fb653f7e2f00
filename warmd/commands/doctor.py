"""`warmd doctor`: what keeps warmd from working, or from working well, and what to do about it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from warmd.doctor.examine import examine
from warmd.doctor.finding import Finding
from warmd.text import counted, one_line

DESCRIPTION = """\
Look at everything that warmd depends on, and say what is wrong and how to put it right. Changes nothing.
Exit code 0: no problem. 1: at least one, or a check that could not be made."""

_MARKS = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM", "unknown": "-"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Look, and tell."""
    findings = examine()
    is_ok = not any(finding.state == "problem" for finding in findings)
    if args.json:
        print(json.dumps({"ok": is_ok, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        print("\n".join(report_lines(findings)))
    return 0 if is_ok else 1


def report_lines(findings: Sequence[Finding]) -> Iterator[str]:
    """The report for people."""
    marks, names = (max(map(len, texts)) for texts in (_MARKS.values(), [item.name for item in findings]))
    for finding in findings:
        yield f"{_MARKS[finding.state]:{marks}}  {finding.name:{names}}  {one_line(finding.what)}"
        if finding.fix is not None:
            yield f"{'':{marks}}  {'':{names}}  fix: {one_line(finding.fix)}"
    yield ""
    yield ", ".join(
        counted(sum(finding.state == state for finding in findings), state)
        for state in ("problem", "warning")
    )
