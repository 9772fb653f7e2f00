"""Every error warmd raises on purpose.

One base class; each class builds its own message, so that a raise site is one line. Whoever catches
`WarmdError` may show ``str(error)`` to the user as it is: it holds no prompt text and needs no traceback.
"""

from __future__ import annotations

import errno


class WarmdError(Exception):
    """Something went wrong in a way that we can explain in one line."""

    exit_code = 1
    is_told = False
    """Whoever caught it has logged it already."""


class UsageError(WarmdError):
    """The command line or a setting is wrong."""

    exit_code = 2


class CannotStartError(WarmdError):
    """The daemon cannot start, and trying again without a change would not help."""

    exit_code = 3


class CannotListenError(CannotStartError):
    """The server cannot have its address.

    Args:
        host: As given.
        port: As given.
        error: Why.
    """

    def __init__(self, host: str, port: int, error: OSError) -> None:
        what = f"cannot listen on {host}:{port}: {error.strerror or error}"
        if error.errno == errno.EADDRINUSE:
            what += "; `--port N` takes another port, and `warmd status` tells whether warmd runs already"
        super().__init__(what)


class UnwritableOutputError(WarmdError):
    """Standard output takes no more: a full disk, for example."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"cannot write the output: {error.strerror}")


class RenderError(WarmdError):
    """One entry cannot be rendered with the model that is loaded now.

    The entry is `failed` until it is edited or another model is loaded; other entries are unaffected.
    """


class ElsewhereError(RenderError):
    """An entry belongs to another model than the one that is loaded."""

    def __init__(self, model: str) -> None:
        super().__init__(f"it is for the model {model!r}, which is not loaded")


class NotWarmableError(RenderError):
    """An entry renders, but there is nothing in it that can be kept warm (entry state `unwarmable`)."""


class VolatileError(NotWarmableError):
    """An entry's prompt changes by itself before its content is complete (entry state `volatile`).

    Args:
        position: The first token that changes.
        reason: In one line, for a person.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
