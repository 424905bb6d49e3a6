"""``fedlens samples``: a contact sheet of what a run released."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli.output import add_json_flag, print_json, say


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "samples",
        help="write a contact sheet (PNG) of a run's samples",
        description="Write a contact sheet of samples in the store, with their provenance on it.",
        epilog="example: fedlens samples runs/demo --round 2 --png round-2.png",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--round", type=int, help="the strip of this round (default: the release)")
    parser.add_argument("--rows", type=int, default=8, help="samples a class (default: 8)")
    parser.add_argument("--png", type=Path, help="file to write (default: in the run's pictures)")
    parser.add_argument("--store", default="", help="URL of the store, where it is another one")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the store, draw, say where."""
    from fedlens.cli import WrongUse
    from server.run_directory import RunDirectory
    from server.store import open_store
    from simulations.engine import draw_sheet
    from simulations.reading import run_id_of, store_url_of

    if args.rows < 1:
        raise WrongUse(f"--rows {args.rows}: give at least 1")
    if args.png is not None and args.png.suffix.lower() != ".png":
        raise WrongUse(f"--png {args.png}: name a file that ends in .png")
    directory = RunDirectory.open(args.run_dir)
    with open_store(store_url_of(directory, args.store)) as store:
        written = draw_sheet(
            store,
            directory,
            run_id_of(directory),
            round_number=args.round,
            rows=args.rows,
            path=args.png,
        )
    say(written)
    if args.json:
        print_json({"contact_sheet": written})
    return 0
