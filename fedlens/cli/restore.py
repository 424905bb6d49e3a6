"""``fedlens restore``: a run back from its archive, verified."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli import VERBS
from fedlens.cli.output import program, say


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "restore",
        help=VERBS["restore"],
        description="Check every file's hash, the ledger's chain and the store's mirror of it, and "
        "bring the run's folder back. It does not go on until you say that it is the only one. A "
        "store elsewhere must be named: what the archive says of it is not taken.",
        epilog="example: fedlens restore demo.tar --out runs/demo",
    )
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="what backup wrote")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument(
        "--store", default="", help="URL of the run's store, where it is not in the archive"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Bring it back."""
    from fedlens.api.backups import restore

    made = restore(args.archive, args.out, store=args.store)
    say(f"{made.path} is back; its ledger holds")
    say(f"to go on with it:  {program()} resume {made.path} --only-copy")
    return 0
