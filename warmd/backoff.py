"""When to try again what failed."""

from __future__ import annotations

FIRST_DELAY = 1.0
LONGEST_DELAY = 300.0
JITTER = 0.25


def retry_delay(failures: int, randomness: float) -> float:
    """Seconds to wait after `failures` failures in a row: 1 s doubled each time up to 300 s, with jitter.

    Args:
        failures: At least 1.
        randomness: From 0 to 1; spreads the delay over plus or minus a quarter.
    """
    # The exponent is bounded too: 2.0 ** 1024 overflows.
    delay = min(LONGEST_DELAY, FIRST_DELAY * 2.0 ** min(failures - 1, 16))
    return min(LONGEST_DELAY, delay * (1 + JITTER * (2 * randomness - 1)))
