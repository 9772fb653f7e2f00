"""Folders that macOS keeps from programs until a person agrees; for a service it asks nobody."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = {
    "Desktop": "the Desktop folder",
    "Documents": "the Documents folder",
    "Downloads": "the Downloads folder",
    "Library/Mobile Documents": "iCloud Drive",
    "Library/CloudStorage": "a cloud provider's folder",
}


def protected_by(path: Path, home: Path) -> str | None:
    """The protected place that a path leads into, also through symbolic links; None when it is free."""
    real = Path(os.path.realpath(path))
    for folder, name in _FOLDERS.items():
        roots = (home / folder, Path(os.path.realpath(home / folder)))
        if any(candidate.is_relative_to(root) for candidate in (path, real) for root in roots):
            return name
    return "a removable or network volume" if real.is_relative_to("/Volumes") else None
