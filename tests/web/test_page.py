"""The page in a real browser, over a daemon that is made up."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.web.chromium import Browser, Tab, browsing, needs_chromium
from tests.web.stage import DOCUMENT, ENTRIES, MEMORY, MIB, Stage, make_statistics, rejected, staged
from warmd.events import make_event
from warmd.prompts.document import FileError
from warmd.status import EntryStatus
from warmd.suggestions import Suggestion

pytestmark = needs_chromium

ROWS = "document.querySelectorAll('#entries tr').length"

CONTRASTS = """
(() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([red, green, blue]) => [red, green, blue]
    .map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = parse(getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] === 1) return color;
    }
    return [255, 255, 255];
  };
  const low = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest("script, style")) continue;
    const [one, two] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
    if (ratio < 4.5) low.push([walker.currentNode.data.trim(), ratio]);
  }
  return low;
})()
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged() as found:
        yield found


def opened(browser: Browser, stage: Stage, **how: int) -> Tab:
    """The page, once it shows something."""
    tab = Tab(browser, width=how.get("width", 1200), dark=bool(how.get("dark")))
    tab.open(f"{stage.address}/warmd")
    tab.wait_until("!document.getElementById('content').hidden")
    return tab


def test_it_shows_what_there_is(browser: Browser, stage: Stage) -> None:
    tab = opened(browser, stage)
    text = tab.text()
    for shown in (
        "Qwen3-8B-4bit",
        "Warming, 1 of 6 warm",
        "746,364",
        "801,004",
        "10.5 GB of 16.8 GB",
        "prompts.json, generation 7",
        "needs 6.2 GB, 5.77 GB are available",
        "43 %, 210/s, 25 s left",
        "40,002 tokens · 1,530 of 39,870 matched · 0 cached",
    ):
        assert shown in text
    assert tab.evaluate("document.title") == "Warming, 1 of 6 warm · warmd"
    assert (
        tab.evaluate("document.querySelector('.progress:not([hidden])').getAttribute('aria-valuenow')")
        == "43"
    )
    assert tab.complaints() == []
    assert {address.removeprefix(stage.address) for address in tab.requests() if "://" in address} == {
        "/warmd",
        "/warmd/status",
    }


def test_it_follows(browser: Browser, stage: Stage) -> None:
    tab = opened(browser, stage)
    tab.evaluate("document.querySelector('#entries tr').dataset.kept = 'yes'")
    warm = replace(ENTRIES[1], state="warm", done_tokens=9_310, kv_bytes=640 * MIB)
    stage.recent(make_event("entry.warming", entry="newest", tokens=77))
    stage.statistics = make_statistics(entries=(warm, ENTRIES[0]))
    tab.wait_until(f"{ROWS} === 2")
    assert tab.evaluate("document.querySelector('#entries tr .name').innerText") == "shell"
    assert tab.evaluate("document.querySelectorAll('#entries tr')[1].dataset.kept") == "yes"
    assert tab.evaluate("document.getElementById('overall').innerText") == "All warm"
    assert tab.evaluate("document.querySelector('#events li').innerText").endswith("newest 77 tokens")
    stage.statistics = make_statistics(entries=())
    tab.wait_until("!document.getElementById('no-entries').hidden")
    assert tab.complaints() == []


def test_it_stops_while_nobody_sees_it(browser: Browser, stage: Stage) -> None:
    tab = opened(browser, stage)
    tab.evaluate(
        "(() => { const plain = fetch; window.asked = 0;"
        " window.fetch = (...each) => { window.asked += 1; return plain(...each); }; })()"
    )
    tab.wait_until("asked > 1")
    # Whether it asks at once.
    hide = (
        "(() => {{ const before = asked;"
        " Object.defineProperty(document, 'hidden', {{value: {}, configurable: true}});"
        " document.dispatchEvent(new Event('visibilitychange')); return asked - before; }})()"
    )
    assert tab.evaluate(hide.format("true")) == 0
    before = tab.evaluate("asked")
    # Timers of one page go off in order: those that were set before have gone off by then, were there any.
    tab.evaluate("new Promise((done) => setTimeout(done, 2500))")
    assert tab.evaluate("asked") == before
    assert tab.evaluate(hide.format("false")) == 1
    looks = stage.looks
    stage.statistics = make_statistics(entries=())
    tab.wait_until("!document.getElementById('no-entries').hidden")
    assert stage.looks > looks


def test_names_are_text_and_nothing_else(browser: Browser, stage: Stage) -> None:
    evil = "<img src=x onerror=alert(1)>"
    error = FileError(1, 2, "$", f"{evil}<script>alert(1)</script>")
    entries = (
        EntryStatus(evil, "failed", reason=evil),
        EntryStatus("</template><b>x</b>", "warming", tokens=0),
    )
    stage.statistics = make_statistics(entries=entries, model=f"/m/{evil}", document=rejected(error))
    stage.recent(make_event("entry.warming", entry=evil, tokens=1))
    tab = opened(browser, stage)
    assert tab.evaluate("document.querySelectorAll('main img, header img, main script, main b').length") == 0
    assert tab.text().count(evil) >= 4
    assert "prompts.json is not valid; generation 7 stays in force" in tab.text()
    assert tab.complaints() == []


def test_numbers_that_are_not_there_break_nothing(browser: Browser, stage: Stage) -> None:
    document = replace(DOCUMENT, sha256=None, seen=0, accepted=0, applied=0, accepted_at=None)
    stage.statistics = make_statistics(memory=None, model=None, document=document, entries=())
    tab = opened(browser, stage)
    assert "Loading the model" in tab.text()
    unread = replace(MEMORY, error="cannot read the memory: no", headroom=0, active=0, cache=0, pressure=0)
    stage.statistics = make_statistics(
        memory=unread, paused=True, suggestions=(Suggestion("ab" * 32, 2_048, 5),), entries=ENTRIES[:1]
    )
    tab.wait_until("!document.getElementById('memory').hidden")
    for shown in ("Paused", "cannot read the memory: no", "2,048 tokens, prefilled 5 times"):
        assert shown in tab.text()
    unseen = tuple(entry.without_requests() for entry in ENTRIES)
    stage.statistics = make_statistics(live=None, suggestions=None, entries=unseen)
    tab.wait_until("document.getElementById('total-hits').innerText === '–'")
    assert tab.evaluate("document.getElementById('total-saved').innerText") == "–"
    assert tab.complaints() == []


def test_a_server_that_goes_away_and_comes_back(browser: Browser, stage: Stage) -> None:
    tab = opened(browser, stage)
    stage.is_stuck = True
    tab.wait_until("!document.getElementById('offline').hidden")
    assert tab.evaluate("document.getElementById('overall').innerText") == "Not reachable"
    stage.is_stuck = False
    tab.wait_until("document.getElementById('offline').hidden")
    # The browser itself notes that an answer was no success.
    assert all(found["entry"]["source"] == "network" for found in tab.complaints())


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1200])
def test_it_fits_every_width_and_can_be_read(browser: Browser, stage: Stage, width: int, dark: bool) -> None:
    entries = (*ENTRIES, EntryStatus("a-name-without-any-place-to-break-" * 5, "stored_not_served"))
    error = FileError(1, 2, "$", "x" * 300)
    stage.statistics = make_statistics(entries=entries, model="/m/" + "y" * 200, document=rejected(error))
    tab = opened(browser, stage, width=width, dark=dark)
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert tab.evaluate(CONTRASTS) == []
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(23, 21, 15)") is dark
    picture = tab.screenshot()
    assert struct.unpack(">I", picture[16:20])[0] == width


def test_assistive_technology_gets_a_table_and_values(browser: Browser, stage: Stage) -> None:
    for width in (390, 1200):
        tab = opened(browser, stage, width=width)
        tree = tab.call("Accessibility.getFullAXTree")["nodes"]
        roles = [node["role"]["value"] for node in tree if not node.get("ignored")]
        assert (roles.count("table"), roles.count("rowheader"), roles.count("columnheader")) == (1, 6, 8)
        named = {
            (node["role"]["value"], node.get("name", {}).get("value"))
            for node in tree
            if not node.get("ignored")
        }
        assert {("meter", "Memory"), ("progressbar", "Warming shell"), ("heading", "Entries")} <= named
