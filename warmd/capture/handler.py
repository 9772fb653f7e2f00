"""The daemon's part of a capture: it waits for requests and says what they begin with."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from warmd.capture.shared import Captured, capture
from warmd.control.errors import ControlError
from warmd.engines.base import Chat, LiveRequest, Prefix
from warmd.errors import RenderError, WarmdError
from warmd.radix import common_length
from warmd.traffic import Traffic

if TYPE_CHECKING:
    from warmd.daemon import Daemon

MOST_REQUESTS = 32
"""As many are kept at a time."""


@dataclass(frozen=True, slots=True)
class Order:
    """What to wait for.

    Attributes:
        name: Of the entry to be.
        requests: How many.
        seconds: For how long; None for as long as the client waits.
        suggested: Only for those that begin with what was prefilled cold again and again.
        dry_run: Wait for nothing: only say what is wrong with the rest.
    """

    name: str
    requests: int = 1
    seconds: float | None = None
    suggested: bool = False
    dry_run: bool = False

    @classmethod
    def read(cls, arguments: dict[str, Any]) -> Order:
        """From a client's arguments.

        Raises:
            ControlError: They are not right.
        """
        if unknown := sorted(set(arguments) - {field.name for field in fields(cls)}):
            raise ControlError(f"unknown argument {unknown[0][:40]!r}")
        order = cls(**{"name": "captured", **arguments})
        if not isinstance(order.name, str):
            raise ControlError("name: expected text")
        if type(order.requests) is not int or not 1 <= order.requests <= MOST_REQUESTS:
            raise ControlError(f"requests: expected a number from 1 to {MOST_REQUESTS}")
        is_time = type(order.seconds) in (int, float) and 0 < (order.seconds or 0) < math.inf
        if order.seconds is not None and not is_time:
            raise ControlError("seconds: expected a number above 0")
        for key in ("suggested", "dry_run"):
            if not isinstance(getattr(order, key), bool):
                raise ControlError(f"{key}: expected true or false")
        return order


def refuse_capture(reason: str) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """The handler of `capture` beside an engine that does not show what clients send: it would wait for ever.

    Args:
        reason: In one line.
    """

    async def handle(arguments: dict[str, Any]) -> Any:
        raise ControlError(reason)

    return handle


def capture_handler(daemon: Daemon) -> Callable[[dict[str, Any]], Awaitable[Any]]:
    """The handler of `capture`: answers once enough requests came; it holds their texts no longer."""

    async def handle(arguments: dict[str, Any]) -> Any:
        order = Order.read(arguments)
        if order.dry_run:
            return {}
        try:
            requests = await _wait(daemon.traffic, order)
            chats = [request.chat for request in requests if request.chat is not None]
            captured = await anyio.to_thread.run_sync(capture, chats, abandon_on_cancel=True)
        except WarmdError as error:
            raise ControlError(str(error)) from None
        prefix, problem = await _render(daemon, captured, order.name)
        return _answer(captured, requests, prefix, problem)

    return handle


async def _wait(traffic: Traffic, order: Order) -> list[LiveRequest]:
    found: list[LiveRequest] = []
    with traffic.listeners.listen() as requests, anyio.move_on_after(order.seconds):
        async for request in requests:
            if _is_wanted(request.chat, request, traffic, order):
                found.append(request)
            if len(found) == order.requests:
                return found
    what = "chat request with a suggested beginning" if order.suggested else "chat request"
    came = f"only {len(found)} of {order.requests}" if found else "no"
    what += "s" if found else ""
    raise ControlError(f"{came} {what} came within {order.seconds:g} s")


def _is_wanted(chat: Chat | None, request: LiveRequest, traffic: Traffic, order: Order) -> bool:
    if chat is None:
        return False
    return not order.suggested or (
        traffic.hit(request) is None and traffic.suggestions.longest_of(request) is not None
    )


async def _render(daemon: Daemon, captured: Captured, name: str) -> tuple[Prefix | None, str | None]:
    """The prefix that the entry would get, or why there is none."""
    try:
        return await daemon.engine.render(captured.to_entry(name)), None
    except RenderError as error:
        return None, str(error)


def _answer(
    captured: Captured, requests: list[LiveRequest], prefix: Prefix | None, problem: str | None
) -> dict[str, Any]:
    return {
        "messages": list(captured.messages),
        "tools": list(captured.tools) if captured.tools is not None else None,
        "chat_template_kwargs": captured.chat_template_kwargs,
        "notes": list(captured.notes),
        "tokens": len(prefix) if prefix is not None else None,
        "problem": problem,
        "requests": [
            {
                "tokens": len(request.tokens),
                "matched": common_length(prefix.packed, request.tokens) if prefix is not None else None,
            }
            for request in requests
        ],
    }
