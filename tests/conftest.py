"""Fixtures shared by all tests."""

from __future__ import annotations

import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.toys import ARCHITECTURES, make_model
from warmd.config import load_settings
from warmd.settings import Settings

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # What a shell starts in the background ignores ctrl-C, as would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no fault.
settings.register_profile("warmd", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("warmd")


LONGEST = (
    "launchd/test_install_command.py",
    "engines/mlx_lm/test_truth.py",
    "serving/test_restart.py",
    "launchd/test_restart_command.py",
    "serving/test_ranks.py",
    "serving/test_warm.py",
    "serving/test_crash.py",
    "serving/test_sidecar.py",
)
"""The files that take half of the time, the longest first. The ranks, which wait for each other busily, come
beside those of launchd, which sleep a lot."""

PROCESSES = ("serving", "launchd", "commands", "engines")
"""Where tests start processes, or compute."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long comes first: at the end several workers have something to do to the last."""
    items.sort(key=lambda item: _rank(item.path.relative_to(Path(__file__).parent)))


def _rank(path: Path) -> int:
    if path.as_posix() in LONGEST:
        return LONGEST.index(path.as_posix())
    return len(LONGEST) + (path.parts[0] not in PROCESSES)


def pytest_collection_finish() -> None:
    """Python's collector need not look at thousands of collected tests again and again: several ask it to."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def state_folder() -> Iterator[None]:
    """Daemons of tests and that of whoever runs them do not meet. Short, as it holds a socket."""
    with tempfile.TemporaryDirectory(prefix="warmd-test-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARMD_STATE_DIR", folder)
        patch.setenv("WARMD_LOG_FILE", "")
        # Tests that are about the disk say where.
        patch.setenv("WARMD_STORE_ENABLED", "false")
        yield


@pytest.fixture
def in_force(tmp_path: Path) -> Settings:
    """What holds where nobody has set anything, or as the environment says."""
    (tmp_path / "empty.toml").touch()
    return load_settings({**os.environ, "WARMD_CONFIG": str(tmp_path / "empty.toml")})


@pytest.fixture
def anyio_backend() -> str:
    """The product runs on asyncio only."""
    return "asyncio"


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model folder for each architecture: per-token caches, a sliding window, a hybrid."""
    root = tmp_path_factory.mktemp("models")
    return {name: make_model(root / name, architecture=name) for name in ARCHITECTURES}
