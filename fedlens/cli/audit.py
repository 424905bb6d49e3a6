"""``fedlens audit``: try to catch the code leaking more than the accountant says."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument, select_flags
from fedlens.cli.output import figure, print_json, print_table, say, step_bars
from fedlens.foundation.errors import ExitStatus, WrongUse
from fedlens.foundation.rounding import rounded_down

if TYPE_CHECKING:
    from fedlens.accountant.audit.finding import Finding
    from fedlens.api.audits import AuditReport

KINDS = ("all", "clipping", "sampling", "one-run", "one-shot", "noise", "membership")
CHOICES = ("kind", "task", "canaries", "rounds", "noise_multiplier", "confidence")
VERDICTS = {"alarm": "ALARM", "nothing-found": "nothing found", "cannot-detect": "cannot detect"}
ABOUT = (
    "Carry the mechanism of each of a run's tasks out with made-up users or records (canaries), "
    "through the code that real ones go through, and try to show a larger ε than is claimed, or "
    "noise, cohorts and clips that are not what the ledger says. Finding nothing proves nothing; "
    "each audit says what it could have shown at most. Exit status 4 on an alarm."
)


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "audit",
        help=VERBS["audit"],
        description=ABOUT,
        epilog="example: fedlens audit runs/demo --kind one-run",
    )
    add = parser.add_argument
    add_run_argument(parser, optional=True)
    add("--preset", help="audit a preset's mechanism instead of a run; nothing is stored")
    add("--kind", choices=KINDS, default="all", help="which audit (default: %(default)s)")
    add("--canaries", type=int, default=1000, metavar="M", help="made-up users (default: 1000)")
    add("--task", default="", metavar="NAME", help="one task of the schedule (default: all)")
    add("--rounds", type=int, metavar="T", help="audit another number of rounds")
    add(
        "--noise-multiplier",
        type=float,
        metavar="Z",
        help="audit another noise: the same code where a leak can be shown",
    )
    add(
        "--confidence",
        type=float,
        default=0.95,
        help="of the figures (default: 0.95); alarms have their own, much larger",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Audit, print, store; 4 on an alarm."""
    from fedlens.api.audits import audit
    from fedlens.api.runs import open_run

    if (args.run_dir is None) == (args.preset is None):
        raise WrongUse("name a RUN_DIR or a --preset, one of them")
    subject = args.preset or open_run(args.run_dir, store=args.store)
    with step_bars() as observer:
        found = audit(subject, **select_flags(args, *CHOICES), progress=observer)
    _print(found)
    if found.path is not None:
        place = f"{found.path} (yours alone to read)"
        say(f"written to {place}, and without private figures to the store")
    if args.json:
        print_json(found.content)
    return ExitStatus.ALARM if found.alarm else ExitStatus.DONE


def _print(report: AuditReport) -> None:
    for schedule in report.schedules:
        say(f"audited: {schedule.in_words()}")
    print_table(
        ("task", "audit", "claimed ε (δ)", "ε at least", "estimate", "cap", "verdict"),
        [_row(found) for found in report.findings],
    )
    for found in report.findings:
        say(f"{found.task or 'the whole run'}, {found.kind}: {found.words}")
    for line in _hints(report):
        say(line)


def _row(found: Finding) -> tuple[str, ...]:
    return (
        found.task,
        found.kind,
        f"{figure(found.claimed_epsilon)} ({found.delta:.3g})",
        "" if found.lower_bound is None else f"{rounded_down(found.lower_bound, 3):.3g}",
        _estimate(found),
        "" if found.cap is None else f"{found.cap:.3g}",
        VERDICTS[found.verdict],
    )


def _estimate(found: Finding) -> str:
    """To the nearest figure: an estimate is no bound, so it is not rounded up."""
    if found.estimate is None:
        return ""
    if found.interval is None:
        return f"{found.estimate:.3g}"
    low, high = found.interval
    return f"{found.estimate:.3g} [{low:.3g}, {high:.3g}]"


def _hints(report: AuditReport) -> Iterator[str]:
    """What to do next: after an alarm, and where one audit could not have raised any."""
    if report.alarm:
        yield (
            "\nALARM: what is released contradicts the claim. Do not release anything more from "
            "this run until the cause is found."
        )
    schedules = {schedule.name: schedule for schedule in report.schedules}
    for found in report.findings:
        if found.kind == "one-run" and found.verdict == "cannot-detect" and found.cap:
            noise = schedules[found.task].noise_for_claim(found.cap / 2, found.delta)
            yield (
                f"\n--task {found.task} --noise-multiplier {noise:.3g} audits the same code at "
                f"ε = {found.cap / 2:.2g}, where a leak can be shown."
            )
