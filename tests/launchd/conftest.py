"""A Mac of sorts for each test."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launchd.mac import Mac


@pytest.fixture
def mac() -> Iterator[Mac]:
    # Short, for the socket; the folder goes only after the processes in it.
    with tempfile.TemporaryDirectory(prefix="warmd-test-", ignore_cleanup_errors=True) as folder:
        mac = Mac(Path(folder).resolve())
        yield mac
        mac.run("uninstall")
