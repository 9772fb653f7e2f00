"""Starts servers that are not ours, as their own users would."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.patience import PATIENCE


@contextmanager
def running(command: Sequence[str], port: int, folder: Path, **variables: str) -> Iterator[str]:
    """A server that answers on a port; its address. What it prints is in `folder`.

    Args:
        command: Its command line, which names the port.
        port: Where it listens.
        folder: Stands in for the cache of Hugging Face, too: nothing is downloaded.
        variables: More of its environment.
    """
    hub = folder / "hub"
    hub.mkdir(exist_ok=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(hub), **variables}
    environment.pop("PYTHONPATH", None)
    with (folder / "server.log").open("ab") as log:
        # What it starts ends with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment, start_new_session=True
        )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_it_answers(url, process)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, "the server has ended"
        try:
            with urllib.request.urlopen(f"{url}/v1/models", timeout=PATIENCE):
                return
        except urllib.error.HTTPError as error:
            # It wants a key.
            error.close()
            return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    raise AssertionError("the server does not answer")
