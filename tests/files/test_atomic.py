"""Writing a file whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmd.files.atomic import PRIVATE, write_atomically


def test_an_error_names_the_file_and_not_the_temporary_one(tmp_path: Path) -> None:
    (tmp_path / "x.plist").mkdir()
    for path in (tmp_path / "x.plist", tmp_path / "none" / "y"):
        with pytest.raises(OSError, match=r"directory: '") as caught:
            write_atomically(path, b"", PRIVATE)
        assert (caught.value.filename, caught.value.filename2) == (str(path), None)
    assert [path.name for path in tmp_path.iterdir()] == ["x.plist"]
