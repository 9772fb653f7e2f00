"""Where a server is, and the key that it wants."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from os import PathLike

import httpx2

from warmd.config import expand_home
from warmd.errors import UsageError

LAST_PORT = 65535
LONGEST_KEY = 16384


def parse_base_url(text: str, flag: str = "--base-url") -> str:
    """The address without what clients of OpenAI's interface add to it; all ways to write it are in use.

    Raises:
        UsageError: It is no http(s) address, or holds what does not belong there.
    """
    try:
        url = httpx2.URL(text.strip())
    # Some ports raise a plain ValueError.
    except (httpx2.InvalidURL, ValueError):
        raise UsageError(f"{flag}: expected an address such as http://localhost:8080{_found(text)}") from None
    is_port = url.port is None or 0 < url.port <= LAST_PORT
    if url.scheme not in ("http", "https") or not url.host or not is_port or len(text.split()) > 1:
        raise UsageError(f"{flag}: expected an address such as http://localhost:8080{_found(text)}")
    if url.userinfo:
        # An address is logged and shown; a password must not be.
        raise UsageError(f"{flag}: expected no user name or password; see --api-key-file")
    if url.query or url.fragment:
        what = "?" if url.query else "#"
        raise UsageError(f"{flag}: expected nothing behind the path, found {what!r} and what follows it")
    # An empty query would keep its question mark.
    bare = str(url.copy_with(query=None, fragment=None)).rstrip("/")
    return bare.removesuffix("/chat/completions").removesuffix("/v1").rstrip("/")


def _found(text: str) -> str:
    """What was given, but for what may be secret."""
    bare = re.split(r"[?#]", text, maxsplit=1)[0]
    return "" if "@" in bare else f", found {bare!r}"


def read_api_key(
    variable: str | None, file: str | PathLike[str] | None, environment: Mapping[str, str] | None = None
) -> str | None:
    """The key from an environment variable or a file, or None where neither is named.

    Raises:
        UsageError: It is not there, or cannot be a key. The message never quotes it.
    """
    environment = os.environ if environment is None else environment
    if variable is not None:
        if variable not in environment:
            raise UsageError(f"--api-key-env: there is no variable {variable}")
        return _checked(environment[variable], variable)
    if file is not None:
        path = expand_home(os.fspath(file))
        try:
            with path.open("rb") as opened:
                # Not all of what may have no end.
                text = opened.read(4 * LONGEST_KEY).decode("utf-8-sig")
        except OSError as error:
            raise UsageError(f"--api-key-file: {path}: {error.strerror or error}") from None
        except UnicodeDecodeError:
            raise UsageError(f"--api-key-file: {path}: expected text, found no UTF-8") from None
        return _checked(text, str(path))
    return None


def _checked(text: str, where: str) -> str:
    key = text.strip()
    if not 0 < len(key) <= LONGEST_KEY or not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(f"{where}: expected an API key: one word of ASCII characters")
    return key
