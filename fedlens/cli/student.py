"""``fedlens student``: what a run's samples are worth to a classifier."""

from __future__ import annotations

import argparse

from fedlens.cli.flags import add_json_flag, add_run_argument
from fedlens.cli.output import print_json, say
from foundation.errors import WrongUse

LABELS = ("requested", "annotator")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "student",
        help="train a classifier on synthetic samples, test it on real images",
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
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, test, print."""
    from fedlens.runs import open_run
    from server.store import open_store
    from simulations.engine import measure_student, measure_taught_student, student_of_labels

    for name in ("images", "epochs"):
        if getattr(args, name) < 1:
            raise WrongUse(f"--{name} {getattr(args, name)}: give at least 1")
    run = open_run(args.run_dir, store=args.store)
    config, directory = run.config, run.directory
    if args.project:
        with open_store(run.store) as store:
            result, used = student_of_labels(
                config, directory, store, args.project, epochs=args.epochs
            )
    else:
        used = args.images
        measure = measure_student if args.labels == "requested" else measure_taught_student
        result = measure(config, directory, images=used, epochs=args.epochs)
    tests = "filtered real" if config.privatizer.active else "real"
    say(f"{result.accuracy:.1%} of {tests} test images right, trained on {used} synthetic samples")
    say("simulation only: the test images are real and in no budget")
    if args.json:
        found = {"student_accuracy": result.accuracy, "per_class": _clean(result.per_class)}
        print_json({**found, "images": used, "seconds": round(result.seconds, 2)})
    return 0


def _clean(values: tuple[float, ...]) -> list[float | None]:
    return [None if value != value else value for value in values]
