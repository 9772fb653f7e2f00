"""Where the files of state are: daemon and commands each work it out from the settings alone."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from warmd.config import expand_home
from warmd.settings import StoreSettings


def store_folder(settings: StoreSettings) -> Path:
    """The folder; it need not exist.

    Raises:
        UsageError: The configured one begins with `~` and there is no home folder.
    """
    return expand_home(settings.path) if settings.path else platformdirs.user_cache_path("warmd") / "kv"
