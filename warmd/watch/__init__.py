"""Watches the directories of a set of files, and tells when it is time to look at them again.

An event never carries meaning: it only makes us compare what the files look like (`Signature`) with what was
seen when they were last read. So events of neighbours cost a few stat calls, lost events are healed by a slow
tick, and a file that is replaced, renamed, linked elsewhere or restored needs no case of its own.

Directories are watched, never files: the watch of a file goes silent after one atomic replace.
"""

from __future__ import annotations

from warmd.watch.reports import Degraded, Look, Rearmed, WatchStatistics
from warmd.watch.signature import FileSignature, Signature, signature, unreachable
from warmd.watch.watcher import EventSource, Watcher

__all__ = [
    "Degraded",
    "EventSource",
    "FileSignature",
    "Look",
    "Rearmed",
    "Signature",
    "WatchStatistics",
    "Watcher",
    "signature",
    "unreachable",
]
