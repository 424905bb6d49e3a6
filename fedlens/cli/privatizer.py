"""``fedlens privatizer``: what a filter is worth, and filters as files for devices."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli.output import add_json_flag, print_json, program, say

if TYPE_CHECKING:
    from studies.tradeoff.figures import Curve
    from studies.tradeoff.report import CurvePlan

METHODS = ("information", "cloak", "alpha")
KINDS = ("torch", "onnx")
DATA = "embedded-mnist-thickness"
OUT = Path("runs")
STORE = "store.db"
QUICK_SEEDS, SEEDS = (0,), (0, 1, 2)


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "privatizer",
        help="train filters, attack each afresh, and export them",
        description="Report on filters that devices run before data leaves them. Simulation only: "
        "trained and measured on raw data, without a budget.",
        epilog="example: fedlens privatizer curve --method cloak --quick",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_curve(actions)
    _add_export(actions)


def _add_curve(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    curve = actions.add_parser(
        "curve",
        help="a curve of use against secret, every point attacked afresh",
        description="Train a method at several points and seeds, attack every filter with fresh "
        "attackers on records that it never saw, print a table, draw plots and a sheet of records "
        "before and after, and store the figures. Goes on where it was stopped. Simulation only: "
        "raw data is used and no budget is kept. The sheet shows real records where the data are "
        "real; it stays in the folder and out of the store.",
        epilog="example: fedlens privatizer curve --method cloak --quick",
    )
    curve.add_argument("--method", required=True, choices=METHODS, help="what filters are trained")
    curve.add_argument("--data", default=DATA, help="source of records (default: %(default)s)")
    curve.add_argument("--out", type=Path, help="folder (default: runs/privatizer-METHOD)")
    curve.add_argument(
        "--points",
        nargs="+",
        default=[],
        metavar="POINT",
        help="places on the curve: alpha for information (0.8), suppression ratio for cloak (0.4), "
        "order and weight for alpha (1:1.5); default: the method's own",
    )
    curve.add_argument(
        "--seeds", nargs="+", default=[], metavar="N", help="seeds (default: 0 1 2; quick: 0)"
    )
    curve.add_argument(
        "--attackers",
        nargs="+",
        default=[],
        metavar="NAME",
        help="of logistic, trees, same, wide (default: all; quick: logistic same); the data's "
        "formula, if it has one, and the lines of reference are always there",
    )
    curve.add_argument(
        "--quick", action="store_true", help="one or two points, one seed, small networks"
    )
    curve.add_argument("--data-dir", help="folder of the data sets' files")
    curve.add_argument(
        "--store", default="", help="URL of the store (default: store.db in the folder)"
    )
    curve.add_argument(
        "--json", action="store_true", help="print the list of points as the last line"
    )
    curve.set_defaults(run=run_curve_verb)


def _add_export(actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = actions.add_parser(
        "export",
        help="a trained filter as a file that devices run",
        description="Export a filter that a curve kept or a run trained, its noise an input of the "
        "file. A file that does not do what the filter does is refused.",
        epilog="example: fedlens privatizer export runs/privatizer-cloak/filters/FILE.safetensors",
    )
    export.add_argument(
        "filter", type=Path, metavar="FILTER", help="file of a curve's filters/, or a run's folder"
    )
    export.add_argument(
        "--kind", choices=KINDS, default="torch", help="torch.export or ONNX (default: torch)"
    )
    export.add_argument(
        "--out", type=Path, help="file to write (default: beside or in FILTER, .pt2 or .onnx)"
    )
    add_json_flag(export)
    export.set_defaults(run=run_export)


def run_curve_verb(args: argparse.Namespace) -> int:
    """Train, attack, print, draw, store."""
    from client.datasets.attributes.data import PrivateDataError
    from fedlens.cli import DONE, WrongUse
    from models.shapes import ShapeError
    from privatizers.protocol import PrivatizerError
    from studies.tradeoff.report import run_curve
    from studies.tradeoff.store import store_curve

    try:
        plan = _plan(args)
        curve = run_curve(plan, _tell)
    except (PrivatizerError, PrivateDataError, ShapeError) as error:
        raise WrongUse(str(error)) from None
    _print(curve, plan)
    place = args.store or f"sqlite:///{plan.out / STORE}"
    number = store_curve(curve, place)
    say(f"stored without records, as curve {number}")
    if not args.store:
        say(f"  {program()} dashboard --store {plan.out / STORE}")
    if args.json:
        print_json(curve.rows())
    return DONE


def _plan(args: argparse.Namespace) -> CurvePlan:
    from studies.tradeoff.report import CurvePlan

    out = args.out or OUT / f"privatizer-{args.method}"
    return CurvePlan(
        method=args.method,
        data=args.data,
        out=_folder(out),
        seeds=_seeds(args),
        points=tuple(args.points),
        attackers=tuple(args.attackers),
        quick=args.quick,
        data_dir=Path(args.data_dir) if args.data_dir else None,
    )


def _seeds(args: argparse.Namespace) -> tuple[int, ...]:
    from fedlens.cli import WrongUse

    if not args.seeds:
        return QUICK_SEEDS if args.quick else SEEDS
    for text in args.seeds:
        if not text.isdecimal() or int(text) >= 1_000_000:
            raise WrongUse(f"--seeds {text!r}: give whole numbers from 0, below a million")
    return tuple(dict.fromkeys(int(text) for text in args.seeds))


def _folder(out: Path) -> Path:
    from fedlens.cli import WrongUse

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUse(f"--out {out}: cannot be written to: {error.strerror}") from None
    return out


def _print(curve: Curve, plan: CurvePlan) -> None:
    from studies.framework.tables import print_table, table_of
    from studies.tradeoff.certified import BOUND_WORDS
    from studies.tradeoff.figures import BLIND, LABEL, columns_of

    print_table(table_of(curve.table(), columns_of(curve)))
    say()
    say("secret: balanced accuracy of attackers fitted on released records, scored on others")
    for name in BLIND:
        if name in curve.raw.attackers:
            level = curve.raw.attack(name, "balanced") or 0.0
            say(f"  {name} only, without looking at a record: {level:.3f}")
    if curve.least_sum is not None:
        say(f"  K = {curve.least_sum:.4f} nats leak at least, if all of the use is kept")
    say(f"certified_nats: {BOUND_WORDS}")
    if len(plan.seeds) < len(SEEDS):
        say(f"{len(plan.seeds)} seed(s): give --seeds 0 1 2 for deviations that mean something")
    say(LABEL)
    for made in (*curve.plots, plan.out / "points.json"):
        say(f"  {made}")


def run_export(args: argparse.Namespace) -> int:
    """Export a kept filter, say what was checked."""
    from fedlens.cli import DONE, WrongUse
    from privatizers.protocol import PrivatizerError

    try:
        found = _export(args)
    except PrivatizerError as error:
        raise WrongUse(str(error)) from None
    say(f"{found['path']}: {found['bytes']} bytes, off by at most {found['difference']:.2g}")
    say(f"{found['latency_ms_p50']:.3f} ms a record (median, one CPU thread)")
    say("noise is an input: it must be fresh for each record, from a source nobody can predict")
    if found["choices"]:
        say("choice is an input: 1 where the record's owner wants the secret hidden, else 0")
    if args.json:
        print_json(found)
    return DONE


def _export(args: argparse.Namespace) -> dict[str, object]:
    import torch

    from privatizers.classifiers import choices_of
    from privatizers.export import example_inputs, export_filter, latency_ms
    from privatizers.export import load_filter as load_exported
    from simulations.reading import kept_run_filter
    from studies.tradeoff.filter_files import load_filter

    of_run = args.filter.is_dir()
    filter_, shape = (kept_run_filter if of_run else load_filter)(args.filter)
    record = torch.zeros(shape)
    beside = args.filter / "filter" if of_run else args.filter
    out = args.out or beside.with_suffix({"torch": ".pt2", "onnx": ".onnx"}[args.kind])
    made = export_filter(filter_, record, out, args.kind)
    inputs = example_inputs(filter_, record)
    return {
        "path": str(made.path),
        "kind": made.kind,
        "bytes": made.size,
        "choices": choices_of(filter_),
        "difference": made.difference,
        "latency_ms_p50": latency_ms(load_exported(out, args.kind), inputs),
    }


def _tell(text: str) -> None:
    """One line for people on standard error, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
