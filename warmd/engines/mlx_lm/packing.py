"""State as the bytes of a safetensors file, and back. On the engine's thread only.

A file holds, of a run of tokens, the rows of every part that has rows, and the snapshot of the other parts
at the run's end if there is one. Snapshots are taken apart attribute by attribute: what is not an array goes
into the metadata.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from warmd.disk.errors import DamagedError
from warmd.disk.identity import Identity
from warmd.disk.record import FORMAT, METADATA, TOKENS, describe, name_of
from warmd.disk.writer import Piece
from warmd.engines.mlx_lm.layers import Kind, Rows
from warmd.engines.mlx_lm.state import Snapshot
from warmd.radix import Tokens, pack

Json = dict[str, Any]


class UnpackableError(Exception):
    """A cache class keeps something that a file cannot hold.

    Args:
        value: What it is.
    """

    def __init__(self, value: Any) -> None:
        kind = type(value)
        super().__init__(f"its state cannot be written to disk: it holds a {kind.__module__}.{kind.__name__}")


@dataclass(frozen=True, slots=True)
class Form:
    """How a model keeps the state of a prefix, quantised or not.

    Attributes:
        is_quantised: As it is after mlx-lm quantised it.
        kinds: For each part.
        likes: For each part one of the same class, to make others like it.
        rows: For each part of kind ROWS the type and the shape of its arrays, less the tokens.
    """

    is_quantised: bool
    kinds: tuple[Kind, ...]
    likes: tuple[Any, ...]
    rows: tuple[tuple[Any, ...] | None, ...]

    @property
    def has_rows(self) -> bool:
        """True when some part has a row for each token."""
        return Kind.ROWS in self.kinds

    @property
    def is_cuttable(self) -> bool:
        """As in `Layout`."""
        return Kind.SNAPSHOT not in self.kinds


@dataclass(frozen=True, slots=True)
class Source:
    """What every file of a model says.

    Attributes:
        identity: What its state depends on.
        model: For people.
        tokens_per_s: How fast it prefills, or None.
    """

    identity: Identity
    model: str
    tokens_per_s: float | None


@dataclass(frozen=True, slots=True)
class State:
    """State of a run of tokens.

    Attributes:
        start: Tokens before it.
        rows: For each part of kind ROWS those of the run, else None.
        snapshot: As of the run's end, or None.
    """

    start: int
    rows: list[Rows | None]
    snapshot: Snapshot | None


def shapes_of(rows: Rows) -> tuple[Any, ...]:
    """Type and shape of each array, less the tokens."""
    return tuple((array.dtype, (*array.shape[:-2], array.shape[-1])) for array in _flat(rows))


def _flat(rows: Rows) -> list[mx.array]:
    return [array for _, array in tree_flatten(rows)]


# --- to bytes ----------------------------------------------------------------------------------------


def to_piece(tokens: Tokens, state: State, form: Form, source: Source, now: float) -> Piece:
    """The file of some state, which is computed here.

    Args:
        tokens: The whole path, up to the end of the state.
        state: What to write; not changed.
        form: How it is kept.
        source: See there.
        now: Seconds since the epoch.

    Raises:
        UnpackableError: Some part cannot be written.
    """
    arrays: dict[str, mx.array] = {TOKENS: mx.array(list(tokens), mx.int32)}
    for index, rows in enumerate(state.rows):
        if rows is not None and state.start < len(tokens):
            arrays |= {f"rows.{index}.{number}": array for number, array in enumerate(_flat(rows))}
    snapshot = None
    if state.snapshot is not None:
        snapshot = [
            None if part is None else _take_apart(part, f"snapshot.{index}.", arrays)
            for index, part in enumerate(state.snapshot)
        ]
    text = json.dumps(
        {
            "format": FORMAT,
            "start": state.start,
            "is_quantised": form.is_quantised,
            "identity": source.identity,
            "snapshot": snapshot,
            "model": source.model,
            "tokens_per_s": source.tokens_per_s,
        }
    )
    buffer = io.BytesIO()
    mx.save_safetensors(buffer, arrays, {METADATA: text})
    content = buffer.getvalue()
    name = name_of(tokens, state.start, content)
    return Piece(describe(name, text, tokens, now, len(content)), content)


def _take_apart(part: Any, prefix: str, arrays: dict[str, mx.array]) -> Json:
    if not hasattr(part, "__dict__"):
        raise UnpackableError(part)
    values = {key: _encode(value, prefix, arrays) for key, value in vars(part).items()}
    return {"class": type(part).__name__, "values": values}


def _encode(value: Any, prefix: str, arrays: dict[str, mx.array]) -> Json:
    if isinstance(value, mx.array):
        name = f"{prefix}{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if value is None or type(value) in (bool, int, float, str):
        return {"value": value}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_encode(item, prefix, arrays) for item in value]}
    if type(value) is dict and all(type(key) is str for key in value):
        return {"dict": {key: _encode(item, prefix, arrays) for key, item in value.items()}}
    raise UnpackableError(value)


# --- and back ----------------------------------------------------------------------------------------


def from_bytes(name: str, content: bytes, tokens: Tokens, end: int, form: Form) -> State:
    """The state in a file, computed.

    Args:
        name: Of the file, for messages.
        content: All of it.
        tokens: A path.
        end: So far it agrees with the file's.
        form: How the model keeps it.

    Raises:
        DamagedError: It is not state of such a form for this path.
    """
    try:
        loaded: Any = mx.load(io.BytesIO(content), format="safetensors", return_metadata=True)
        arrays, metadata = loaded
        mx.eval(list(arrays.values()))
        said = json.loads(metadata[METADATA])
        path = pack(arrays[TOKENS].tolist())
        start = int(said["start"])
        if said["is_quantised"] != form.is_quantised:
            raise ValueError("it is of another form")
        rows = [_rows(index, arrays, form, len(path) - start) for index in range(len(form.kinds))]
        snapshot = _put_together(said["snapshot"], arrays, form)
    except Exception:  # noqa: BLE001 - whatever a file makes mlx or us raise, it is not to be used
        raise DamagedError(name, "it does not hold such state as this model has") from None
    if path[:end] != tokens[:end] or not start <= end <= len(path):
        raise DamagedError(name, "it holds state of other tokens")
    return State(start, rows, snapshot)


def _rows(index: int, arrays: Mapping[str, mx.array], form: Form, count: int) -> Rows | None:
    expected = form.rows[index]
    if expected is None or count == 0:
        return None
    found = [arrays[f"rows.{index}.{number}"] for number in range(len(expected))]
    shapes = tuple((array.dtype, (*array.shape[:-2], array.shape[-1])) for array in found)
    if shapes != expected or any(array.shape[-2] != count for array in found):
        raise ValueError("rows of another shape")
    half = len(found) // 2
    if half == 1:
        return found[0], found[1]
    return tuple(found[:half]), tuple(found[half:])


def _put_together(said: Any, arrays: Mapping[str, mx.array], form: Form) -> Snapshot | None:
    if said is None:
        return None
    if len(said) != len(form.kinds):
        raise ValueError("another number of parts")
    snapshot: Snapshot = []
    for part, kind, like in zip(said, form.kinds, form.likes, strict=True):
        if (part is not None) != (kind is Kind.SNAPSHOT):
            raise ValueError("another kind of part")
        snapshot.append(None if part is None else _make(part, like, arrays))
    return snapshot


def _make(said: Json, like: Any, arrays: Mapping[str, mx.array]) -> Any:
    """A part of the class of another one: a file never says which class is made."""
    kind: Any = type(like)
    if said["class"] != kind.__name__ or set(said["values"]) != set(vars(like)):
        raise ValueError("another class")
    part = kind.__new__(kind)
    vars(part).update({key: _decode(value, arrays) for key, value in said["values"].items()})
    return part


def _decode(said: Json, arrays: Mapping[str, mx.array]) -> Any:
    ((kind, value),) = said.items()
    if kind == "array":
        return arrays[value]
    if kind == "value":
        return value
    if kind == "dict":
        return {key: _decode(item, arrays) for key, item in value.items()}
    items = [_decode(item, arrays) for item in value]
    return tuple(items) if kind == "tuple" else items
