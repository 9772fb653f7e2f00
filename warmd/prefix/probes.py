"""User texts that fall into different classes for the pre-tokenizers in use."""

from __future__ import annotations

# Letters of both cases, digits, punctuation: GPT-2's classes, which Llama 3 and Qwen refine. The contraction
# joins a letter before it. Whitespace comes in runs because `\s+(?!\S)` and `\s*[\r\n]+` look ahead.
# The combining mark composes with a letter before it under NFC; the others are letters, spaces and symbols
# outside ASCII, which byte-level and byte-fallback tokenizers cut in the middle of a character.
BASE = (
    "hello",
    "What is",
    "7",
    "你好",
    "",
    " hi",
    "  hi",
    "\n",
    "\n\nhello",
    " \n",
    "\thi",
    "\r\nhi",
    "'s",
    ".",
    "<x",
    ":\n\n",
    "\u0301a",
    "😀",
    "\u00a0hi",
    "ر",
    "п",
    "123",
)

FIRST_CHARACTERS = (0, 1, 2, 3)
"""Indices into `BASE` of texts without a common first character, not even a common first byte."""

# Tried where no vocabulary tells which of them can merge with what precedes.
PUNCTUATION = tuple(",!?\"([{>/\\#*-_=+|@$%&~`;'")
