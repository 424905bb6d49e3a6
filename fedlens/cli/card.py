"""``fedlens card``: what users' pictures are like, for little, before anything is learned."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.api.simulations import TRANSPORTS, SimulationSettings
from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, given_settings
from fedlens.cli.output import print_json, print_table, round_bar, say, status_of
from fedlens.cli.simulate import add_run_flags, chosen_settings
from fedlens.foundation.errors import ExitStatus, WrongUse

if TYPE_CHECKING:
    from fedlens.api.cards import CardReport


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "card",
        help=VERBS["card"],
        description="Histograms of what users' pictures are like, as one noised sum: the first and "
        "cheapest thing to do with a federation. With RUN_DIR nothing is asked: the card that a "
        "run released is shown again. Exit status: 0 where all that is expected holds, "
        f"{int(ExitStatus.ALARM)} where something does not, {int(ExitStatus.UNDECIDED)} where the "
        "noise leaves it open.",
        epilog="example: fedlens card --out runs/march --expect 'duplicates < 10%'",
    )
    parser.add_argument(
        "run_dir", type=Path, metavar="RUN_DIR", nargs="?", help="a run with a card, to read"
    )
    add_run_flags(parser)
    parser.set_defaults(preset="card")
    add = parser.add_argument
    add("--data-dir", help="folder of the data set's files (data.dir)")
    add("--transport", choices=TRANSPORTS, default="in-process", help="how messages travel")
    add("--compare", type=Path, metavar="RUN_DIR", help="an earlier run with a card")
    add(
        "--expect",
        action="append",
        default=[],
        metavar="TEXT",
        help="what is expected, such as 'duplicates < 10%%' or 'classes = uniform', beside "
        "tasks.card.expect; may be repeated",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Ask or read, print, and say by the exit status whether all is as expected."""
    from fedlens.api.cards import card, read_card
    from fedlens.models.cards.expectations import parse_expectations

    parse_expectations(",".join(args.expect))  # nothing is spent on what cannot be read
    if args.run_dir is not None:
        new = (args.settings, args.fault, args.config, args.out, args.epsilon, args.delta)
        if any(new) or args.data_dir or args.overwrite:
            raise WrongUse(
                f"RUN_DIR {args.run_dir}: its card is released already; leave the settings of a "
                "new one out"
            )
        found = read_card(args.run_dir, compare=args.compare, expect=args.expect)
    else:
        given = {**given_settings(SimulationSettings, args), "settings": chosen_settings(args)}
        with round_bar() as observer:
            found = card(compare=args.compare, expect=args.expect, progress=observer, **given)
    if args.json:
        print_json(found.to_json())
    else:
        _print(found)
    return status_of(one.outcome for one in found.verdicts)


def _print(found: CardReport) -> None:
    from fedlens.api.cards import PAGE
    from fedlens.diagnosis.cards.page import error_words, price_words, quantity_words

    report = found.to_json()
    if found.planted:
        say(f"PLANTED FAULT   {found.planted} (simulation only)")
    say(price_words(report))
    print_table(
        ("statistic", "of", "stands for it (95% interval)", "largest bins"),
        [
            (one["name"], one["of"], quantity_words(one) or "-", _largest(one))
            for one in report["statistics"]
        ],
    )
    say(error_words(report))
    if found.changes:
        _print_changes(found)
    if found.verdicts:
        print_table(
            ("expected", "outcome", "what was found", "wrong in at most"),
            [
                (one.expectation, one.outcome, one.says, f"{one.error:.2g}")
                for one in found.verdicts
            ],
        )
    say(f"page: {Path(found.run_dir) / PAGE}")


def _largest(one: dict[str, list[float]]) -> str:
    """The three bins with most in them."""
    rows = sorted(zip(one["shares"], one["half_widths"], one["bins"], strict=True), reverse=True)
    return ", ".join(f"{name}: {share:.0%} ± {half:.0%}" for share, half, name in rows[:3])


def _print_changes(found: CardReport) -> None:
    from fedlens.diagnosis.cards.page import left_out_words

    print_table(
        ("statistic", "bin that differs most", "now less before", "p", "p, corrected", ""),
        [
            (
                one.name,
                one.bin,
                f"{one.difference:+.1%} ± {one.half_width:.1%}",
                f"{one.p_value:.2g}",
                f"{one.adjusted:.2g}",
                "changed" if one.named else "",
            )
            for one in found.changes
        ],
        title=f"since {found.compared}",
    )
    say(
        f"changed: corrected for all {len(found.changes)} rows by Holm's method; equal people show "
        "any such row in at most 5 of 100 comparisons"
    )
    if found.not_compared:
        say(left_out_words(found.not_compared))
