"""The first difference between two JSON values, in the order in which they would be written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Place = tuple[str | int, ...]
Kind = Literal["value", "only_entry", "only_request", "order"]


@dataclass(frozen=True, slots=True)
class Split:
    """Where two values part.

    Attributes:
        path: The keys and indexes that lead there.
        kind: How: another value, something that only one has, or the same things in another order.
        entry: The entry's value there; None where it has none.
        request: The request's.
    """

    path: Place
    kind: Kind
    entry: Any = field(repr=False)
    request: Any = field(repr=False)


def written(value: Any) -> str:
    """A value as templates write it."""
    # Whatever arrived as JSON can be written; `default` is for what a host passes that did not.
    return json.dumps(value, ensure_ascii=False, default=repr)


def canonical(value: Any) -> str:
    """The same for values that differ only in the order of keys."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=repr)


def show(path: Place) -> str:
    """A path for people, such as ``tools[3].function.description``."""
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shown.removeprefix(".")


def first_split(entry: Any, request: Any, path: Place = ()) -> Split | None:
    """The first difference, or None when both are written alike."""
    if isinstance(entry, dict) and isinstance(request, dict):
        return _objects(entry, request, path)
    if isinstance(entry, list | tuple) and isinstance(request, list | tuple):
        return _lists(entry, request, path)
    # As written, not as compared: 1 == 1.0 == True.
    return None if written(entry) == written(request) else Split(path, "value", entry, request)


def _objects(entry: dict[str, Any], request: dict[str, Any], path: Place) -> Split | None:
    for left, right in zip(entry, request, strict=False):
        if left == right:
            split = first_split(entry[left], request[left], (*path, left))
            if split is not None:
                return split
        elif left not in request:
            return Split((*path, left), "only_entry", entry[left], None)
        elif right not in entry:
            return Split((*path, right), "only_request", None, request[right])
        else:
            return Split(path, "order", entry, request)
    for key in list(entry)[len(request) :]:
        return Split((*path, key), "only_entry", entry[key], None)
    for key in list(request)[len(entry) :]:
        return Split((*path, key), "only_request", None, request[key])
    return None


def _lists(entry: Sequence[Any], request: Sequence[Any], path: Place) -> Split | None:
    keys = [canonical(item) for item in entry], [canonical(item) for item in request]
    if keys[0] != keys[1] and sorted(keys[0]) == sorted(keys[1]):
        return Split(path, "order", entry, request)
    for index, (left, right) in enumerate(zip(entry, request, strict=False)):
        split = first_split(left, right, (*path, index))
        if split is not None:
            return split
    if len(entry) > len(request):
        return Split((*path, len(request)), "only_entry", entry[len(request)], None)
    if len(request) > len(entry):
        return Split((*path, len(entry)), "only_request", None, request[len(entry)])
    return None
