"""``fedlens budget``: what a schedule of releases costs, before anything is released."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.accountant.wording import shown
from fedlens.cli import VERBS, bayesian_budget
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import figure, print_json, print_table, say
from fedlens.cli.schedules import add_mechanism_flags, mechanism_of, releases_of, require_flags
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.accountant.planning import WhatIf
    from fedlens.api.budgets import Budget

EPILOG = """examples:
  fedlens budget --sampling-rate 0.01 --noise-multiplier 1 --rounds 1000 --delta 1e-5
  fedlens budget --sampling-rate 0.01 --noise-multiplier 1 --rounds 1000 --delta 1e-5 \\
      --users 10000 --release 'class counts=10' --what-if --plot budget.png
  fedlens budget bayesian --help"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its flags and its sub-verb."""
    parser = verbs.add_parser(
        "budget",
        help=VERBS["budget"],
        description="Say what a schedule costs: differential privacy by the moments accountant "
        "and by a tight one. Looks at no data.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_mechanism_flags(parser, required=())
    add = parser.add_argument
    add(
        "--release",
        action="append",
        default=[],
        metavar="NAME=Z",
        help="a vector released once besides, with noise Z times its sensitivity; may be repeated",
    )
    add("--at-epsilon", type=float, metavar="E", help="say the δ that holds at this ε as well")
    add("--what-if", action="store_true", help="tables of ε against rounds, noise and users")
    add("--plot", type=Path, metavar="FILE", help="draw these tables as a PNG")
    add_json_flag(parser)
    parser.set_defaults(run=run)
    kinds = parser.add_subparsers(dest="kind", metavar="[bayesian]", required=False)
    bayesian_budget.add_parser(kinds)


def run(args: argparse.Namespace) -> int:
    """Price the schedule and print it."""
    require_flags(args, "--sampling-rate", "--noise-multiplier", "--rounds", "--delta")
    if args.at_epsilon is not None and not math.isfinite(args.at_epsilon):
        raise WrongUse(f"--at-epsilon {args.at_epsilon}: give a finite epsilon ≥ 0")
    from fedlens.api.budgets import budget

    found = budget(**mechanism_of(args), users=args.users, releases=releases_of(args))
    at = None if args.at_epsilon is None else found.delta_at(args.at_epsilon)
    tables = found.what_if() if args.what_if or args.plot else {}
    _print(found)
    if at is not None:
        say(f"At ε = {args.at_epsilon:g}, δ = {shown(at, 4)}.")
    told = tables if args.what_if else {}
    _print_tables(told, found.plan.delta)
    if args.plot is not None:
        from fedlens.simulations.plots.style import plot_what_if

        plot_what_if(found.plan, tables, args.plot)
        say(f"plot: {args.plot}")
    if args.json:
        what_if = {
            name: [{"value": line.value, **line.cost.best.to_json()} for line in lines]
            for name, lines in told.items()
        }
        told_at = None if at is None else {"epsilon": args.at_epsilon, "delta": at}
        plot = None if args.plot is None else str(args.plot)
        print_json({**found.to_json(), "at_epsilon": told_at, "what_if": what_if, "plot": plot})
    return 0


def _print(found: Budget) -> None:
    cost = found.cost
    say(f"moments accountant   ε = {figure(cost.rdp.epsilon)}  (order {cost.rdp.order:g})")
    tight = cost.tight.method or "no tight computation is known to be valid here"
    say(f"tight accountant     ε = {figure(cost.tight.epsilon)}  ({tight})")
    say(found.statement)


def _print_tables(what_if: Mapping[str, Sequence[WhatIf]], delta: float) -> None:
    for name, lines in what_if.items():
        rows = (
            [f"{line.value:.4g}"]
            + [figure(b.epsilon) for b in (line.cost.best, line.cost.rdp, line.cost.tight)]
            for line in lines
        )
        print_table((name, "ε", "moments", "tight"), rows, f"ε against {name} (δ = {delta:g})")
