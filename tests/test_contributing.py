"""The map of the modules has each of them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")


def test_every_module_is_on_the_map_once() -> None:
    table = GUIDE.partition("| module |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1] for row in table.splitlines()[2:]]
    named = [name for cell in rows for name in re.findall(r"`(\w+)`", cell)]
    there = {
        path.stem
        for path in (ROOT / "warmd").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").is_file()
    }
    assert sorted(named) == sorted(there - {"__init__"})
