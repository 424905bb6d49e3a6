"""``fedlens student``: what a run's samples are worth to a classifier."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument, file_to_write
from fedlens.cli.output import print_json, say
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.api.runs import Run
    from fedlens.simulations.students.students import StudentResult

CURVE = (0.1, 0.25, 0.5, 1.0)
"""Shares of the labels that students are trained on."""
LABELS = ("requested", "annotator")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "student",
        help=VERBS["student"],
        description="Train a student on synthetic samples and test it on real images. Simulation "
        "only: using real test images is in no privacy budget.",
        epilog="example: fedlens student runs/demo --images 20000 --epochs 2",
    )
    add_run_argument(parser)
    add = parser.add_argument
    add("--images", type=int, default=20_000, help="fresh samples to train on")
    add("--epochs", type=int, default=2, help="passes over them")
    add(
        "--labels",
        choices=LABELS,
        default="requested",
        help="the classes that samples were asked for, or the private annotator's soft labels of "
        "changed samples (a third samples, a third changed, a third mixed)",
    )
    add(
        "--project",
        help="train on the samples and labels of this annotation project instead of fresh samples "
        "with the classes they were asked for",
    )
    add(
        "--curve",
        action="store_true",
        help="with --project: also train on a tenth, a quarter and half of the labels, to see "
        "whether more labels would help",
    )
    add(
        "--out",
        type=Path,
        metavar="FILE",
        help="also write a label model, by which devices may name their records "
        "(data.labels=model:FILE): with --project one that was trained on all of its labels, with "
        "--labels annotator this student",
    )
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, test, print."""
    from fedlens.api.runs import open_run

    _check(args)
    run = open_run(args.run_dir, store=args.store)
    if run.worth == "noise":
        say("NOISE: this run learned next to nothing, and so will a student of its samples")
    found = _of_project(run, args) if args.project else _of_samples(run, args)
    of = "of {} right" if found.simulated else "right of {}"
    used, result = found.curve[-1]
    said = of.format(found.tests if found.simulated else found.tested_on)
    say(f"{result.accuracy:.1%} {said}, trained on {used} synthetic samples")
    if found.simulated:
        say("simulation only: the test images are real and in no budget")
    if args.out:
        _write(run, args, result)
    if args.json:
        print_json(_as_json(found, args))
    return 0


def _check(args: argparse.Namespace) -> None:
    for name in ("images", "epochs"):
        if getattr(args, name) < 1:
            raise WrongUse(f"--{name} {getattr(args, name)}: give at least 1")
    if args.curve and not args.project:
        raise WrongUse("--curve needs the labels of a --project")
    if args.out:
        if not args.project and args.labels == "requested":
            raise WrongUse("--out needs the labels of a --project, or --labels annotator")
        file_to_write(args.out)


@dataclass(frozen=True)
class _Measured:
    """Students by how many samples they learned from, and what they were tested on."""

    curve: list[tuple[int, StudentResult]]
    tested_on: str
    simulated: bool = True

    @property
    def tests(self) -> str:
        """The test images, without their data set's name."""
        return self.tested_on.partition(" of ")[0]


def _of_samples(run: Run, args: argparse.Namespace) -> _Measured:
    from fedlens.api.label_curves import annotators_curve
    from fedlens.simulations.engine import measure_student

    if args.labels == "annotator":
        return _Measured(*annotators_curve(run, epochs=args.epochs, images=args.images))
    result = measure_student(run.config, run.directory, images=args.images, epochs=args.epochs)
    filtered = "filtered real" if run.config.privatizer.active else "real"
    tests = f"{filtered} test images of {run.config.data.name}"
    return _Measured([(args.images, result)], tests)


def _of_project(run: Run, args: argparse.Namespace) -> _Measured:
    from fedlens.api.label_curves import label_curve, tested_on
    from fedlens.store import open_store

    with open_store(run.store) as store:
        curve = label_curve(
            run.config,
            run.directory,
            store,
            args.project,
            epochs=args.epochs,
            shares=CURVE if args.curve else (1.0,),
            progress=_say_student if args.curve else None,
        )
        return _Measured(curve, *tested_on(run.config, store, args.project))


def _write(run: Run, args: argparse.Namespace, student: StudentResult) -> None:
    from fedlens.api.label_curves import class_names, keep_label_model, write_label_model

    if not args.project:
        keep_label_model(run, student, class_names(run.config), args.out)
        return say(f"{args.out}: label model of the annotator's labels, at no cost to privacy")
    count = write_label_model(run, args.project, args.out, epochs=args.epochs)
    say(f"{args.out}: label model of {count} labels, at no cost to privacy")


def _as_json(found: _Measured, args: argparse.Namespace) -> dict[str, object]:
    used, result = found.curve[-1]
    told: dict[str, object] = {
        "tested_on": found.tested_on,
        "simulation_only": found.simulated,
        "student_accuracy": result.accuracy,
        "per_class": _clean(result.per_class),
    }
    if args.curve:
        told["curve"] = [{"labels": n, "student_accuracy": s.accuracy} for n, s in found.curve]
    if args.out:
        told["label_model"] = str(args.out)
    return {**told, "images": used, "seconds": round(result.seconds, 2)}


def _say_student(labels: int, student: StudentResult) -> None:
    """At once, so that a program which reads this knows how far it is."""
    say(f"{student.accuracy:.1%} right, trained on {labels} labels")
    sys.stdout.flush()


def _clean(values: tuple[float, ...]) -> list[float | None]:
    return [None if value != value else value for value in values]
