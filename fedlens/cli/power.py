"""``fedlens power``: which faults a diagnosis would find, before there is a run."""

from __future__ import annotations

import argparse
import math

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag
from fedlens.cli.output import print_json, print_table, say, step_bars
from fedlens.foundation.errors import WrongUse


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "power",
        help=VERBS["power"],
        description="Before a run: the share of users in which each fault of the library would be "
        "found in nine of ten runs, by all of its releases that can be read.",
        epilog="example: fedlens power --preset demo --users 1000,3000 --epsilon 1,2",
    )
    add = parser.add_argument
    add("--preset", default="demo", help="whose schedule and data are reckoned with")
    add("--users", default="1000,3000,10000", help="sizes of the federation, with commas")
    add("--epsilon", default="0.5,1,2,8", help="DP ε of the whole schedule, with commas")
    add("--images", type=int, default=2000, help="images of the reference that are looked at")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Reckon, print."""
    from fedlens.api.diagnoses import power
    from fedlens.foundation.errors import ExitStatus

    users = [round(number) for number in _numbers("users", args.users)]
    epsilons = _numbers("epsilon", args.epsilon)
    with step_bars() as bar:
        rows = power(
            args.preset,
            users=users,
            epsilons=epsilons,
            images=args.images,
            progress=None if bar is None else lambda done, total: bar("faults", done, total),
        )
    if args.json:
        print_json(
            {
                "rows": [
                    {
                        "fault": row.fault,
                        "users": row.users,
                        "epsilon": row.epsilon,
                        "share": row.share if row.share <= 1 else None,
                    }
                    for row in rows
                ]
            }
        )
        return ExitStatus.DONE
    cells = {(row.fault, row.users, row.epsilon): row.share for row in rows}
    pairs = [(count, epsilon) for count in users for epsilon in epsilons]
    print_table(
        ("fault", *(f"{count:,} users, ε = {epsilon:g}" for count, epsilon in pairs)),
        [
            (name, *(_said(cells[name, count, epsilon]) for count, epsilon in pairs))
            for name in dict.fromkeys(row.fault for row in rows)
        ],
    )
    say("share of users at which nine of ten runs find the fault, by all releases that can be read")
    return ExitStatus.DONE


def _said(share: float) -> str:
    return f"{share:.1%}" if math.isfinite(share) and share <= 1 else "never"


def _numbers(flag: str, text: str) -> list[float]:
    try:
        found = [float(word) for word in text.split(",")]
    except ValueError:
        found = [math.nan]
    if not all(math.isfinite(number) and number > 0 for number in found):
        raise WrongUse(f"--{flag} {text}: give numbers above 0 with commas between")
    return found
