"""Takes the address before anything slow begins."""

from __future__ import annotations

import socket

from warmd.errors import CannotStartError


class AddressError(CannotStartError):
    """Nothing can listen on the address."""

    def __init__(self, host: str, port: int, error: OSError) -> None:
        super().__init__(f"cannot listen on {host}:{port}: {error.strerror or error}")


def listen(host: str, port: int) -> socket.socket:
    """Take the address before the model is loaded; who connects waits until the server serves.

    Raises:
        AddressError: It cannot be bound.
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
        raise AddressError(host, port, error if isinstance(error, OSError) else OSError(str(error))) from None
    bound.set_inheritable(False)
    return bound
