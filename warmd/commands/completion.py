"""`warmd completion`: what a shell needs to complete warmd's commands and flags."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

DESCRIPTION = """\
Print a completion script. In zsh: `warmd completion zsh > "${fpath[1]}/_warmd"`. In bash: add
`eval "$(warmd completion bash)"` to ~/.bashrc. In fish:
`warmd completion fish > ~/.config/fish/completions/warmd.fish`."""

SHELLS = ("zsh", "bash", "fish")
_KINDS = {"FILE": "FILE", "DIR": "DIRECTORY"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what it takes."""
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    # Imported here: nothing else needs it, and the parser of all commands is made only for this.
    import shtab

    from warmd.cli import make_parser

    parser = make_parser()
    for action in _actions(parser):
        # Their names say what they take.
        if action.metavar in _KINDS:
            action.complete = getattr(shtab, _KINDS[action.metavar])  # type: ignore[attr-defined]
        if isinstance(action, argparse._SubParsersAction):
            _shorten(action)
    print(shtab.complete(parser, args.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from _actions(subparser)


def _shorten(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Have one line said about each command, instead of the first of several."""
    for command in commands._get_subactions():
        commands.choices[command.dest].description = command.help
