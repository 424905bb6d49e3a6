"""``fedlens resume``: go on with an interrupted run."""

from __future__ import annotations

import argparse

from fedlens.cli import VERBS
from fedlens.cli.flags import add_run_argument
from fedlens.cli.simulate import add_training_flags, finish


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "resume",
        help=VERBS["resume"],
        description="Go on from the last whole round. What was spent stays spent; a release that "
        "was paid for but lost with the process is not drawn again.",
        epilog="example: fedlens resume runs/demo",
    )
    add_run_argument(parser)
    parser.add_argument(
        "--only-copy",
        action="store_true",
        help="say that this folder, which was moved, copied or restored, is the only one that will "
        "go on: a second one would release twice what is booked once",
    )
    add_training_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Open the directory and train on."""
    from fedlens.server.run.directory import RunDirectory
    from fedlens.server.run.place import bind

    directory = RunDirectory.open(args.run_dir)
    directory.require_simulated()
    if args.only_copy:
        with directory.locked():
            bind(directory)
    return finish(args, directory.config(), directory)
