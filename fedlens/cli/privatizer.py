"""``fedlens privatizer``: what a filter is worth, and filters as files for devices."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import print_json, say
from fedlens.cli.own_records import add_apply
from fedlens.cli.privatizer_attack import add_attack
from fedlens.cli.research import add_research_verb
from fedlens.foundation.errors import ExitStatus, WrongUse

KINDS = ("torch", "onnx")
CURVE = "a curve of utility against leakage, every point attacked afresh"


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
    add_research_verb(actions, "curve", CURVE, entry="privatizer-curve")
    _add_export(actions)
    add_apply(actions)
    add_attack(actions)


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
