"""One module for each command: `add_parser` describes it, `run` does it and returns the exit code."""
