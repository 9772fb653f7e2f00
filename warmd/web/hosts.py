"""Which Host headers are answered: no name that a web page could have made to lead here."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

_HOST = re.compile(r"(?:\[(?P<bracketed>[0-9A-Fa-f:.]{2,45})\]|(?P<plain>[^:\[\]]{1,255}))(?::[0-9]{1,5})?")
_LOOPBACK = ipaddress.ip_network("127.0.0.0/8")
_LOOPBACK_6 = ipaddress.ip_address("::1")

Name = str | ipaddress.IPv4Address | ipaddress.IPv6Address


def is_ours(headers: Sequence[str], configured: str) -> bool:
    """True when a request's Host headers are one that names this machine's loopback or the configured host.

    The page of another site whose name was made to lead to 127.0.0.1 has that name in its Host header.

    Args:
        headers: The values of all Host headers of the request.
        configured: What the server was told to listen on.
    """
    match = _HOST.fullmatch(headers[0].strip()) if len(headers) == 1 else None
    if match is None:
        return False
    name = _parse(match["bracketed"] or match["plain"])
    if isinstance(name, ipaddress.IPv4Address):
        is_loopback = name in _LOOPBACK
    else:
        is_loopback = name in (_LOOPBACK_6, "localhost")
    return is_loopback or name == _parse(configured)


def _parse(host: str) -> Name:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
