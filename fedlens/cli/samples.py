"""``fedlens samples``: a contact sheet of what a run released."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli.flags import add_json_flag, add_run_argument
from fedlens.cli.output import print_json, say
from foundation.errors import WrongUse


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "samples",
        help="write a contact sheet (PNG) of a run's samples",
        description="Write a contact sheet of samples in the store, with their provenance on it.",
        epilog="example: fedlens samples runs/demo --round 2 --png round-2.png",
    )
    add_run_argument(parser)
    add = parser.add_argument
    add("--round", type=int, help="the strip of this round (default: the release)")
    add("--rows", type=int, default=8, help="samples a class (default: 8)")
    add("--png", type=Path, help="file to write (default: in the run's pictures)")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the store, draw, say where."""
    from fedlens.runs import open_run
    from server.store import open_store
    from simulations.engine import draw_sheet

    if args.rows < 1:
        raise WrongUse(f"--rows {args.rows}: give at least 1")
    if args.png is not None and args.png.suffix.lower() != ".png":
        raise WrongUse(f"--png {args.png}: name a file that ends in .png")
    run = open_run(args.run_dir, store=args.store)
    with open_store(run.store) as store:
        written = draw_sheet(
            store, run.directory, run.id, round_number=args.round, rows=args.rows, path=args.png
        )
    say(written)
    if args.json:
        print_json({"contact_sheet": written})
    return 0
