"""``fedlens study worth``: how often a run's own verdict on its samples is right."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli.flags import add_json_flag, make_out_folder
from fedlens.cli.output import print_json, print_table, say
from fedlens.foundation.errors import ExitStatus

OUT = Path("runs") / "study-worth"


def add_worth_parser(tables: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The sub-command and its flags."""
    parser = tables.add_parser(
        "worth",
        help="how often a run's own verdict on its samples is right",
        description="Train runs of several sizes and ε, and hold what each says of its samples "
        "against a student and a judge that learned from real images. Goes on where it was "
        "stopped. Simulation only.",
        epilog="example: fedlens study worth --data mnist --users 100 1000 --epsilon 0.5 2",
    )
    add = parser.add_argument
    add("--data", nargs="+", default=["embedded"], metavar="NAME", help="data sets")
    add("--users", nargs="+", type=int, default=[100, 1000], metavar="N", help="at most these")
    add("--epsilon", nargs="+", type=float, default=[0.5, 2.0, 10.0], metavar="EPSILON")
    add("--preset", default="demo", help="whose schedule is trained")
    add("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    add(
        "--rehearse", action="store_true", help="rehearse each on public digits too: twice the time"
    )
    add("--out", type=Path, default=OUT, help=f"folder of the study (default: {OUT})")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train what is missing, print each row as it is there, then how often verdicts were wrong."""
    from fedlens.server.config.loading import parse_setting
    from fedlens_research.worth.study import WorthPlan, rehearsed_within, wrong_verdicts

    plan = WorthPlan(
        data=tuple(args.data),
        users=tuple(args.users),
        epsilons=tuple(args.epsilon),
        preset=args.preset,
        settings=dict(parse_setting(text) for text in args.settings),
        out=make_out_folder(args.out),
        rehearse=args.rehearse,
    )
    rows = []
    for row in plan.rows():
        rows.append(row)
        say(f"{row.data}, {row.users} users, ε = {row.epsilon:g}: {row.worth}")
    print_table(
        (
            "data", "users", "ε", "verdict", "signal", "recognised", "student", "rehearsed", "real",
            "judged",
        ),
        [
            (
                row.data, f"{row.users:,}", f"{row.epsilon:g}", row.worth, f"{row.signal:.2f}",
                f"{row.recognised:.2f}", f"{row.student:.1%}",
                "-" if row.rehearsed is None else f"{row.rehearsed:.1%}",
                f"{row.real:.1%}", f"{row.judged:.1%}",
            )
            for row in rows
        ],
    )  # fmt: skip
    wrong = wrong_verdicts(rows)
    for words, (count, total) in wrong.items():
        say(f"{words}: {count} of {total}")
    near, total = rehearsed_within(rows)
    if total:
        say(f"rehearsals within five points of the student: {near} of {total}")
    say("simulation only: judges and students are tested on real images, in no budget")
    if args.json:
        print_json({"rows": [vars(row) for row in rows], "wrong": wrong})
    return ExitStatus.DONE
