"""``fedlens calibrate``: the noise, or the rounds, that a budget allows."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedlens.accountant.wording import shown
from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import print_json, say
from fedlens.cli.schedules import add_mechanism_flags, mechanism_of

if TYPE_CHECKING:
    from fedlens.api.budgets import Calibration

EPILOG = """examples:
  fedlens calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01 --rounds 10000
  fedlens calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01 --noise-multiplier 4"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "calibrate",
        help=VERBS["calibrate"],
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
    from fedlens.api.budgets import calibrate

    found = calibrate(epsilon=args.epsilon, **mechanism_of(args), users=args.users)
    _print(found)
    if args.json:
        print_json({**found.to_json(), "sampling_rate": args.sampling_rate, "delta": args.delta})
    return 0


def _print(found: Calibration) -> None:
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
