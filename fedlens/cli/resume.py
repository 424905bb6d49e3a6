"""``fedlens resume``: go on with an interrupted run."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli.output import add_json_flag
from fedlens.cli.simulate import TRANSPORTS, finish


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "resume",
        help="go on with a run that was interrupted",
        description="Go on from the last whole round. What was spent stays spent; a release that "
        "was paid for but lost with the process is not drawn again.",
        epilog="example: fedlens resume runs/demo",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--store", default="", help="URL of the store, where it is another one")
    parser.add_argument(
        "--transport", choices=TRANSPORTS, default="in-process", help="how messages travel"
    )
    parser.add_argument("--no-student", action="store_true", help="do not train a student")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Open the directory and train on."""
    from server.run_directory import RunDirectory

    directory = RunDirectory.open(args.run_dir)
    return finish(args, directory.config(), directory)
