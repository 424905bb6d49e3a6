"""``fedlens privatizer curve``: a method's filters at several points, each attacked afresh."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli.flags import SEEDS, add_json_flag, add_seeds_flag, make_out_folder, parse_seeds
from fedlens.cli.output import print_json, program, say, tell
from fedlens.cli.own_records import add_column_flags, with_columns
from fedlens.foundation.errors import ExitStatus, WrongUse

if TYPE_CHECKING:
    from fedlens_research.tradeoff.figures import Curve
    from fedlens_research.tradeoff.report import CurvePlan

METHODS = ("information", "cloak", "alpha")
DATA = "embedded-mnist-thickness"
OUT = Path("runs")
STORE = "store.db"


def add_parser(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The action and its flags."""
    curve = actions.add_parser(
        "curve",
        help="a curve of utility against leakage, every point attacked afresh",
        description="Train a method at several points and seeds, attack every filter by attackers "
        "who have it and by others, on records that it never saw, print a table, draw plots and a "
        "sheet of records before and after, and store the figures. Goes on where it was stopped. "
        "Simulation only: raw data is used and no budget is kept. The sheet shows real records "
        "where the data are real; it stays in the folder and out of the store.",
        epilog="example: fedlens privatizer curve --method alpha --quick",
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
        "order and weight for alpha (1:20 for images); default: the method's own",
    )
    add_seeds_flag(curve)
    add(
        "--attackers",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of likelihood, code, decode, residual, features, logistic, trees, same, wide "
        "(default: all; quick: code logistic same); the data's formula, if it has one, and the "
        "lines of reference are always there, unlike in `attack`",
    )
    add("--quick", action="store_true", help="one or two points, one seed, small networks")
    add("--data-dir", help="folder of the data sets' files")
    add("--store", default="", help="URL of the store (default: store.db in the folder)")
    add_json_flag(curve)
    curve.set_defaults(run=run_curve_verb)


def run_curve_verb(args: argparse.Namespace) -> int:
    """Train, attack, print, draw, store."""
    from fedlens.api.attacks import require_attackers
    from fedlens.models.shapes import ShapeError
    from fedlens.privatizers.private_data import PrivateDataError
    from fedlens.privatizers.protocol import PrivatizerError

    require_attackers()
    from fedlens_research.tradeoff.report import run_curve
    from fedlens_research.tradeoff.store import store_curve

    data = with_columns(args)
    out = make_out_folder(args.out or OUT / f"privatizer-{args.method}")
    seeds = tuple(parse_seeds(args.seeds, quick=args.quick))
    try:
        found = run_curve(_plan(args, data, out, seeds), tell)
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


def _plan(args: argparse.Namespace, data: str, out: Path, seeds: tuple[int, ...]) -> CurvePlan:
    from fedlens_research.tradeoff.report import CurvePlan

    return CurvePlan(
        method=args.method,
        data=data,
        out=out,
        seeds=seeds,
        points=tuple(args.points),
        attackers=tuple(args.attackers),
        quick=args.quick,
        data_dir=None if args.data_dir is None else Path(args.data_dir),
    )


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
