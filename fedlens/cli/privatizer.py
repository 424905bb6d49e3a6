"""``fedlens privatizer``: what a filter is worth, and filters as files for devices."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import SEEDS, add_json_flag, add_seeds_flag, made_folder, parse_seeds
from fedlens.cli.output import print_json, program, say, tell
from fedlens.cli.own_records import add_apply, add_column_flags, with_columns
from fedlens.cli.privatizer_attack import add_attack
from fedlens.foundation.errors import ExitStatus, WrongUse

if TYPE_CHECKING:
    from fedlens_research.tradeoff.figures import Curve

METHODS = ("information", "cloak", "alpha")
KINDS = ("torch", "onnx")
DATA = "embedded-mnist-thickness"
OUT = Path("runs")
STORE = "store.db"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "privatizer",
        help=VERBS["privatizer"],
        description="Report on filters that devices run before data leaves them. Simulation only: "
        "trained and measured on raw data, without a budget.",
        epilog="example: fedlens privatizer curve --method cloak --quick",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_curve(actions)
    _add_export(actions)
    add_apply(actions)
    add_attack(actions)


def _add_curve(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    curve = actions.add_parser(
        "curve",
        help="a curve of utility against leakage, every point attacked afresh",
        description="Train a method at several points and seeds, attack every filter by attackers "
        "who have it and by others, on records that it never saw, print a table, draw plots and a "
        "sheet of records before and after, and store the figures. Goes on where it was stopped. "
        "Simulation only: raw data is used and no budget is kept. The sheet shows real records "
        "where the data are real; it stays in the folder and out of the store.",
        epilog="example: fedlens privatizer curve --method cloak --quick",
    )
    add = curve.add_argument
    add("--method", required=True, choices=METHODS, help="what filters are trained")
    add("--data", default=DATA, help="source of records (default: %(default)s)")
    add_column_flags(curve)
    add("--out", type=Path, help="folder (default: runs/privatizer-METHOD)")
    add(
        "--points",
        nargs="+",
        default=[],
        metavar="POINT",
        help="places on the curve: alpha for information (0.8), suppression ratio for cloak (0.4), "
        "order and weight for alpha (1:1.5); default: the method's own",
    )
    add_seeds_flag(curve)
    add(
        "--attackers",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of code, decode, residual, features, logistic, trees, same, wide (default: all; "
        "quick: code logistic same); the data's formula, if it has one, and the lines of reference "
        "are always there, unlike in `attack`",
    )
    add("--quick", action="store_true", help="one or two points, one seed, small networks")
    add("--data-dir", help="folder of the data sets' files")
    add("--store", default="", help="URL of the store (default: store.db in the folder)")
    add_json_flag(curve)
    curve.set_defaults(run=run_curve_verb)


def _add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = actions.add_parser(
        "export",
        help="a trained filter as a file that devices run",
        description="Export a filter that a curve or study kept or a run trained, its noise an "
        "input of the file. A file that does not do what the filter does is refused.",
        epilog="example: fedlens privatizer export runs/privatizer-cloak/filters/FILE.safetensors",
    )
    add = export.add_argument
    add(
        "filter",
        type=Path,
        metavar="FILTER",
        help="file of filters/ of a curve or study, or a run's folder",
    )
    add("--kind", choices=KINDS, help="torch.export or ONNX (default: as --out ends, else torch)")
    add("--out", type=Path, help="file to write, .pt2 or .onnx (default: beside or in FILTER)")
    add_json_flag(export)
    export.set_defaults(run=run_export)


def run_curve_verb(args: argparse.Namespace) -> int:
    """Train, attack, print, draw, store."""
    from fedlens.api.privatizer import curve
    from fedlens.models.shapes import ShapeError
    from fedlens.privatizers.private_data import PrivateDataError
    from fedlens.privatizers.protocol import PrivatizerError
    from fedlens_research.tradeoff.store import store_curve

    data = with_columns(args)
    out = made_folder(args.out or OUT / f"privatizer-{args.method}")
    seeds = parse_seeds(args.seeds, quick=args.quick)
    try:
        found = curve(
            args.method,
            data,
            out,
            seeds=seeds,
            points=args.points,
            attackers=args.attackers,
            quick=args.quick,
            data_dir=args.data_dir,
            tell=tell,
        )
    except (PrivatizerError, PrivateDataError, ShapeError) as error:
        raise WrongUse(str(error)) from None
    _print(found, out, len(seeds))
    place = args.store or f"sqlite:///{out / STORE}"
    number = store_curve(found, place)
    say(f"stored without records, as curve {number}")
    if not args.store:
        say(f"  {program()} dashboard --store {out / STORE}")
    if args.json:
        print_json({"curve": number, "points": found.rows()})
    return ExitStatus.DONE


def _print(curve: Curve, out: Path, seeds: int) -> None:
    from fedlens.foundation.tables import print_table, table_of
    from fedlens_research.tradeoff.certified import words_of as bound_words
    from fedlens_research.tradeoff.figures import BLIND, LABEL, columns_of, words_of

    print_table(table_of(curve.table(), columns_of(curve)))
    say()
    say(
        "attackers: balanced accuracy, on records that none of them was fitted on; what each knows:"
    )
    for name in dict.fromkeys(name for place in curve.places for name in place.looking):
        say(f"  {name}: {words_of(name)}")
    for name in BLIND:
        if name in curve.raw.attackers:
            level = curve.raw.attack(name, "balanced") or 0.0
            say(f"  {name} only, without looking at a record: {level:.3f}")
    if curve.least_sum is not None:
        say(f"  K = {curve.least_sum:.4f} nats leak at least, if all of the use is kept")
    everywhere = all(point.certified_for_any for point in curve.places)
    say(f"certified_nats: {bound_words(everywhere)}")
    if seeds < len(SEEDS):
        say(f"{seeds} seed(s): give --seeds 0 1 2 for deviations that mean something")
    say(LABEL)
    for made in (*curve.plots, out / "points.json"):
        say(f"  {made}")


def run_export(args: argparse.Namespace) -> int:
    """Export a kept filter, say what was checked."""
    from fedlens.api.privatizer import export
    from fedlens.privatizers.protocol import PrivatizerError

    try:
        found = export(args.filter, kind=args.kind, out=args.out).to_json()
    except PrivatizerError as error:
        raise WrongUse(str(error)) from None
    say(f"{found['path']}: {found['bytes']} bytes, off by at most {found['difference']:.2g}")
    say(f"{found['latency_ms_p50']:.3f} ms a record (median, one CPU thread)")
    say("noise is an input: a record's own, not to be guessed, the same at each release of it")
    if found["choices"]:
        say("choice is an input: 1 where the record's owner wants the attribute hidden, else 0")
    if args.json:
        print_json(found)
    return ExitStatus.DONE
