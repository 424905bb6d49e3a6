"""``fedlens diagnose`` and ``power``: which fault users' data has; which would be found."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument
from fedlens.cli.output import print_json, print_table, say, step_bars
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.api.runs import Run
    from fedlens.diagnosis.report import Diagnosis


def add_power_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
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
    parser.set_defaults(run=run_power)


def run_power(args: argparse.Namespace) -> int:
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


IMAGES = 2000
NONE = "none"
PICTURE = Path("pictures") / "diagnosis.png"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "diagnose",
        help=VERBS["diagnose"],
        description="Compare a run's noised sums with what reference users would have released, "
        "sound and under each fault of a library. Costs no privacy.",
        epilog="example: fedlens diagnose runs/demo --reference mnist",
    )
    add_run_argument(parser)
    add = parser.add_argument
    add(
        "--reference",
        metavar="DATA|RUN|none",
        help="public data set of the users' kind, whose test images are taken, or directory of an "
        "earlier run of the same federation (default: the data set that the run names); none: look "
        "at the run's faithful samples alone, for a hint",
    )
    add(
        "--sound",
        metavar="RUN",
        help="with --reference none: directory of a sound run over data of the same kind, to learn "
        "how much such samples hint at by chance (default: what handwritten digits do)",
    )
    add("--images", type=int, default=IMAGES, help="images of the reference that are looked at")
    add(
        "--fast",
        action="store_true",
        help="leave the annotator's releases out: less than half of the time; blur, noise and what "
        "else is fine is then seen in two or three times as many users only",
    )
    add(
        "--fault",
        action="append",
        default=[],
        metavar="A+B",
        help="look for faults of the library that come together too, such as rotate90+dim; may be "
        "repeated",
    )
    add(
        "--fault-from",
        action="append",
        default=[],
        type=Path,
        metavar="FILE.py",
        help="look for faults of your own too: every `Fault` that this Python file defines. The "
        "file is run; may be repeated",
    )
    add(
        "--steps",
        action="store_true",
        help="with --json: print a line for each step as it begins, for a program that waits",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Diagnose, print, draw."""
    from fedlens.api.diagnoses import diagnose, keep_diagnosis, place_of_diagnosis
    from fedlens.api.runs import open_run
    from fedlens.foundation.errors import ExitStatus

    chosen = open_run(args.run_dir, store=args.store)
    if chosen.worth == "noise":
        say("NOISE: this run learned next to nothing; what is not found may well be there")
    if args.reference == NONE:
        return _hint(chosen, args.sound, as_json=args.json)
    if args.sound is not None:
        raise WrongUse("--sound is of --reference none alone: leave one of them out")
    if args.steps and not args.json:
        raise WrongUse("--steps is for programs: give --json too, or leave it out")
    step = _step if args.steps else _unsaid
    place = place_of_diagnosis(chosen, args.reference)
    with step_bars() as bar:

        def progress(done: int, total: int) -> None:
            step("fits", done, total)
            if bar is not None:
                bar("faults", done, total)

        found = diagnose(
            chosen,
            reference=args.reference,
            images=args.images,
            annotator=not args.fast,
            faults=[*args.fault, *args.fault_from],
            progress=progress,
            on_stage=step,
            on_look=_look_of(args),
        )
    step("pictures")
    from fedlens.simulations.plots.diagnosis import plot_diagnosis  # what is first said needs none

    picture = chosen.path / PICTURE
    plot_diagnosis(found, picture)
    kept = None
    more = args.fault or args.fault_from
    if args.images == IMAGES and not (args.fast or more):  # as the dashboard would have asked
        kept = keep_diagnosis(chosen, found, args.reference, place=place)
    if args.json:
        print_json(found.to_json())
    else:
        _print(found, picture)
        if kept is not None:
            say(f"kept for the dashboard: {kept}")
    return ExitStatus.DONE


def _look_of(args: argparse.Namespace) -> Callable[[str], None] | None:
    """Says what stands out at first sight; None where a program waits for one object alone."""
    if args.steps:
        return lambda said: _step("look", said=said)
    if args.json:
        return None
    return lambda said: say(
        f"first look, by few images: {said}; the whole answer follows", at_once=True
    )


def _step(name: str, done: int = 0, total: int = 0, said: str = "") -> None:
    from fedlens.diagnosis.steps import DiagnosisStep

    say(DiagnosisStep(name, done, total, said).to_line(), at_once=True)


def _unsaid(_name: str, _done: int = 0, _total: int = 0, said: str = "") -> None:
    """Nothing waits for steps."""


def _hint(run: Run, sound: str | None, *, as_json: bool) -> int:
    """What faithful samples hint at by themselves."""
    from dataclasses import asdict

    from fedlens.api.diagnoses import hints
    from fedlens.foundation.errors import ExitStatus

    found = hints(run, sound=sound)
    if as_json:
        print_json({"findings": [], **asdict(found)})
        return ExitStatus.DONE
    print_table(
        ("family", "faults", "votes", "stands out above"),
        [
            (one.name, ", ".join(one.faults), f"{one.votes:.1%}", f"{one.limit:.1%}")
            for one in found.hints
        ],
    )
    say(found.says)
    return ExitStatus.DONE


def _classes(numbers: tuple[int, ...], names: tuple[str, ...]) -> str:
    called = (str(number) if number >= len(names) else names[number] for number in numbers)
    return ", ".join(called) or "-"


def _interval(low: float | None, high: float | None) -> str:
    return "unknown" if low is None or high is None else f"{low:.1%} to {high:.1%}"


def _print(found: Diagnosis, picture: Path) -> None:
    reference = found.reference
    say(
        f"{found.hypotheses} hypotheses against releases of {', '.join(found.releases)}; "
        f"reference: {reference.images} images of {reference.name}"
    )
    if not reference.fits:
        say(f"NOTHING IS CLAIMED: {reference.why}")
    elif not found.findings:
        say("no fault found")
    else:
        print_table(
            ("fault", "what it is", "share of users", "95% interval", "q", "classes"),
            [
                (
                    one.fault or "no name",
                    one.says,
                    f"{one.share:.1%}" if one.named else f"about {one.share:.0%}",
                    _interval(one.low, one.high),
                    f"{one.q_value:.2g}",
                    _classes(one.classes, found.class_names),
                )
                for one in found.findings
            ],
        )
    for one in found.findings if reference.fits else ():
        for other in one.alternatives:
            say(f"instead of {one.fault}: {other.says}, {other.likelihood:.1%} as likely")
    say(f"what no finding explains: p = {found.omnibus.p_value:.2g}")
    if found.unexplained:
        say(found.unexplained)
        say("next: look at the picture; try an idea with --fault-from FILE.py, or --fault A+B")
    named = {one.fault for one in found.findings}
    rest = [(n, s) for n, s in found.smallest_detectable.items() if n not in named]
    print_table(
        ("could not have been seen", "in fewer users than"),
        [(n, f"{s:.1%}" if s <= 1 else "all") for n, s in sorted(rest, key=lambda one: one[1])],
    )
    say(f"picture: {picture}")
