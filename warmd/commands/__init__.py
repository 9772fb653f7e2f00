"""A module for each command: `DESCRIPTION` begins its help, `add_arguments` has what it takes, `run` does it.

`run` returns the exit code. What the list of commands says of each is in `warmd.cli`.
"""
