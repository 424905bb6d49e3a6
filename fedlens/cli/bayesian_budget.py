"""``fedlens budget bayesian``: Bayesian differential privacy of norms that are known."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.cli.flags import add_json_flag, chosen
from fedlens.cli.output import figure, print_json, say
from fedlens.cli.schedules import add_mechanism_flags, parse_orders, share_in_words
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.accountant.bayesian.assessment import Assessment
    from fedlens.accountant.bayesian.percentiles import Percentile
    from fedlens.accountant.bounds import Bound

NEEDED = ("--sampling-rate", "--noise-multiplier", "--delta", "--rounds")
MEANINGS = {
    "as_published": "as published: equations 6-8 of the paper; bounds nothing",
    "corrected": "corrected: Hölder over rounds, Student-t; an estimate",
    "sound": "sound: distribution-free confidence bounds",
    "dp": "differential privacy at the same δ, for anybody",
    "panel": "panel: the norms are all users' there are; no confidence needed",
}


def add_parser(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Assess the norms and print every figure beside differential privacy."""
    from fedlens.accountant.bayesian.assessment import assess
    from fedlens.api.budgets import check_users, event_of

    check_users(args.users)

    optional: dict[str, Any] = {} if args.orders is None else {"orders": parse_orders(args.orders)}
    norms = read_norms(args.norms)
    event = event_of(args.unit, args.sampler, args.sampling_rate, args.noise_multiplier)
    assessment = assess(
        norms,
        **chosen(args, "rounds", "delta", "gamma", "panel", "users", "clipping_norm"),
        **chosen(args, "sampling_rate", "noise_multiplier", "unit"),
        sampler=event.sampler,
        **optional,
    )
    _print(assessment, args.delta)
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


def _print(assessment: Assessment, delta: float) -> None:
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
