"""Drives a headless Chromium through its debugging pipe: messages of JSON, each ended by a zero byte."""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE

NAMES = ("chromium", "chromium-browser", "google-chrome")
PROGRAM = next(filter(None, map(shutil.which, NAMES)), None)
needs_chromium = pytest.mark.skipif(PROGRAM is None, reason=f"none of {', '.join(NAMES)} is installed")

LAUNCHER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""A browser reads from descriptor 3 and writes to descriptor 4."""

Json = dict[str, Any]


class Browser:
    """A running Chromium.

    Args:
        folder: Where it keeps its profile.
    """

    def __init__(self, folder: Path) -> None:
        assert PROGRAM is not None
        theirs_in, self._out = _pipe()
        self._in, theirs_out = _pipe()
        flags = ["--headless", "--remote-debugging-pipe", "--disable-gpu", "--disable-dev-shm-usage"]
        flags += ["--no-first-run", "--disable-extensions", "--hide-scrollbars", f"--user-data-dir={folder}"]
        # Chromium's sandbox does not work for root, as which containers run.
        flags += ["--no-sandbox"] if os.geteuid() == 0 else []
        ends = map(str, (theirs_in, theirs_out))
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, *ends, PROGRAM, *flags, "about:blank"],
            pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        self.events: list[Json] = []
        self._ids = itertools.count(1)
        self._answers: queue.Queue[Json] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        with os.fdopen(self._in, "rb") as stream:
            rest = b""
            while chunk := stream.read1():
                *messages, rest = (rest + chunk).split(b"\0")
                for message in map(json.loads, messages):
                    if "id" in message:
                        self._answers.put(message)
                    else:
                        self.events.append(message)

    def call(self, method: str, session: str | None = None, /, **parameters: Any) -> Json:
        """Have something done, and wait until it is."""
        number = next(self._ids)
        message = {"id": number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._answers.get(timeout=PATIENCE)
            if answer["id"] == number:
                assert "error" not in answer, (method, answer)
                return dict(answer["result"])

    def close(self) -> None:
        """End it."""
        os.close(self._out)
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE)


class Tab:
    """One page in a browser.

    Args:
        browser: Where to open it.
        width: Of the window, in CSS pixels.
        dark: What the system prefers.
    """

    def __init__(self, browser: Browser, *, width: int = 1200, dark: bool = False) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def call(self, method: str, /, **parameters: Any) -> Json:
        """Have something done in this page."""
        return self._browser.call(method, self._session, **parameters)

    def resize(self, width: int, height: int = 900) -> None:
        """Make the window another size, a phone's if it is narrow."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def open(self, address: str) -> None:
        """Go to an address."""
        self.call("Page.navigate", url=address)
        self.wait_until(f"location.href === {json.dumps(address)} && document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait_until(self, expression: str) -> Any:
        """Wait until an expression is true; returns its value."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if value := self.evaluate(expression):
                return value
            time.sleep(0.05)
        raise AssertionError(f"never true: {expression}\n{self.text()}\n{self.complaints()}")

    def text(self) -> str:
        """What a person sees, as text."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def screenshot(self) -> bytes:
        """The whole page as PNG."""
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        return base64.b64decode(found["data"])

    def complaints(self) -> list[Json]:
        """Exceptions, errors and warnings on its console, and whatever else the browser complains about."""
        return [event["params"] for event in self._events() if _is_complaint(event)]

    def requests(self) -> list[str]:
        """The addresses that it asked for so far."""
        sent = "Network.requestWillBeSent"
        return [event["params"]["request"]["url"] for event in self._events() if event["method"] == sent]

    def _events(self) -> list[Json]:
        return [event for event in list(self._browser.events) if event.get("sessionId") == self._session]


def _pipe() -> tuple[int, int]:
    """A pipe whose ends are not among the descriptors that the browser uses for it."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return moved[0], moved[1]


def _is_complaint(event: Json) -> bool:
    if event["method"] == "Runtime.consoleAPICalled":
        return event["params"]["type"] in ("error", "warning", "assert")
    return event["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")


@contextmanager
def browsing(folder: Path) -> Iterator[Browser]:
    """A browser with its profile in a folder."""
    browser = Browser(folder)
    try:
        yield browser
    finally:
        browser.close()
