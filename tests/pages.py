"""What is written for people: the README, docs/ and what else they link to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text("utf-8")
    for path in sorted([*ROOT.glob("*.md"), *DOCS.glob("*.md"), ROOT / "launchd" / "README.md"])
}
"""By path from the root."""
FOR_USERS = {name: text for name, text in PAGES.items() if name == "README.md" or name.startswith("docs/")}

_FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_REFERENCE = re.compile(r"^\[[^\]]+\]: *(\S+)", re.MULTILINE)


def blocks(text: str, language: str) -> list[str]:
    """A page's code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def all_blocks(language: str) -> list[str]:
    """Those of all pages for users."""
    return [block for text in FOR_USERS.values() for block in blocks(text, language)]


def section(text: str, title: str) -> str:
    """What stands below a heading of the second level."""
    return text.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def links(text: str) -> list[str]:
    """Where a page leads to, code blocks left out."""
    prose = _FENCE.sub("", text)
    # Text in backticks may be a link's text, and looks like one itself in places.
    prose = _CODE.sub("code", prose)
    return _LINK.findall(prose) + _REFERENCE.findall(prose)


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to a page's headings."""
    found: set[str] = set()
    for title in re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        number = next(number for number in range(len(found) + 1) if _numbered(name, number) not in found)
        found.add(_numbered(name, number))
    return found


def _numbered(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


def broken_links(path: Path, text: str) -> list[str]:
    """Links of a page that lead nowhere: no such file, or no such heading in it."""
    return [link for link in links(text) if not _leads_somewhere(path, text, link)]


def _leads_somewhere(path: Path, text: str, link: str) -> bool:
    if link.startswith(("https://", "http://")):
        return True
    file, _, anchor = link.partition("#")
    if not file:
        return anchor in anchors(text)
    place = path.parent / file
    if not anchor or not place.is_file():
        return place.exists() and not anchor
    return place.suffix == ".md" and anchor in anchors(place.read_text("utf-8"))


def prose_lines(text: str) -> Iterator[str]:
    """Lines that are not of code blocks, tables or comments: those that can be wrapped."""
    for line in _FENCE.sub("", text).splitlines():
        if not line.startswith(("|", "<!--", "    ")):
            yield line
