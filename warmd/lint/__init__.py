"""Finds in a prompts file what is valid and yet hardly meant: text that is another in each request or each
day and so defeats caching, and misspelled roles and keys.

A false alarm is worse than a miss: whoever sees one on ordinary prose stops reading warnings. So what may as
well be an example, a version, a hash or a name is passed over.
"""

from warmd.lint.file import lint_file
from warmd.lint.spot import Spot
from warmd.lint.spots import find_spots

__all__ = ["Spot", "find_spots", "lint_file"]
