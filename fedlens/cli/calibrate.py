"""``fedlens calibrate``: the noise, or the rounds, that a budget allows."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from accountant.wording import shown
from fedlens.cli import WrongUse
from fedlens.cli.output import add_json_flag, bound_record, print_json, say
from fedlens.cli.schedules import add_mechanism_flags, check_users, plain_refusals, round_of

if TYPE_CHECKING:
    from accountant.planning import PlannedSchedule

EPILOG = """examples:
  fedlens calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01 --rounds 10000
  fedlens calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01 --noise-multiplier 4"""


@dataclass(frozen=True)
class Found:
    """An answer by one accountant."""

    noise_multiplier: float
    rounds: int


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "calibrate",
        help="find the noise or the rounds that a budget allows",
        description="Find the least noise for a number of rounds, or the most rounds for a noise, "
        "that keep within (ε, δ). Give one of --rounds and --noise-multiplier.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--epsilon", type=float, required=True, metavar="E", help="ε to stay within, above 0"
    )
    add_mechanism_flags(parser, required=("--sampling-rate", "--delta"))
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Search with the best accountant and with the moments accountant alone."""
    if (args.rounds is None) == (args.noise_multiplier is None):
        raise WrongUse("give one of --rounds (to find the noise) and --noise-multiplier")
    check_users(args.users)
    with plain_refusals():
        best, moments = _search(args, "best"), _moments(args)
    if best.rounds == 0:
        say("No round fits into this budget with this noise.")
    else:
        _print(args, best, moments)
    if args.json:
        print_json(_record(args, best, moments))
    return 0


def _moments(args: argparse.Namespace) -> Found | None:
    """The moments accountant's answer, or None where its orders reach no such budget."""
    from accountant.dp.calibration import CalibrationError

    try:
        return _search(args, "rdp")
    except CalibrationError:
        return None


def _search(args: argparse.Namespace, method: Literal["best", "rdp"]) -> Found:
    from accountant.dp.calibration import noise_for, rounds_within

    if args.rounds is None:
        event = round_of(args, args.noise_multiplier)
        most = rounds_within(event, epsilon=args.epsilon, delta=args.delta, method=method)
        return Found(args.noise_multiplier, most)
    event = round_of(args, 1.0)
    noise = noise_for(
        epsilon=args.epsilon,
        delta=args.delta,
        rounds=args.rounds,
        sampling_rate=args.sampling_rate,
        sampler=event.sampler,
        adjacency=event.adjacency,
        method=method,
    )
    return Found(noise, args.rounds)


def _plan(args: argparse.Namespace, found: Found) -> PlannedSchedule:
    from accountant.planning import PlannedSchedule

    event = round_of(args, found.noise_multiplier)
    return PlannedSchedule(event, found.rounds, args.delta, users=args.users)


def _print(args: argparse.Namespace, best: Found, moments: Found | None) -> None:
    plan = _plan(args, best)
    if args.rounds is None:
        alone = "no number" if moments is None else str(moments.rounds)
        say(f"{best.rounds} rounds (the moments accountant alone would allow {alone})")
    else:
        alone = "more than there is" if moments is None else shown(moments.noise_multiplier, 6)
        say(
            f"noise multiplier {shown(best.noise_multiplier, 6)} (the moments accountant alone "
            f"would ask for {alone})"
        )
    say(plan.statement(plan.cost().best))


def _record(args: argparse.Namespace, best: Found, moments: Found | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "noise_multiplier": best.noise_multiplier,
        "rounds": best.rounds,
        "sampling_rate": args.sampling_rate,
        "delta": args.delta,
        "target_epsilon": args.epsilon,
        "rdp": None if moments is None else asdict(moments),
    }
    if best.rounds == 0:
        return {**record, "epsilon": 0.0, "order": 0.0, "method": "", "statement": ""}
    plan = _plan(args, best)
    cost = plan.cost()
    return {**record, **bound_record(cost.best), "statement": plan.statement(cost.best)}
