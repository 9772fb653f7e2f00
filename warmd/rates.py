"""How fast prefilling has been, under launchd and in a terminal: `warmd doctor` compares them.

A warming that goes far slower than the best of them is told of.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warmd.events import Emit, Event
from warmd.files.state import FILL, Kind, read_json, write_json
from warmd.launched import is_under_launchd

FILE_NAME = "rates.json"
FEWEST_TOKENS = 256
"""Shorter prefixes tell more about what surrounds the computing than about its speed."""
KEPT_MODELS = 8
_MARGIN = 1.05

BestRates = dict[str, dict[str, float]]
"""The best tokens per second by model, and by place (`launchd`, `terminal`)."""


class Rates:
    """Keeps the best rates in the state folder. Call it with each event.

    The best and not the last: a warming that gives way to requests is slow for another reason.

    Args:
        folder: The state folder; None where nothing is to be written.
        then: Receives every event as it is.
        environment: Tells who has started this process.
    """

    def __init__(self, folder: Path | None, then: Emit, environment: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._then = then
        environment = os.environ if environment is None else environment
        self._place = "launchd" if is_under_launchd(environment) else "terminal"
        self._model: str | None = None
        self._rates = read_rates(folder) if folder is not None else {}

    def best(self, model: str) -> float | None:
        """The best tokens per second of a model so far, wherever that was; None while there is none."""
        return max(self._rates.get(model, {}).values(), default=None)

    def __call__(self, event: Event) -> None:
        """Take note of what was warmed, and pass the event on."""
        self._then(event)
        if event.name in ("daemon.ready", "engine.model_changed", "engine.reloaded"):
            self._model = event.fields["model"]
        elif event.name == "entry.warmed" and self._model is not None:
            tokens, milliseconds = event.fields["new_tokens"], event.fields["ms"]
            # The time is that of all of it, so where a part came from disk it tells nothing.
            if not event.fields["disk_tokens"] and tokens >= FEWEST_TOKENS and milliseconds > 0:
                self._keep(self._model, 1000 * tokens / milliseconds)

    def _keep(self, model: str, rate: float) -> None:
        rates = self._rates
        before = rates.get(model, {}).get(self._place, 0.0)
        if rate <= before * _MARGIN:
            return
        others = [name for name in rates if name != model][-(KEPT_MODELS - 1) :]
        kept = {name: rates[name] for name in others}
        kept[model] = {**rates.get(model, {}), self._place: round(rate, 3)}
        self._rates = kept
        if self._folder is None:
            return
        try:
            write_json(self._folder / FILE_NAME, kept)
        except OSError:
            # Only the doctor misses it, and it looks at the folder itself.
            return


def read_rates(folder: Path) -> BestRates:
    """What is kept in a state folder; nothing where there is none, and no part of it that makes no sense."""
    return read_json(folder / FILE_NAME, _rates, {})


def _rates(found: Any) -> BestRates:
    return {model: _numbers(rates) for model, rates in found.items() if isinstance(rates, dict)}


def is_rates(found: Any) -> bool:
    """True for what is written in such a file, and nothing beside it."""
    return bool(found) and all(
        rates and set(rates) <= {"launchd", "terminal"} and len(_numbers(rates)) == len(rates)
        for rates in found.values()
    )


def _numbers(rates: dict[str, object]) -> dict[str, float]:
    return {
        place: float(rate)
        for place, rate in rates.items()
        if isinstance(rate, (int, float)) and not isinstance(rate, bool) and math.isfinite(rate) and rate > 0
    }


KIND = Kind(
    is_rates,
    re.compile(rb'\{"(?:[^"\\]|\\.)*": \{"(?:launchd|terminal)": \d'),
    [{FILL: {"launchd": 0.5, "terminal": 0.5}}, {FILL: {"terminal": 0.5, "launchd": 0.5}}],
)
"""What `Rates` writes: it begins with a model's name and a place."""
