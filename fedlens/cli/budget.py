"""``fedlens budget`` and ``fedlens calibrate``: what schedules cost, what a budget allows."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.accountant.wording import shown
from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, select_flags
from fedlens.cli.output import figure, print_json, print_table, say
from fedlens.foundation.errors import WrongUse

pass

pass

if TYPE_CHECKING:
    from fedlens.accountant.bayesian.assessment import Assessment
    from fedlens.accountant.bayesian.percentiles import Percentile
    from fedlens.accountant.bounds import Bound
    from fedlens.accountant.planning import WhatIf
    from fedlens.api.budgets import Budget, Calibration

NEEDED = ("--sampling-rate", "--noise-multiplier", "--delta", "--rounds")
MEANINGS = {
    "as_published": "as published: equations 6-8 of the paper; bounds nothing",
    "corrected": "corrected: Hölder over rounds, Student-t; an estimate",
    "sound": "sound: distribution-free confidence bounds",
    "dp": "differential privacy at the same δ, for anybody",
    "panel": "panel: the norms are all users' there are; no confidence needed",
}


def add_bayesian_parser(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-verb and its flags."""
    parser = kinds.add_parser(
        "bayesian",
        help="Bayesian differential privacy of given norms",
        description="Bayesian differential privacy of a list of norms, observed in each of T like "
        "rounds, beside differential privacy at the same δ. Norms are private: keep the "
        "figures as you keep the norms.",
        epilog="example: fedlens budget bayesian --norms norms.json --clipping-norm 1 "
        "--noise-multiplier 1 --sampling-rate 0.01 --rounds 1000 --delta 1e-10",
    )
    add = parser.add_argument
    add(
        "--norms",
        type=Path,
        required=True,
        metavar="FILE",
        help="JSON list of norms after clipping, absolute, at most C",
    )
    add("--clipping-norm", type=float, required=True, metavar="C", help="L2 bound of an update")
    add_mechanism_flags(parser, required=NEEDED)
    add("--orders", metavar="A:B", help="orders λ to try, as 1:64 or 2,4,8")
    add(
        "--gamma", type=float, metavar="G", help="failure of one confidence bound (default: 1%% of "
        "δ, split over rounds and orders)",
    )  # fmt: skip
    add("--panel", action="store_true", help="the norms are those of all users there are")
    add("--plot", type=Path, metavar="FILE", help="draw the percentile curve (PNG)")
    add_json_flag(parser)
    parser.set_defaults(run=run_bayesian)


def run_bayesian(args: argparse.Namespace) -> int:
    """Assess the norms and print every figure beside differential privacy."""
    from fedlens.accountant.bayesian.assessment import assess
    from fedlens.api.budgets import check_users, event_of

    check_users(args.users)

    optional: dict[str, Any] = {} if args.orders is None else {"orders": parse_orders(args.orders)}
    norms = read_norms(args.norms)
    event = event_of(args.unit, args.sampler, args.sampling_rate, args.noise_multiplier)
    assessment = assess(
        norms,
        **select_flags(args, "rounds", "delta", "gamma", "panel", "users", "clipping_norm"),
        **select_flags(args, "sampling_rate", "noise_multiplier", "unit"),
        sampler=event.sampler,
        **optional,
    )
    _print_assessment(assessment, args.delta)
    if args.plot is not None:
        from fedlens.simulations.plots.style import plot_percentiles

        plot_percentiles(assessment, args.delta, args.plot)
        say(f"plot: {args.plot}")
    if args.json:
        print_json(_record(assessment, args))
    return 0


def read_norms(path: Path) -> list[float]:
    """A JSON list of numbers.

    Raises:
        WrongUse: the file holds something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise WrongUse(f"--norms {path}: not JSON ({error}); give a list of numbers") from error
    if not isinstance(found, list) or not all(_is_number(value) for value in found):
        raise WrongUse(f"--norms {path}: give a JSON list of numbers, one norm a user")
    try:
        return [float(value) for value in found]
    except OverflowError as error:
        raise WrongUse(f"--norms {path}: one number is too large; give norms up to C") from error


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _figures(assessment: Assessment) -> dict[str, Bound]:
    found = {name: getattr(assessment, name) for name in MEANINGS}
    return {name: bound for name, bound in found.items() if bound is not None}


def _print_assessment(assessment: Assessment, delta: float) -> None:
    for name, bound in _figures(assessment).items():
        say(f"ε = {figure(bound.epsilon):>9}  order {bound.order:<6g} {MEANINGS[name]}")
    failure = assessment.confidence_failure
    say(f"All at δ = {delta:g}; confidence bounds fail with probability {failure:.3g} within it.")
    if assessment.corrected.epsilon > assessment.dp.epsilon:
        say(
            "Differential privacy is below the corrected figure here: it holds, and is what counts."
        )
    say(f"ε that holds at δ = {delta:g} for a share of users at least: sound / corrected")
    curves = zip(assessment.percentiles, assessment.percentiles_corrected, strict=True)
    for sound, corrected in curves:
        mark = "" if sound.meaningful else "  (leaves out less than one user: says nothing)"
        epsilons = " / ".join(f"{figure(p.bound.epsilon):>8}" for p in (sound, corrected))
        say(f"  {share_in_words(sound.share):>8}  {epsilons}{mark}")
    for warning in assessment.warnings:
        say(f"Note: {warning}.")


def _record(assessment: Assessment, args: argparse.Namespace) -> dict[str, Any]:
    record: dict[str, Any] = {name: bound.to_json() for name, bound in _figures(assessment).items()}
    record["corrected"]["confidence_failure"] = assessment.confidence_failure
    return {
        **record,
        "delta": args.delta,
        "rounds": args.rounds,
        "percentiles": _curve(assessment.percentiles),
        "percentiles_corrected": _curve(assessment.percentiles_corrected),
        "warnings": list(assessment.warnings),
    }


def _curve(points: Sequence[Percentile]) -> list[dict[str, Any]]:
    return [{"share": p.share, "meaningful": p.meaningful, **p.bound.to_json()} for p in points]


CALIBRATE_EPILOG = """examples:
  fedlens calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01 --rounds 10000
  fedlens calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01 --noise-multiplier 4"""


def add_calibrate_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "calibrate",
        help=VERBS["calibrate"],
        description="Find the least noise for a number of rounds, or the most rounds for a noise, "
        "that keep within (ε, δ). Give one of --rounds and --noise-multiplier.",
        epilog=CALIBRATE_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--epsilon", type=float, required=True, metavar="E", help="ε to stay within, above 0"
    )
    add_mechanism_flags(parser, required=("--sampling-rate", "--delta"))
    add_json_flag(parser)
    parser.set_defaults(run=run_calibrate)


def run_calibrate(args: argparse.Namespace) -> int:
    """Search with the best accountant and with the moments accountant alone."""
    from fedlens.api.budgets import calibrate

    found = calibrate(epsilon=args.epsilon, **mechanism_of(args), users=args.users)
    _print_calibration(found)
    if args.json:
        print_json({**found.to_json(), "sampling_rate": args.sampling_rate, "delta": args.delta})
    return 0


def _print_calibration(found: Calibration) -> None:
    if found.budget is None:
        say("No round fits into this budget with this noise.")
        return
    if found.sought == "rounds":
        alone = "no number" if found.moments is None else f"{found.moments:g}"
        say(f"{found.rounds} rounds (the moments accountant alone would allow {alone})")
    else:
        alone = "more than there is" if found.moments is None else shown(found.moments, 6)
        say(
            f"noise multiplier {shown(found.noise_multiplier, 6)} (the moments accountant alone "
            f"would ask for {alone})"
        )
    say(found.budget.statement)


# Flags that describe a schedule of releases; shared by ``budget`` and ``calibrate``.

SAMPLERS = ("poisson", "none")
MOST_ORDER = 4096
_PERCENT = 100


def add_mechanism_flags(parser: argparse.ArgumentParser, *, required: Sequence[str]) -> None:
    """Flags of one round's mechanism.

    Args:
        parser: to add them to.
        required: flags that the parser itself must insist on.
    """
    numbers = (
        ("--sampling-rate", "Q", "chance of one unit to take part in a round, in (0, 1]"),
        ("--noise-multiplier", "Z", "noise standard deviation over the clipping norm, on the sum"),
        ("--delta", "D", "δ in (0, 1), well below one over the number of users"),
    )
    add = parser.add_argument
    for flag, mark, said in numbers:
        needed = flag in required
        add(flag, type=float, metavar=mark, help=said, required=needed)
    needed = "--rounds" in required
    add("--rounds", type=int, metavar="T", help="number of rounds", required=needed)
    add(
        "--sampler", choices=SAMPLERS, help="how cohorts are drawn (default: poisson; none for q=1)"
    )
    add("--unit", choices=("user", "record"), default="user", help="whom it protects: %(default)s")
    add("--users", type=int, metavar="N", help="enrolled users, to judge δ by")


def require_flags(args: argparse.Namespace, *flags: str) -> None:
    """Refuse a command that leaves one of ``flags`` out.

    Raises:
        WrongUse: naming the flag.
    """
    missing = [f for f in flags if getattr(args, f.removeprefix("--").replace("-", "_")) is None]
    if missing:
        raise WrongUse(f"{', '.join(missing)} must be given; see `fedlens {args.verb} --help`")


def mechanism_of(args: argparse.Namespace) -> dict[str, Any]:
    """The flags of `add_mechanism_flags` as the API's arguments."""
    names = ("sampling_rate", "noise_multiplier", "delta", "rounds", "sampler", "unit")
    return select_flags(args, *names)


def releases_of(args: argparse.Namespace) -> list[tuple[str, float]]:
    """The one-shot releases of ``--release NAME=Z``.

    Raises:
        WrongUse: one that has no such form.
    """
    found = []
    for text in args.release:
        name, mark, noise = text.rpartition("=")
        try:
            found.append((name, float(noise)))
        except ValueError:
            mark = ""
        if not mark or not name:
            raise WrongUse(f"--release {text!r}: write NAME=Z, as in --release 'class counts=5'")
    return found


def parse_orders(text: str) -> tuple[int, ...]:
    """Orders from ``1:64`` (both ends included), ``2,4,8`` or both forms joined by commas.

    Raises:
        WrongUse: anything else.
    """
    orders: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition(":")
            orders.extend(range(int(first), min(int(last or first), MOST_ORDER) + 1))
    except ValueError:
        orders = []
    if not orders or min(orders) < 1 or max(orders) >= MOST_ORDER:
        raise WrongUse(
            f"--orders {text!r}: give whole numbers ≥ 1, below {MOST_ORDER}, as in 1:64 or 2,4,8"
        )
    return tuple(sorted(set(orders)))


def share_in_words(share: float) -> str:
    """A share of users as a percentage."""
    return f"{share * _PERCENT:.6g}%"


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
    add_bayesian_parser(kinds)


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
