"""Declared prefixes on disk: which files there are, what they cover, and who writes and removes them.

Nothing here knows what is inside of the state: `warmd.engines` turns it into bytes and back. A file holds the
state of a run of tokens, everything that it depends on, and the ids of the whole path to it, so that the
index is nothing but what the files say. Files never change: they appear whole, under a name that tells their
checksum, and go.
"""
