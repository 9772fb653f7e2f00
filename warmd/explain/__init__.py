"""Why a request that began like an entry did not start from all of it.

Everything here holds prompt text. It is for the user's own terminal: never for a log, a metric or HTTP.
"""

from warmd.explain.excerpt import Excerpt, visible
from warmd.explain.explanation import Explanation, explain

__all__ = ["Excerpt", "Explanation", "explain", "visible"]
