"""``fedlens student``: what a run's samples are worth to a classifier."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument
from fedlens.cli.output import print_json, say
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
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
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, test, print."""
    from fedlens.api.label_curves import label_curve
    from fedlens.api.runs import open_run
    from fedlens.simulations.engine import measure_student, measure_taught_student
    from fedlens.store import open_store

    for name in ("images", "epochs"):
        if getattr(args, name) < 1:
            raise WrongUse(f"--{name} {getattr(args, name)}: give at least 1")
    if args.curve and not args.project:
        raise WrongUse("--curve needs the labels of a --project")
    curve: list[tuple[int, StudentResult]] = []
    run = open_run(args.run_dir, store=args.store)
    config, directory = run.config, run.directory
    if run.worth == "noise":
        say("NOISE: this run learned next to nothing, and so will a student of its samples")
    if args.project:
        with open_store(run.store) as store:
            shares = CURVE if args.curve else (1.0,)
            curve = label_curve(
                config,
                directory,
                store,
                args.project,
                epochs=args.epochs,
                shares=shares,
                progress=_say_student if args.curve else None,
            )
        used, result = curve[-1]
    else:
        used = args.images
        measure = measure_student if args.labels == "requested" else measure_taught_student
        result = measure(config, directory, images=used, epochs=args.epochs)
    tests = "filtered real" if config.privatizer.active else "real"
    say(f"{result.accuracy:.1%} of {tests} test images right, trained on {used} synthetic samples")
    say("simulation only: the test images are real and in no budget")
    if args.json:
        found: dict[str, object] = {
            "tested_on": f"{tests} test images of {config.data.name}",
            "simulation_only": True,
            "student_accuracy": result.accuracy,
            "per_class": _clean(result.per_class),
        }
        if args.curve:
            found["curve"] = [{"labels": n, "student_accuracy": s.accuracy} for n, s in curve]
        print_json({**found, "images": used, "seconds": round(result.seconds, 2)})
    return 0


def _say_student(labels: int, student: StudentResult) -> None:
    """At once, so that a program which reads this knows how far it is."""
    say(f"{student.accuracy:.1%} right, trained on {labels} labels")
    sys.stdout.flush()


def _clean(values: tuple[float, ...]) -> list[float | None]:
    return [None if value != value else value for value in values]
