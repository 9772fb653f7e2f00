"""What the host makes of a daemon that ends by itself."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace

from warmd.control.run import Control
from warmd.crash.quarantine import Quarantine
from warmd.daemon import Daemon
from warmd.engines.base import EngineDiedError
from warmd.engines.mlx_lm.host import Host
from warmd.engines.mlx_lm.ranks import Ranks
from warmd.engines.model_folder import ModelError
from warmd.errors import CannotStartError
from warmd.logs import Log
from warmd.settings import Settings
from warmd.testing import FakeEngine
from warmd.upkeep import Upkeep


class FaultyEngine(FakeEngine):
    """An engine with a fault that nobody thought of."""

    async def changed(self) -> None:
        raise LookupError("secret")


NO_CONTROL = Control(None, lambda event: None)
ARGS = SimpleNamespace(model="the-model", draft_model=None)


def make_host(path: Path) -> tuple[Host, io.StringIO]:
    stream = io.StringIO()
    return Host(path, [], Settings(), Log(stream)), stream


async def run_daemon(host: Host, engine: FakeEngine, folder: Path) -> CannotStartError | None:
    daemon, upkeep = Daemon(engine, folder / "p.json"), Upkeep(host.log, folder)
    return await host._run_daemon(daemon, Quarantine(), NO_CONTROL, upkeep, ARGS)


async def test_an_unexpected_fault_of_the_daemon_ends_the_process_with_one(tmp_path: Path) -> None:
    host, stream = make_host(tmp_path / "p.json")
    failure = await run_daemon(host, FaultyEngine(), tmp_path)
    assert (failure, host.exit_code) == (None, 1)
    assert "LookupError" in stream.getvalue()
    assert "secret" not in stream.getvalue()


async def test_an_engine_that_never_started_means_that_the_model_cannot_be_loaded(tmp_path: Path) -> None:
    host, _ = make_host(tmp_path / "p.json")
    engine = FakeEngine()
    engine.die("no such thing")
    host.be_one_of(Ranks())
    host._room.death = EngineDiedError("no such thing")
    failure = await run_daemon(host, engine, tmp_path)
    assert isinstance(failure, ModelError)
    assert str(failure) == "cannot load the model 'the-model': no such thing"
