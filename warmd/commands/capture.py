"""`warmd capture`: makes an entry out of what an agent sends."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from warmd.commands.options import seconds, whole_number
from warmd.text import counted

DESCRIPTION = """\
Wait for the next live chat request, take what every request of that agent begins with (leading system and
developer messages, tools, chat_template_kwargs), and show what keeping it warm would take. With --save it is
added to the prompts file, with long texts in files beside it; everything else in the file stays as it is.
Exit code 0: captured. 1: no request came in time, or there is nothing to keep. 4: no daemon."""

Json = dict[str, Any]
_SHOWN = 60
_AROUND = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("name", metavar="NAME", help="of the entry")
    parser.add_argument(
        "--timeout", metavar="S", type=seconds, help="seconds to wait for requests (default: no limit)"
    )
    parser.add_argument("--save", action="store_true", help="add it to the prompts file")
    parser.add_argument(
        "--replace", action="store_true", help="with --save, replace the entry that has this name"
    )
    parser.add_argument(
        "--common",
        metavar="N",
        type=whole_number(1),
        default=1,
        help="wait for N requests and take what they have in common (messages are never cut)",
    )
    parser.add_argument(
        "--suggested",
        action="store_true",
        help="take only a request that begins with what `warmd status` suggests",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with the texts")


def run(args: argparse.Namespace) -> int:
    """Wait, print and save."""
    # Imported here: only what talks to the daemon needs these.
    from warmd.capture.save import check_name
    from warmd.config import load_settings
    from warmd.control.client import ask
    from warmd.errors import UsageError

    if args.replace and not args.save:
        raise UsageError("--replace goes with --save")
    max_bytes = load_settings().prompts.max_bytes
    path = Path(ask("status")["document"]["path"])
    # Nobody should make an agent talk for nothing.
    if args.save:
        check_name(path, args.name, replace=args.replace, max_bytes=max_bytes)
    limit = {"seconds": args.timeout} if args.timeout is not None else {}
    order = {"name": args.name, "requests": args.common, "suggested": args.suggested, **limit}
    ask("capture", dry_run=True, **order)
    print(_waiting(args), file=sys.stderr)
    found = ask("capture", timeout=None, **order)
    saved = _save(path, args, found, max_bytes) if args.save else None
    if args.json:
        print(json.dumps({**found, "saved": saved}, indent=2))
    else:
        print("\n".join(report_lines(args.name, found, saved, datetime.now())))
    return 0


def _waiting(args: argparse.Namespace) -> str:
    what = "the next chat request" if args.common == 1 else f"the next {args.common} chat requests"
    beginning = " with a suggested beginning" if args.suggested else ""
    return f"waiting for {what}{beginning}: let your agent send something (ctrl-C ends this)"


def _save(path: Path, args: argparse.Namespace, found: Json, max_bytes: int) -> Json:
    from warmd.capture.save import save
    from warmd.capture.shared import Captured

    tools = tuple(found["tools"]) if found["tools"] is not None else None
    captured = Captured(tuple(found["messages"]), tools, found["chat_template_kwargs"])
    saved = save(path, args.name, captured, replace=args.replace, max_bytes=max_bytes)
    return {
        "path": str(saved.path),
        "files": list(saved.files),
        "replaced": saved.is_replaced,
        "left": list(saved.left),
        "warnings": list(saved.warnings),
    }


def report_lines(name: str, found: Json, saved: Json | None, now: datetime) -> Iterator[str]:
    """The report for people."""
    yield from _content_lines(found)
    yield from _token_lines(found)
    yield from _changing_lines(found, now)
    yield from (f"note: {note}" for note in found["notes"])
    if saved is None:
        yield "nothing was saved: --save adds it to the prompts file"
        return
    yield from (f"warning: {warning}" for warning in saved["warnings"])
    done = "replaced in" if saved["replaced"] else "added to"
    files = f", with {' and '.join(saved['files'])}" if saved["files"] else ""
    yield f"{name}: {done} {saved['path']}{files}"
    if saved["left"]:
        files = " and ".join(saved["left"])
        yield f"note: no entry of {Path(saved['path']).name} names {files} any more; nothing is removed"


def _content_lines(found: Json) -> Iterator[str]:
    from warmd.explain.difference import content_text
    from warmd.explain.excerpt import visible
    from warmd.explain.tools import tool_name

    for index, message in enumerate(found["messages"]):
        text = content_text(message)
        start = visible(text[:_SHOWN]) + ("…" if len(text) > _SHOWN else "")
        size = counted(len(text), "character")
        yield f"messages[{index}] ({visible(message['role'])}): {size}{': ' if text else ''}{start}"
    tools = found["tools"] or []
    if tools:
        names = ", ".join(visible(tool_name(tool) or "?") for tool in tools)
        yield f"tools: {len(tools)}: {names}"
    for key, value in found["chat_template_kwargs"].items():
        yield f"chat_template_kwargs: {visible(key)} = {visible(json.dumps(value, ensure_ascii=False))}"


def _changing_lines(found: Json, now: datetime) -> Iterator[str]:
    """What of the texts seems to change from request to request: then the entry would soon fit none."""
    from warmd.explain.difference import content_text
    from warmd.explain.excerpt import visible
    from warmd.lint import find_spots

    for index, message in enumerate(found["messages"]):
        text = content_text(message)
        spots = {spot.what: spot for spot in reversed(find_spots(text, now))}
        for what, spot in sorted(spots.items(), key=lambda item: item[1].start):
            around = visible(text[max(0, spot.start - _AROUND) : spot.end + _AROUND])
            place = f"messages[{index}] ({visible(message['role'])})"
            yield f"warning: {place}: {what}: …{around}…: if it changes, nothing behind it is served warm"


def _token_lines(found: Json) -> Iterator[str]:
    sizes = ", ".join(f"{request['tokens']:,}" for request in found["requests"])
    if found["tokens"] is None:
        yield f"cannot be kept warm: {found['problem']} (requests: {sizes} tokens)"
        return
    yield f"{found['tokens']:,} tokens to be kept warm, of requests of {sizes}"
    least = min(request["matched"] for request in found["requests"])
    if least < found["tokens"]:
        yield f"warning: only {least:,} of these tokens begin every request"
