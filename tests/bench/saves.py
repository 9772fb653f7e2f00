"""From a save to the plan, and what a save costs in tokens."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.bench.report import Result, Row, summarise
from tests.bench.rig import PREFIX_TOKENS, Setting, Texts, make_entry, replace, save, serve
from tests.serving.process import Json, Server

ENTRIES = 10
SECONDS_TO_PLAN = 0.5

HOW_PLAN = (
    f"{ENTRIES} warm entries of about {PREFIX_TOKENS} tokens; each round changes the last words of one, "
    "saves in place and then by renaming another file over it, and takes the time from the return of "
    "the save to the arrival of the plan.made line. The next save waits until the edited entry is warm."
)
HOW_ADD = (
    f"the same file with entries of about {PREFIX_TOKENS // 4} tokens; new_tokens of the entry.warmed lines "
    f"after adding one entry of about {PREFIX_TOKENS}, and after saves that change the order, the time "
    "stamp, the indentation, the names and the priorities."
)

Save = Callable[[Path, Sequence[Json]], None]


def run_save_to_plan(setting: Setting) -> Result:
    """Measure how soon a save is acted on."""
    texts = Texts(setting.model)
    path = setting.folder("save_to_plan") / "prompts.json"
    entries = _make_entries(texts, PREFIX_TOKENS)
    seconds: dict[str, list[float]] = {"in place": [], "atomic replace": []}
    saves: dict[str, Save] = {"in place": save, "atomic replace": replace}
    with serve(setting, path, entries) as server:
        for number in range(setting.rounds):
            for kind, write in saves.items():
                edited = number % ENTRIES
                entries[edited] = _edit(entries[edited], f"{kind} {number}")
                seconds[kind].append(_time_to_plan(server, path, entries, write))
                server.wait_for("entry.warmed", entry=entries[edited]["name"])
    rows = [
        summarise(f"saved {kind}", found, "s", at_most=SECONDS_TO_PLAN) for kind, found in seconds.items()
    ]
    return Result("save_to_plan", HOW_PLAN, tuple(rows))


def _time_to_plan(server: Server, path: Path, entries: list[Json], write: Save) -> float:
    write(path, entries)
    began = time.perf_counter()
    server.wait_for("plan.made")
    return time.perf_counter() - began


def _make_entries(texts: Texts, tokens: int) -> list[Json]:
    return [make_entry(f"entry {number}", texts.make(tokens, number)) for number in range(ENTRIES)]


def _edit(entry: Json, mark: str) -> Json:
    [message] = entry["messages"]
    content = str(message["content"]).partition("\n")[0]
    return make_entry(entry["name"], f"{content}\nChanged: {mark}")


def run_add_one(setting: Setting) -> Result:
    """Count the tokens that saves make the server prefill."""
    texts = Texts(setting.model)
    path = setting.folder("add_one") / "prompts.json"
    entries = _make_entries(texts, PREFIX_TOKENS // 4)
    with serve(setting, path, entries) as server:
        entries = [*entries[:5], make_entry("added", texts.make(PREFIX_TOKENS, ENTRIES)), *entries[5:]]
        seen = len(server.seen("entry.warmed"))
        save(path, entries)
        added = server.wait_for("entry.warmed", entry="added")
        rows = [
            summarise(
                "one entry added", [_prefilled(server, seen)], "tokens", at_most=float(added["tokens"])
            ),
            *(
                _cosmetic(server, path, what, change)
                for what, change in _cosmetic_saves(path, entries).items()
            ),
        ]
    return Result("add_one", HOW_ADD, tuple(rows))


def _cosmetic_saves(path: Path, entries: list[Json]) -> dict[str, Callable[[], object]]:
    """Saves that change no prefix. Each leaves the file as the next one expects it."""
    reordered = entries[::-1]
    renamed = [{**entry, "name": f"renamed {number}"} for number, entry in enumerate(reordered)]
    ranked = [{**entry, "priority": number} for number, entry in enumerate(renamed)]
    text = json.dumps({"prompts": reordered}, indent=4)
    return {
        "entries reordered": lambda: save(path, reordered),
        "file touched": path.touch,
        "file indented": lambda: path.write_text(text, encoding="utf-8"),
        "entries renamed": lambda: save(path, renamed),
        "priorities changed": lambda: save(path, ranked),
    }


def _cosmetic(server: Server, path: Path, what: str, change: Callable[[], object]) -> Row:
    seen = len(server.seen("entry.warmed"))
    change()
    if what == "file touched":
        # Nothing is logged for it: give it twice the time in which it would be acted on.
        time.sleep(2.0)
    else:
        server.wait_for("plan.made")
        time.sleep(0.5)
    return summarise(what, [_prefilled(server, seen)], "tokens", at_most=0)


def _prefilled(server: Server, since: int) -> float:
    return float(sum(line["new_tokens"] for line in server.seen("entry.warmed")[since:]))
