"""The words of log calls."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmd.literal import literal_message


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("logger.info('all is well')", "all is well"),
        ("logger.info('%s of %s', a, b)", "… of …"),
        ("logger.info('%(name)-8s %5.1f%% of %%s: %d', a)", "… …% of %s: …"),
        ("logger.info('100%s of nothing')", "100%s of nothing"),
        ("logger.info('%s', a)", None),
        ("logger.log(10, 'Using selector: %s', a)", "Using selector: …"),
        ("logger.info(f'{a!r} of {b:>{width}}')", "… of …"),
        ("logger.warning(\n    'one '\n    f'two {a} '\n    'three'\n)", "one two … three"),
        ("logger.error('died: ' + a)", "died: …"),
        ("logger.error('died: %s' % a)", "died: …"),
        ("logger.log(20, f'level {a}')", "level …"),
        ("warnings.warn('careful')", "careful"),
        ("logger.info(a)", None),
        ("logger.info(f'{a}')", None),
        ("logger.info(a + b)", None),
        ("logger.info('\\n'.join(a))", None),
        ("logger.info()", None),
        ("print('not a log call')", None),
        ("broken(", None),
    ],
)
def test_only_what_stands_in_the_source_is_told(tmp_path: Path, call: str, expected: str | None) -> None:
    file = tmp_path / "library.py"
    file.write_text(f"# The first line.\n{call}\n")
    assert expected == literal_message(str(file), 2)


def test_the_innermost_call_at_a_line_counts(tmp_path: Path) -> None:
    file = tmp_path / "library.py"
    file.write_text("scope.log(\n    1,\n    'outer',\n    logger.info('inner'),\n)\n")
    assert [literal_message(str(file), line) for line in (1, 4, 6)] == ["outer", "inner", None]


@pytest.mark.parametrize("file", ["<string>", "/nowhere/at_all.py", "/dev/zero", ""])
def test_without_a_source_nothing_is_told(file: str) -> None:
    assert literal_message(file, 1) is None
