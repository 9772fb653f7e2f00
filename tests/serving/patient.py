"""warmd where a disk may take its time: what is read is tested, and not how fast a busy machine reads it."""

from __future__ import annotations

import sys
from unittest import mock

from warmd.cli import main
from warmd.disk import pace
from warmd.engines.mlx_lm import loading

HOUR = 3600.0

if __name__ == "__main__":
    with mock.patch.object(pace, "MARGIN", HOUR), mock.patch.object(loading, "FIRST_PATIENCE", HOUR):
        sys.exit(main())
