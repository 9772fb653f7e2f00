"""What is put around vllm-mlx's FastAPI application: our read-only paths, and the daemon in its lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio.to_thread

from warmd.web.site import Site, is_path

Attach = Callable[[], AbstractAsyncContextManager[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def attach_to_lifespan(app: Any, attach: Attach) -> None:
    """Have a block run from when the application has started until it is to stop."""
    inner = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Any) -> AsyncIterator[Any]:
        async with inner(app) as state, attach():
            yield state

    app.router.lifespan_context = lifespan


class WithSite:
    """An ASGI application that answers our paths, and passes everything else on.

    Args:
        app: Answers the rest.
        site: Returns what answers ours, or None while there is no daemon.
        left: Paths of ours that are the application's here.
    """

    def __init__(self, app: Any, site: Callable[[], Site | None], left: tuple[str, ...] = ()) -> None:
        self._app = app
        self._site = site
        self._left = left

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        """Answer one request."""
        site = self._site()
        if site is None or not self._is_ours(scope):
            await self._app(scope, receive, send)
            return
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        # It waits for the event loop that this runs on.
        answer = await anyio.to_thread.run_sync(site.answer, scope["path"], hosts)
        headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        body = answer.body if scope["method"] == "GET" else b""
        await send({"type": "http.response.body", "body": body})

    def _is_ours(self, scope: dict[str, Any]) -> bool:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            return False
        return is_path(scope["path"]) and scope["path"] not in self._left
