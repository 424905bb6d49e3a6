"""``fedlens audit``: try to catch the code leaking more than the accountant says."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli.output import add_json_flag, figure, print_json, say

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from accountant.audit.finding import Finding
    from server.run_directory import RunDirectory
    from simulations.audits.audit import Plan
    from simulations.audits.schedule import Schedule

KINDS = ("all", "one-run", "one-shot", "noise", "membership")
VERDICTS = {
    "alarm": "ALARM",
    "nothing-found": "nothing found",
    "cannot-detect": "cannot detect",
}
ABOUT = (
    "Carry a run's mechanism out with made-up users (canaries), through the code that real users "
    "go through, and try to show a larger ε than is claimed. Finding nothing proves nothing; each "
    "audit says what it could have shown at most. Exit status 4 on an alarm."
)


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "audit",
        help="try to catch the code leaking more than the accountant says",
        description=ABOUT,
        epilog="example: fedlens audit runs/demo --kind one-run",
    )
    parser.add_argument("run_dir", type=Path, nargs="?", metavar="RUN_DIR")
    parser.add_argument(
        "--preset", help="audit a preset's mechanism instead of a run; nothing is stored"
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="all", help="which audit (default: %(default)s)"
    )
    parser.add_argument(
        "--canaries", type=int, default=1000, metavar="M", help="made-up users (default: 1000)"
    )
    parser.add_argument(
        "--dims", type=int, default=20_000, metavar="D", help="length of an update (default: 20000)"
    )
    parser.add_argument(
        "--task",
        default="",
        metavar="NAME",
        help="which task of the schedule (default: the last critic)",
    )
    parser.add_argument("--rounds", type=int, metavar="T", help="audit another number of rounds")
    parser.add_argument(
        "--noise-multiplier",
        type=float,
        metavar="Z",
        help="audit another noise: the same code where a leak can be shown",
    )
    parser.add_argument(
        "--confidence",
        type=float,
        default=0.95,
        help="of the figures (default: 0.95); alarms have their own, much larger",
    )
    parser.add_argument("--store", default="", help="URL of the store, where it is another one")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Audit, print, store; 4 on an alarm."""
    from fedlens.cli import ALARM, DONE, WrongUse
    from simulations.audits.audit import Plan
    from simulations.audits.report import report
    from simulations.audits.schedule import NothingToAudit

    try:
        plan = Plan(args.kind, args.canaries, args.dims, args.confidence)
        directory, schedule = _subject(args)
        findings = _findings(args, schedule, plan, directory)
    except NothingToAudit as error:
        raise WrongUse(str(error)) from error
    content = report(schedule, plan, findings)
    _print(schedule, findings)
    if directory is not None:
        _keep(args, directory, schedule, content, findings)
    if args.json:
        print_json(content)
    return ALARM if content["alarm"] else DONE


def _subject(args: argparse.Namespace) -> tuple[RunDirectory | None, Schedule]:
    """The run, if one is named, and what of it is audited.

    Raises:
        WrongUse: neither or both of a run and a preset, or membership inference without a run.
    """
    from fedlens.cli import WrongUse
    from fedlens.cli.simulate import PRESETS, preset_names
    from server.config.reading import read_config
    from server.run_directory import RunDirectory
    from simulations.audits.schedule import Schedule

    if (args.run_dir is None) == (args.preset is None):
        raise WrongUse("name a RUN_DIR or a --preset, one of them")
    changes = {
        "rounds": args.rounds, "noise_multiplier": args.noise_multiplier, "task": args.task
    }  # fmt: skip
    if args.preset is None:
        directory = RunDirectory.open(args.run_dir)
        _check_places(args, directory)  # before minutes are spent on what cannot be kept
        return directory, Schedule.of(directory.config(), **changes)
    if args.kind == "membership":
        raise WrongUse("--kind membership needs a RUN_DIR: it attacks what a run released")
    if args.preset not in preset_names():
        raise WrongUse(f"--preset {args.preset!r}: choose one of {', '.join(preset_names())}")
    return None, Schedule.of(read_config(PRESETS / f"{args.preset}.toml"), **changes)


def _findings(
    args: argparse.Namespace, schedule: Schedule, plan: Plan, directory: RunDirectory | None
) -> list[Finding]:
    import numpy as np

    from simulations.audits.audit import run_audits

    samples = None
    if directory is not None and plan.wants("membership") and not _changed(args):
        samples = _released(args, directory)
    elif plan.kind == "membership":
        from fedlens.cli import WrongUse

        raise WrongUse("--kind membership attacks what the run released: leave out other settings")
    with _progress_bar() as observer:
        source = np.random.default_rng()
        return list(run_audits(schedule, plan, source=source, samples=samples, observer=observer))


def _check_places(args: argparse.Namespace, directory: RunDirectory) -> None:
    from server.store import open_store
    from simulations.audits.report import earlier_reports
    from simulations.reading import run_id_of, store_url_of

    earlier_reports(directory)
    with open_store(store_url_of(directory, args.store)) as store:
        store.run(run_id_of(directory))


def _changed(args: argparse.Namespace) -> bool:
    return args.rounds is not None or args.noise_multiplier is not None


def _released(args: argparse.Namespace, directory: RunDirectory) -> NDArray[np.uint8] | None:
    """The run's released samples; None before there are any, unless they alone were asked for."""
    from server.store import SampleFilter, open_store
    from simulations.reading import run_id_of, store_url_of, stored_samples

    with open_store(store_url_of(directory, args.store)) as store:
        wanted = SampleFilter(run_id=run_id_of(directory), purpose="release")
        if args.kind == "all" and not store.count_samples(wanted):
            return None
        return stored_samples(store, wanted)[0]


def _keep(
    args: argparse.Namespace,
    directory: RunDirectory,
    schedule: Schedule,
    content: dict[str, object],
    findings: list[Finding],
) -> None:
    from server.store import open_store
    from simulations.audits.report import store_findings, write_report
    from simulations.reading import run_id_of, store_url_of

    with open_store(store_url_of(directory, args.store)) as store:
        store_findings(store, run_id_of(directory), schedule, findings)
    path = write_report(directory, content)
    say(f"written to {path} (yours alone to read), and without private figures to the store")


def _print(schedule: Schedule, findings: list[Finding]) -> None:
    say(f"audited: {schedule.in_words()}")
    say()
    say(f"{'audit':<11}{'claimed ε (δ)':>17}{'ε at least':>12}{'estimate':>22}{'cap':>8}  verdict")
    for found in findings:
        claimed = f"{figure(found.claimed_epsilon)} ({found.delta:.3g})"
        bound = "" if found.lower_bound is None else f"{found.lower_bound:.3g}"
        cap = "" if found.cap is None else f"{found.cap:.3g}"
        row = f"{found.kind:<11}{claimed:>17}{bound:>12}{_estimate(found):>22}{cap:>8}"
        say(f"{row}  {VERDICTS[found.verdict]}")
    say()
    for found in findings:
        say(f"{found.kind}: {found.words}")
    for line in _hints(schedule, findings):
        say(line)


def _estimate(found: Finding) -> str:
    """To the nearest figure: an estimate is no bound, so it is not rounded up."""
    if found.estimate is None:
        return ""
    if found.interval is None:
        return f"{found.estimate:.3g}"
    low, high = found.interval
    return f"{found.estimate:.3g} [{low:.3g}, {high:.3g}]"


def _hints(schedule: Schedule, findings: list[Finding]) -> Iterator[str]:
    """What to do next: after an alarm, and where one audit could not have raised any."""
    from simulations.audits.silos import WHY_NO_CANARIES

    if any(found.verdict == "alarm" for found in findings):
        yield (
            "\nALARM: what is released contradicts the claim. Do not release anything more from "
            "this run until the cause is found."
        )
    if schedule.record_mode:
        yield f"\n{WHY_NO_CANARIES}."
    for found in findings:
        if found.kind == "one-run" and found.verdict == "cannot-detect" and found.cap:
            noise = schedule.noise_for_claim(found.cap / 2, found.delta)
            yield (
                f"\n--noise-multiplier {noise:.3g} audits the same code at "
                f"ε = {found.cap / 2:.2g}, where a leak can be shown."
            )


@contextmanager
def _progress_bar() -> Iterator[Callable[[str, int, int], None] | None]:
    """An observer that draws what is measured; nothing off a terminal."""
    import sys

    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done)

        yield show
