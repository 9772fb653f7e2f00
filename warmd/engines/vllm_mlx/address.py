"""Takes the address before anything slow begins."""

from __future__ import annotations

import socket

from warmd.errors import CannotListenError


def listen(host: str, port: int) -> socket.socket:
    """Take the address before the model is loaded; who connects waits until the server serves.

    Raises:
        CannotListenError: It cannot be bound.
    """
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = infos[0]
        bound = socket.socket(family)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
            bound.listen(128)
        except BaseException:
            bound.close()
            raise
    except (OSError, OverflowError) as error:
        problem = error if isinstance(error, OSError) else OSError(str(error))
        raise CannotListenError(host, port, problem) from None
    bound.set_inheritable(False)
    return bound
