"""Places in JSON strings."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from warmd.lint.place import offset_in_string


@given(before=st.text(max_size=40), ascii_only=st.booleans())
def test_a_character_is_found_behind_whatever_was_escaped(before: str, ascii_only: bool) -> None:
    text = "  " + json.dumps(before + "\uffff!", ensure_ascii=ascii_only)
    mark = "\\uffff" if ascii_only else "\uffff"
    assert offset_in_string(text, 2, len(before)) == text.rindex(mark)
