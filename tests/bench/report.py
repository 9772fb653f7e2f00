"""What a benchmark found: rows, the table made of them, and the same as JSON."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Row:
    """One measured quantity.

    Attributes:
        what: The quantity.
        median: Of the samples; the value itself when there is only one.
        unit: Of median, low, high and p95.
        low: The smallest sample.
        high: The largest sample.
        p95: The 95th percentile, None where there are too few samples for one.
        samples: How many there are.
        bound: What the project promises of it, if anything.
        is_met: Whether that holds; None without a bound.
    """

    what: str
    median: float
    unit: str
    low: float
    high: float
    p95: float | None
    samples: int
    bound: str = ""
    is_met: bool | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """One benchmark: how its numbers came about, and the numbers."""

    name: str
    how: str
    rows: tuple[Row, ...]


def summarise(
    what: str,
    samples: Sequence[float],
    unit: str,
    *,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Row:
    """Summarise samples; a bound, of which there is one at most, applies to their median."""
    ordered, median = sorted(samples), statistics.median(samples)
    # Below twenty samples the 95th percentile is the largest one under another name.
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1] if len(ordered) >= 20 else None
    bound, is_met = "", None
    if at_most is not None:
        bound, is_met = f"<= {_number(at_most)} {unit}", median <= at_most
    elif at_least is not None:
        bound, is_met = f">= {_number(at_least)} {unit}", median >= at_least
    return Row(what, median, unit, ordered[0], ordered[-1], p95, len(ordered), bound, is_met)


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Sample over sample of the same round."""
    return [one / other for one, other in zip(over, under, strict=True)]


_HEADER = ("benchmark", "what", "median", "unit", "min", "p95", "max", "n", "promise", "")


def format_table(title: str, results: Sequence[Result], footer: Sequence[str]) -> str:
    """One aligned table of plain text, followed by how each number was obtained."""
    cells = [_HEADER, *(_cells(result.name, row) for result in results for row in result.rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADER))]
    rows = [_join(line, widths) for line in cells]
    rows.insert(1, "  ".join("-" * width for width in widths))
    notes = [f"{result.name}: {result.how}" for result in results]
    return "\n".join([title, "", *(row.rstrip() for row in rows), "", *notes, *footer])


def as_json(title: str, results: Sequence[Result], footer: Sequence[str]) -> dict[str, Any]:
    """The same for programs."""
    return {"model": title, "environment": list(footer), "results": [asdict(result) for result in results]}


def _cells(name: str, row: Row) -> tuple[str, ...]:
    several = row.samples > 1
    verdict = {True: "ok", False: "MISSED", None: ""}[row.is_met]
    return (
        name,
        row.what,
        _number(row.median),
        row.unit,
        _number(row.low) if several else "",
        _number(row.p95) if row.p95 is not None else "",
        _number(row.high) if several else "",
        str(row.samples),
        row.bound,
        verdict,
    )


def _join(line: tuple[str, ...], widths: list[int]) -> str:
    aligned = (_align(text, width, i) for i, (text, width) in enumerate(zip(line, widths, strict=True)))
    return "  ".join(aligned)


def _align(text: str, width: int, column: int) -> str:
    return text.rjust(width) if column in (2, 4, 5, 6, 7) else text.ljust(width)


def _number(value: float) -> str:
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"
