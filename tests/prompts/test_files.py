"""Reading a file that a user named never waits and never raises anything foreign."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from warmd.prompts.files import UnreadableError, _read, read_file


def test_a_file_that_has_nothing_to_read_yet_is_an_error() -> None:
    # Such as /proc/kmsg, which only root may open: a regular file by its mode, a pipe by its manners.
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with pytest.raises(UnreadableError, match=r"\Ait cannot be read without waiting\Z"):
            _read(reading, 100)
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("name", ["missing", ".", "pipe", "loop", "a\0b", "\ud800", "x" * 5000, "/dev/null"])
def test_a_refusal_leaves_no_descriptor_open(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    before = os.dup(0)
    os.close(before)
    with pytest.raises(UnreadableError):
        read_file(tmp_path / name, 100)
    after = os.dup(0)
    os.close(after)
    assert before == after
