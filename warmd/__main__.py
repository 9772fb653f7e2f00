"""`python -m warmd`."""

import sys

from warmd.cli import main

sys.exit(main())
