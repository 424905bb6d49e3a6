"""``fedlens budget``: what a schedule of releases costs, before anything is released."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accountant.wording import shown
from fedlens.cli import WrongUse, bayesian_budget
from fedlens.cli.output import add_json_flag, bound_record, figure, print_json, say
from fedlens.cli.schedules import (
    add_mechanism_flags,
    check_users,
    plain_refusals,
    releases_of,
    require_flags,
    round_of,
)

if TYPE_CHECKING:
    from accountant.planning import Cost, PlannedSchedule

EPILOG = """examples:
  fedlens budget --sampling-rate 0.01 --noise-multiplier 1 --rounds 1000 --delta 1e-5
  fedlens budget --sampling-rate 0.01 --noise-multiplier 1 --rounds 1000 --delta 1e-5 \\
      --users 10000 --release 'class counts=10' --what-if --plot budget.png
  fedlens budget bayesian --help"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its flags and its sub-verb."""
    parser = verbs.add_parser(
        "budget",
        help="say what a schedule of releases costs",
        description="Say what a schedule costs: differential privacy by the moments accountant "
        "and by a tight one. Looks at no data.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_mechanism_flags(parser, required=())
    parser.add_argument(
        "--release",
        action="append",
        default=[],
        metavar="NAME=Z",
        help="a vector released once besides, with noise Z times its sensitivity; may be repeated",
    )
    parser.add_argument(
        "--at-epsilon", type=float, metavar="E", help="say the δ that holds at this ε as well"
    )
    parser.add_argument(
        "--what-if", action="store_true", help="tables of ε against rounds, noise and users"
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw these tables as a PNG")
    add_json_flag(parser)
    parser.set_defaults(run=run)
    kinds = parser.add_subparsers(dest="kind", metavar="[bayesian]", required=False)
    bayesian_budget.add_parser(kinds)


def run(args: argparse.Namespace) -> int:
    """Price the schedule and print it."""
    require_flags(args, "--sampling-rate", "--noise-multiplier", "--rounds", "--delta")
    check_users(args.users)
    if args.at_epsilon is not None and not math.isfinite(args.at_epsilon):
        raise WrongUse(f"--at-epsilon {args.at_epsilon}: give a finite epsilon ≥ 0")
    from accountant.planning import PlannedSchedule, tables

    with plain_refusals():
        event = round_of(args, args.noise_multiplier)
        plan = PlannedSchedule(event, args.rounds, args.delta, releases_of(args), args.users)
        cost = plan.cost()
        at = None if args.at_epsilon is None else plan.accountant().delta(args.at_epsilon)
        what_if = tables(plan) if args.what_if or args.plot else {}
    _print(plan, cost)
    if at is not None:
        say(f"At ε = {args.at_epsilon:g}, δ = {shown(at, 4)}.")
    _print_tables(what_if if args.what_if else {}, plan.delta)
    plot = _draw(args.plot, plan, what_if)
    if args.json:
        print_json(_record(plan, cost, args, at, what_if if args.what_if else {}, plot))
    return 0


def _print(plan: PlannedSchedule, cost: Cost) -> None:
    say(f"moments accountant   ε = {figure(cost.rdp.epsilon)}  (order {cost.rdp.order:g})")
    tight = cost.tight.method or "no tight computation is known to be valid here"
    say(f"tight accountant     ε = {figure(cost.tight.epsilon)}  ({tight})")
    say(plan.statement(cost.best))


def _print_tables(what_if: Mapping[str, Any], delta: float) -> None:
    from rich.console import Console
    from rich.table import Table

    for name, lines in what_if.items():
        table = Table(name, "ε", "moments", "tight", title=f"ε against {name} (δ = {delta:g})")
        for line in lines:
            cost = line.cost
            bounds = (cost.best, cost.rdp, cost.tight)
            table.add_row(f"{line.value:.4g}", *(figure(bound.epsilon) for bound in bounds))
        Console(soft_wrap=True).print(table)


def _draw(path: Path | None, plan: PlannedSchedule, what_if: Mapping[str, Any]) -> str | None:
    if path is None:
        return None
    from simulations.plots.style import plot_what_if

    plot_what_if(plan, what_if, path)
    say(f"plot: {path}")
    return str(path)


def _record(
    plan: PlannedSchedule,
    cost: Cost,
    args: argparse.Namespace,
    at: float | None,
    what_if: Mapping[str, Any],
    plot: str | None,
) -> dict[str, Any]:
    return {
        "rdp": bound_record(cost.rdp),
        "tight": bound_record(cost.tight),
        **bound_record(cost.best),
        "order": cost.rdp.order,
        "delta": plan.delta,
        "at_epsilon": None if at is None else {"epsilon": args.at_epsilon, "delta": at},
        "what_if": {
            name: [{"value": line.value, **bound_record(line.cost.best)} for line in lines]
            for name, lines in what_if.items()
        },
        "plot": plot,
        "schedule": [{"event": event.to_json(), "times": n} for event, n in plan.schedule],
        "statement": plan.statement(cost.best),
    }
