"""Verbs that the package fedlens-research brings, and what to install where it is not there."""

from __future__ import annotations

import argparse
from importlib.metadata import entry_points

from fedlens.foundation.errors import WrongUse

GROUP = "fedlens.verbs"
MISSING = (
    "comes with the package fedlens-research, which is not installed: in a checkout of fedlens, "
    "`pip install ./research`"
)


def add_research_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, *, entry: str
) -> None:
    """Add a verb that another package carries out.

    Args:
        verbs: where it is added.
        name: of the verb.
        about: its line of the help where the package is not installed.
        entry: name of the entry point in the group ``fedlens.verbs``: a function that adds the
            verb's parser to ``verbs``.
    """
    for point in entry_points(group=GROUP, name=entry):
        point.load()(verbs)
        return
    parser = verbs.add_parser(name, help=about, add_help=False)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=_refuse, refused=name)


def _refuse(args: argparse.Namespace) -> int:
    raise WrongUse(f"{args.refused!r} {MISSING}")
