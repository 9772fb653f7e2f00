"""What `warmd explain` prints."""

from __future__ import annotations

from typing import Any

import pytest

from warmd.commands.explain import ago, report_lines

Json = dict[str, Any]
NOW = 1_750_000_000.0


def miss(**more: Any) -> Json:
    excerpt = {"before": "Today is ", "entry": "Monday.\n", "request": "Tuesday.\x1b[31m", "offset": 9}
    return {
        "entry": "coder",
        "counted_for": None,
        "at": NOW - 12,
        "matched": 812,
        "prefix_tokens": 3214,
        "request_tokens": 4000,
        "place": "messages[0] (system)",
        "cause": "date",
        "message": "a date or time differs",
        "excerpt": excerpt,
        "also": [],
        "since": None,
        "fits_now": False,
        **more,
    }


def entry(**more: Any) -> Json:
    known = {"name": "shell", "state": "warm", "tokens": 1200, "reason": None}
    return {**known, "hits": 3, "tokens_saved": 9, "last_hit_at": NOW - 300, "near_misses": 0, **more}


def printed(*misses: Json, entries: tuple[Json, ...] = ()) -> str:
    return "\n".join(report_lines({"near_misses": list(misses), "entries": list(entries)}, NOW))


def test_a_near_miss() -> None:
    assert printed(miss(), entries=(entry(),)) == (
        "coder: near miss 12 s ago, 812 of its 3,214 tokens matched\n"
        "  messages[0] (system): a date or time differs\n"
        "    both     Today is␠\n"
        "    entry    Monday.␊\n"
        "    request  Tuesday.␛[31m\n"
        "\n"
        "shell: warm, 1,200 tokens, 3 hits, the last 5 min ago"
    )


def test_what_was_cut_and_what_is_empty() -> None:
    excerpt = {"before": "x" * 60, "entry": "  y " + "z" * 56, "request": "", "offset": 61}
    text = printed(miss(excerpt=excerpt))
    assert f"    both     …{'x' * 60}\n    entry    ␠␠y {'z' * 56}…\n    request  (nothing)\n" in text
    blank = {"before": "", "entry": "   ", "request": " ", "offset": 0}
    assert "    both     (nothing)\n    entry    ␠␠␠\n    request  ␠\n" in printed(miss(excerpt=blank))


def test_the_same_miss_again_is_told_once_and_what_else_differs_too() -> None:
    also = [{"place": "tools", "cause": "tools_missing", "message": "the request has no tools"}]
    text = printed(miss(at=NOW - 50), miss(also=also, since="edited", fits_now=True), miss(at=NOW - 2))
    assert text.count("near miss") == 2
    assert "coder: near miss 2 s ago, 812 of its 3,214 tokens matched (2 such requests remembered)" in text
    assert "  also tools: the request has no tools\n" in text
    assert "  the entry has been edited since: as it is now the request would fit\n" in text


def test_a_near_miss_that_was_counted_for_another_entry_says_so() -> None:
    (first, *_) = printed(miss(counted_for="shell")).splitlines()
    assert first == "coder: near miss 12 s ago, 812 of its 3,214 tokens matched, counted for shell"


def test_without_near_misses_it_tells_what_is_known() -> None:
    failed = entry(state="failed", reason="no such\nfile", tokens=None, hits=1, last_hit_at=None)
    assert printed(entries=(failed,)) == "no near miss is remembered\nshell: failed (no such␊file), 1 hit"
    assert printed() == "no near miss is remembered"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.4, "0 s"), (-5, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (180_000, "2 d")],
)
def test_ago(seconds: float, shown: str) -> None:
    assert ago(NOW - seconds, NOW) == f"{shown} ago"


def test_what_is_not_known_of_requests_is_said() -> None:
    unseen = entry(hits=None, tokens_saved=None, near_misses=None, last_hit_at=None)
    assert list(report_lines({"near_misses": None, "entries": [unseen]}, NOW)) == [
        "requests are not seen here: whether one missed is not known",
        "shell: warm, 1,200 tokens",
    ]
