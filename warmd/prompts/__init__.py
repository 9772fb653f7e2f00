"""The warm-prompts file: from bytes to a checked `Document`. Imports nothing heavy."""

from warmd.prompts.diff import Changes, diff
from warmd.prompts.document import Document, Entry, FileError, Message
from warmd.prompts.load import MAX_BYTES, InvalidPromptsError, load_document

__all__ = [
    "MAX_BYTES",
    "Changes",
    "Document",
    "Entry",
    "FileError",
    "InvalidPromptsError",
    "Message",
    "diff",
    "load_document",
]
