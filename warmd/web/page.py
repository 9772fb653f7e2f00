"""The page: one HTML document that needs nothing else, and the policy that holds it to that."""

from __future__ import annotations

import base64
import functools
import hashlib
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True)
class Page:
    """The page as it is sent, with its Content-Security-Policy."""

    html: bytes
    policy: str


@functools.cache
def load_page() -> Page:
    """Put the page together; its style and script are the only ones that its policy lets run."""
    folder = files("warmd.web")
    html, style, script = (
        folder.joinpath(f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    whole = html.replace("/*STYLE*/", style).replace("/*SCRIPT*/", script)
    return Page(whole.encode(), policy)


def _hash(source: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}"
