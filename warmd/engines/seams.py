"""Checks that places in other libraries where we hook in are still there. Each engine lists its own."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

Seams = tuple[tuple[str, tuple[str, ...]], ...]
"""``module:name.within.it`` with the parameters that it must have; none where it is no function."""


def find_missing(seams: Seams) -> list[str]:
    """Those that are not where we expect them, or have other parameters, as they are written in Python."""
    return [problem for seam, parameters in seams if (problem := _problem(seam, parameters))]


def _problem(seam: str, parameters: tuple[str, ...]) -> str | None:
    module_name, _, path = seam.partition(":")
    name = f"{module_name}.{path}"
    try:
        found: Any = importlib.import_module(module_name)
        for attribute in path.split("."):
            found = getattr(found, attribute)
        # Some names are no functions: of those only that they are there is asked.
        names = list(inspect.signature(found).parameters) if parameters else []
    except (ImportError, AttributeError):
        return name
    unexpected = [parameter for parameter in parameters if parameter not in names]
    return f"{name}({', '.join(unexpected)})" if unexpected else None
