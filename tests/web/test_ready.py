"""When the host says that it takes requests."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warmd.engines.base import EngineDiedError
from warmd.engines.mlx_lm.host import Host
from warmd.engines.mlx_lm.ranks import Ranks
from warmd.logs import Log
from warmd.settings import Settings

ALIVE: Any = SimpleNamespace(is_healthy=True)
DEAD: Any = SimpleNamespace(is_healthy=False)
RUNNING: Any = SimpleNamespace(problem=None)
STOPPING: Any = SimpleNamespace(problem="the server is stopping")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path / "prompts.json", [], Settings(), Log(io.StringIO()))
    host.be_one_of(Ranks())
    return host


def test_not_while_the_model_is_being_loaded(host: Host) -> None:
    assert host._problem(RUNNING, ALIVE) == "the model is being loaded"
    host._room.thread_started()
    assert host._problem(RUNNING, ALIVE) is None


def test_not_once_the_engine_has_died_of_what_is_not_told(host: Host) -> None:
    host._room.thread_started()
    assert host._problem(RUNNING, DEAD) == "the engine has died"
    host._room.death = EngineDiedError("whatever it said")
    assert host._problem(RUNNING, ALIVE) == "the engine has died"


def test_not_while_it_is_stopping(host: Host) -> None:
    host._room.thread_started()
    assert host._problem(STOPPING, ALIVE) == "the server is stopping"
