"""The engine behind another server's OpenAI-compatible HTTP interface."""

from warmd.engines.http.engine import HttpEngine
from warmd.engines.http.server import ChatServer

__all__ = ["ChatServer", "HttpEngine"]
