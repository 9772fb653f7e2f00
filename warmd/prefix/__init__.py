"""The token ids with which every real request of an entry begins.

The cut is made in token space: `find_prefix` encodes the entry's request, through the engine's own request
path, with user texts that are chosen to disturb what precedes them, and keeps the tokens that no text
changed. Nothing is ever cut in text, and no raw content is searched in a render.

Why many texts: a tokenizer may merge the beginning of the user text with the header before it (a newline
with a newline, a letter with ``'``), a special token may swallow the whitespace before it, and a template
may look into the user text and then render earlier turns another way. `probes` covers the classes of
characters that pre-tokenizers tell apart, `literals` what the template compares text with, `vocabulary` the
tokens that could straddle the boundary.
"""

from warmd.prefix.find import find_prefix
from warmd.prefix.request import Renderer, ignores_tools, request_messages
from warmd.prefix.tokens import token_ids
from warmd.prefix.vocabulary import vocabulary_by_id

__all__ = ["Renderer", "find_prefix", "ignores_tools", "request_messages", "token_ids", "vocabulary_by_id"]
