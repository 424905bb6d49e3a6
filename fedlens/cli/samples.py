"""``fedlens samples``: contact sheets of what a run released, and the samples themselves."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument
from fedlens.cli.output import print_json, say
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.api.runs import Run
    from fedlens.store.records import Purpose

KINDS = ("curated", "faithful", "strip")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "samples",
        help=VERBS["samples"],
        description="Write a contact sheet of samples in the store, with their provenance on it.",
        epilog="example: fedlens samples runs/demo --kind faithful --png faithful.png",
    )
    add_run_argument(parser)
    add = parser.add_argument
    add(
        "--kind",
        choices=KINDS,
        help="curated, for labels and students; faithful, to look for faults; or the strip of a "
        "round (default: curated, or the strip where a round is given)",
    )
    add("--round", type=int, help="of this round (default: the last)")
    add("--rows", type=int, default=8, help="samples a class (default: 8)")
    add("--png", type=Path, help="file to write (default: in the run's pictures)")
    add(
        "--beside",
        nargs="?",
        const="",
        metavar="RUN",
        help="draw curated and faithful samples side by side, and those of another run's faithful "
        "batch where one is named",
    )
    add("--export", type=Path, metavar="ZIP", help="also write the samples and a table of them")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Read the store, draw, export, say where."""
    from fedlens.api.runs import open_run

    if args.rows < 1:
        raise WrongUse(f"--rows {args.rows}: give at least 1")
    _check_ending("--png", args.png, ".png")
    _check_ending("--export", args.export, ".zip")
    run = open_run(args.run_dir, store=args.store)
    if args.beside is not None:
        written = {"contact_sheet": _draw_beside(run, args.beside, args.rows, args.png)}
    else:
        kind: Purpose = args.kind or ("curated" if args.round is None else "strip")
        written = _draw(run, kind, args)
    for place in written.values():
        say(place)
    if args.json:
        print_json(written)
    return 0


def _check_ending(flag: str, path: Path | None, ending: str) -> None:
    if path is not None and path.suffix.lower() != ending:
        raise WrongUse(f"{flag} {path}: name a file that ends in {ending}")


def _draw(run: Run, kind: Purpose, args: argparse.Namespace) -> dict[str, str]:
    """The contact sheet and, where asked for, the archive: the place of each."""
    from fedlens.simulations.engine import draw_sheet
    from fedlens.store import open_store

    with open_store(run.store) as store:
        sheet = draw_sheet(
            store,
            run.directory,
            run.id,
            purpose=kind,
            round_number=args.round,
            rows=args.rows,
            path=args.png,
        )
    if args.export is None:
        return {"contact_sheet": sheet}
    run.export(args.export, kind=kind, round=args.round)
    return {"contact_sheet": sheet, "export": str(args.export)}


def _draw_beside(run: Run, other: str, rows: int, png: Path | None) -> str:
    """Curated and faithful samples side by side, and another run's faithful ones."""
    from fedlens.api.runs import open_run
    from fedlens.simulations.plots.beside import Sheet, draw_beside

    wanted: list[tuple[Run, Purpose]] = [(run, "curated"), (run, "faithful")]
    if other:
        wanted.append((open_run(other), "faithful"))
    sheets = []
    for one, kind in wanted:
        found = one.samples(kind=kind)
        sheets.append(
            Sheet(f"{one.path.name}: {kind}", found.images, found.labels, found.provenance.words)
        )
    path = png or run.path / "pictures" / "beside.png"
    draw_beside(sheets, rows=rows, path=path)
    return str(path)
