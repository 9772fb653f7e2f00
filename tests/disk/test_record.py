"""What a file says of itself, and what is not believed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.disk.made import make_piece, put
from warmd.disk.errors import DamagedError
from warmd.disk.files import Files
from warmd.disk.record import Record, check_content, is_record_name, key_of, name_of, read_record, shortened
from warmd.engines.base import Prefix
from warmd.radix import pack


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A folder that does not exist yet."""
    return Files(tmp_path / "kv")


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (0, {}),
        (2, {"is_quantised": True, "tokens_per_s": 512.5}),
        (4, {"has_snapshot": True}),
    ],
)
def test_a_record_is_read_as_it_was_written(files: Files, start: int, more: dict[str, Any]) -> None:
    piece = make_piece([5, 6, 7, 8], start, **more)
    record = put(files, piece)
    assert record == read_record(files.folder / record.name, 1e9)
    assert (record.start, record.end, list(record.own)) == (start, 4, [5, 6, 7, 8][start:])
    assert record.above == key_of(pack([5, 6, 7, 8][:start]))


def test_paths_are_named_as_prefixes_are() -> None:
    assert Prefix((5, 6)).key == key_of(pack([5, 6]))


def test_a_name_says_where_a_file_belongs_and_what_is_in_it() -> None:
    piece = make_piece([5, 6, 7], 1)
    assert is_record_name(piece.record.name)
    assert piece.record.name == name_of(pack([5, 6, 7]), 1, piece.content)
    assert not any(map(is_record_name, ("writer.lock", "x.safetensors", f".writing-{piece.record.name}")))


def test_a_name_may_say_how_much_of_a_file_is_to_be_used(files: Files) -> None:
    record = put(files, make_piece([5, 6, 7, 8], 1, has_snapshot=True))
    rest = shortened(record, 3)
    assert is_record_name(rest.name)
    assert files.renamed(record.name, rest.name)
    assert not files.renamed(record.name, rest.name)
    assert rest == read_record(files.folder / rest.name, 1e9)
    assert (rest.start, rest.end, list(rest.own), rest.has_snapshot) == (1, 3, [6, 7], False)
    assert (rest.above, rest.nbytes) == (record.above, record.nbytes)
    for end in (0, 1, 4, 5, 10**17):
        (files.folder / rest.name).rename(files.folder / shortened(record, end).name)
        with pytest.raises(DamagedError):
            read_record(files.folder / shortened(record, end).name, 1e9)
        (files.folder / shortened(record, end).name).rename(files.folder / rest.name)


@pytest.mark.parametrize("spelt", ["0{0}-{1}-{2}", "{0}-0{1}-{2}", "{0}-{1}-0{2}", "{0}-{1}-0", "{0}-0-{2}"])
@pytest.mark.parametrize("start", [0, 1])
def test_a_number_that_is_not_written_as_we_do_makes_another_name(
    spelt: str, start: int, files: Files
) -> None:
    key, *numbers = shortened(put(files, make_piece([5, 6, 7, 8], start)), 3).name.split("-")
    first, last, crc, end = numbers
    spelt_first, spelt_last, spelt_end = spelt.format(first, last, end.removesuffix(".safetensors")).split(
        "-"
    )
    name = f"{key}-{spelt_first}-{spelt_last}-{crc}-{spelt_end}.safetensors"
    (kept,) = files.listed()
    (files.folder / kept.name).rename(files.folder / name)
    assert (is_record_name(name), files.listed()) == (False, [])
    with pytest.raises(DamagedError):
        read_record(files.folder / name, 1e9)


def test_every_flipped_bit_shows(files: Files) -> None:
    piece = make_piece([5, 6, 7], size=8)
    for place in range(len(piece.content)):
        for bit in (0, 7):
            content = bytearray(piece.content)
            content[place] ^= 1 << bit
            with pytest.raises(DamagedError):
                check_content(piece.record.name, bytes(content))
    check_content(piece.record.name, piece.content)


def test_a_file_of_any_other_length_is_not_believed(files: Files) -> None:
    piece = make_piece([5, 6, 7], size=8)
    path = files.folder / put(files, piece).name
    for length in range(len(piece.content)):
        path.write_bytes(piece.content[:length])
        with pytest.raises(DamagedError):
            read_record(path, 0.0)
    path.write_bytes(piece.content + b"x")
    with pytest.raises(DamagedError):
        read_record(path, 0.0)


def test_no_header_makes_anything_but_a_complaint(files: Files) -> None:
    """Whatever somebody left under such a name: it must not end a thread."""
    piece = make_piece([5, 6, 7], size=8)
    path = files.folder / put(files, piece).name
    for place in range(len(piece.content)):
        for value in (0, 0x22, 0x7B, 0x39, 0xFF):
            content = bytearray(piece.content)
            content[place] = value
            path.write_bytes(content)
            with contextlib.suppress(DamagedError):
                assert isinstance(read_record(path, 0.0), Record)
