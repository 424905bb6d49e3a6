"""``fedlens completion``: a script with which a shell completes verbs and flags."""

from __future__ import annotations

import argparse

from fedlens.cli import VERBS
from fedlens.cli.output import say

SHELLS = ("bash", "zsh", "tcsh")
EPILOG = """examples:
  fedlens completion bash > ~/.local/share/bash-completion/completions/fedlens
  fedlens completion zsh > ~/.zfunc/_fedlens      (a folder of $fpath)"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its argument."""
    parser = verbs.add_parser(
        "completion",
        help=VERBS["completion"],
        description="Print a script that completes verbs, flags and files in a shell.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=SHELLS, help="which shell it is for")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    import shtab

    from fedlens.cli import build_parser

    say(shtab.complete(build_parser(), shell=args.shell))
    return 0
