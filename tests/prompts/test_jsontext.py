"""The JSON parser agrees with the standard one wherever that one is strict, and says where everything is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmd.prompts.jsontext import MAX_DEPTH, MAX_PROBLEMS, Parsed, Problem, locate, parse
from warmd.prompts.lines import Lines

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: st.lists(children) | st.dictionaries(st.text(max_size=5), children),
    max_leaves=20,
)
SOUP = st.text(alphabet="{}[]:,\"\\/#' \t\n\r0123456789.eE+-truefalsnNaIity\ud800\u00e9", max_size=40)


@given(VALUES, st.booleans(), st.sampled_from([None, 0, 2]))
def test_a_valid_text_gives_the_value_that_the_standard_parser_gives(
    value: Any, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert Parsed(json.loads(text), (), is_complete=True) == parse(text)


class RefusedError(Exception):
    """What the standard parser accepts and ours does not."""


def strictly(text: str) -> Any:
    """Parse with the standard parser, made strict."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(items)) != len(items):
            raise RefusedError
        return dict(items)

    def constant(name: str) -> Any:
        raise RefusedError

    value = json.loads(text, object_pairs_hook=pairs, parse_constant=constant)
    if any(word in repr(value) for word in ("inf", "\\ud8")):
        raise RefusedError
    return value


@given(SOUP)
def test_any_text_is_accepted_or_refused_as_by_a_strict_standard_parser(text: str) -> None:
    parsed = parse(text)
    try:
        expected = strictly(text)
    except json.JSONDecodeError:
        assert not parsed.is_complete
        assert parsed.problems
    except RefusedError:
        assert parsed.problems
    else:
        assert Parsed(expected, (), is_complete=True) == parsed


@given(VALUES, st.data())
def test_a_mutilated_text_never_crashes_the_parser(value: Any, data: st.DataObject) -> None:
    text = json.dumps(value)
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    parsed = parse(text[:start] + data.draw(SOUP) + text[end:])
    assert parsed.is_complete or parsed.problems


@pytest.mark.parametrize(
    ("text", "offset", "path", "message"),
    [
        ("", 0, (), "the file is empty; expected a JSON list or object ([] keeps nothing warm)"),
        (" \n", 0, (), "the file is empty; expected a JSON list or object ([] keeps nothing warm)"),
        ("[1] x", 4, (), "expected the end of the file after the JSON value, found a bare word"),
        ("[1] ]", 4, (), "expected the end of the file after the JSON value, found ']'"),
        ("[1, ]", 2, (), "trailing comma: remove it, or add what comes before ']'"),
        ('{"a": 1,\n}', 7, (), "trailing comma: remove it, or add what comes before '}'"),
        ("[1 2]", 3, (), "expected a comma or ']', found a number"),
        ('{"a": 1 "b": 2}', 8, (), "expected a comma or '}', found a string"),
        ('{"a" 1}', 5, ("a",), "expected a colon after the key, found a number"),
        ("[1, // one\n2]", 4, (1,), 'comments are not allowed in JSON; a "$comment" key is'),
        ("# x\n[]", 0, (), 'comments are not allowed in JSON; a "$comment" key is'),
        ("[1 /* x */]", 3, (), 'comments are not allowed in JSON; a "$comment" key is'),
        ('["abc', 1, (0,), "the string has no closing quote"),
        (
            '["a\nb"]',
            3,
            (0,),
            "a string may not contain a raw line break: write \\n, or add the missing quote",
        ),
        (
            '["a\tb"]',
            3,
            (0,),
            "a string may not contain a raw control character: write it as an escape",
        ),
        (
            '["a\\qb"]',
            3,
            (0,),
            "invalid escape in a string: double the backslash, or write \\uXXXX with four hex digits",
        ),
        (
            '["a\\u12G4"]',
            3,
            (0,),
            "invalid escape in a string: double the backslash, or write \\uXXXX with four hex digits",
        ),
        (
            "['a']",
            1,
            (0,),
            "expected a JSON value, found another kind of quote; strings and keys need double quotes",
        ),
        (
            "{a: 1}",
            1,
            (),
            "expected a key in double quotes, found a bare word; strings and keys need double quotes",
        ),
        ("[True]", 1, (0,), "expected a JSON value, found a bare word; JSON writes true"),
        ("[None]", 1, (0,), "expected a JSON value, found a bare word; JSON writes null"),
        (
            "[01]",
            1,
            (0,),
            "expected a JSON value, found a number that JSON does not allow "
            "(no leading zero or plus, digits on both sides of the point)",
        ),
        ('{"a": [1', 8, ("a",), "expected a comma or ']', found the end of the file"),
        ("[\ufeff]", 1, (0,), "expected a JSON value, found something else"),
    ],
)
def test_broken_syntax_is_explained_where_it_breaks(
    text: str, offset: int, path: tuple[str | int, ...], message: str
) -> None:
    assert Parsed(None, (Problem(offset, path, message),), is_complete=False) == parse(text)


def test_what_does_not_break_the_syntax_is_all_found_at_once() -> None:
    text = '{"a": 1, "a": 2, "b": [-Infinity, 1e999], "c": "x\\ud800", "d": NaN}'
    assert [
        Problem(9, ("a",), "this key occurs twice in one object"),
        Problem(23, ("b", 0), "-Infinity is not allowed in JSON"),
        Problem(34, ("b", 1), "the number is too large"),
        Problem(49, ("c",), "half of a surrogate pair (a lone \\ud800-\\udfff), which is no text"),
        Problem(63, ("d",), "NaN is not allowed in JSON"),
    ] == list(parse(text).problems)


def test_problems_before_broken_syntax_are_kept() -> None:
    assert [
        Problem(1, (0,), "NaN is not allowed in JSON"),
        Problem(4, (), "trailing comma: remove it, or add what comes before ']'"),
    ] == list(parse("[NaN,]").problems)


@pytest.mark.parametrize(
    ("escapes", "offset"),
    [
        ("\\ud83d\\ude00", None),
        ("\\ud83d", 1),
        ("\\ude00", 1),
        ("\\ude00\\ud83d", 1),
        ("\\ud83d\\ud83d\\ude00", 1),
        ("\\ud83d\\ude00\\ude00", 13),
        ("ab\\\\ud800", None),
        ("\\ud83d \\ude00", 1),
    ],
)
def test_only_half_a_surrogate_pair_is_refused(escapes: str, offset: int | None) -> None:
    expected = [] if offset is None else [offset]
    assert expected == [problem.offset for problem in parse(f'"{escapes}"').problems]


def test_a_lone_surrogate_in_a_key_is_found() -> None:
    assert [problem.offset for problem in parse('{"\\udc00": 1}').problems] == [2]


def test_an_absurdly_long_integer_is_a_problem_and_the_longest_allowed_is_not() -> None:
    longest = "-" + "9" * 4300
    assert Parsed(int(longest), (), is_complete=True) == parse(longest)
    assert [problem.offset for problem in parse("9" * 4301).problems] == [0]


def test_nesting_is_allowed_down_to_the_limit_and_stops_the_parser_beyond_it() -> None:
    assert parse("[" * MAX_DEPTH + "]" * MAX_DEPTH).problems == ()
    (problem,) = parse('{"a":' * 100_000).problems
    assert Problem(5 * MAX_DEPTH, ("a",) * MAX_DEPTH, "nested deeper than 100 levels") == problem


def test_no_more_problems_are_collected_than_anyone_would_read() -> None:
    parsed = parse("[" + "NaN," * (MAX_PROBLEMS + 5) + "1]")
    assert (len(parsed.problems), parsed.is_complete) == (MAX_PROBLEMS, True)


def test_values_and_their_keys_are_located() -> None:
    text = '{"a": [10, {"b" : "x"}]}'
    paths = [(), ("a",), ("a", 0), ("a", 1, "b"), ("nowhere",)]
    assert locate(text, paths) == {(): (0, 0), ("a",): (6, 1), ("a", 0): (7, 7), ("a", 1, "b"): (18, 12)}


def test_of_equal_keys_the_last_one_is_located_as_it_is_the_one_that_counts() -> None:
    assert locate('{"a": 1, "a": 2}', [("a",)]) == {("a",): (14, 9)}


@pytest.mark.parametrize(
    ("offset", "expected"), [(0, (1, 1)), (1, (1, 2)), (2, (1, 3)), (3, (2, 1)), (4, (3, 1)), (6, (3, 3))]
)
def test_lines_and_columns_count_from_one_and_in_characters(offset: int, expected: tuple[int, int]) -> None:
    assert expected == Lines("é😀\n\nab").position(offset)


@pytest.mark.parametrize("line", ["", "x" * 7, "x" * 100_000])
def test_lines_and_columns_are_right_at_every_size(line: str) -> None:
    text = (line + "\n") * (200_000 // (len(line) + 1)) + "end"
    lines = Lines(text)
    offsets = [0, 1, 65_535, 65_536, 65_537, 131_072, len(text) - 1, len(text)]
    expected = [(text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)) for at in offsets]
    assert [lines.position(at) for at in offsets] == expected
