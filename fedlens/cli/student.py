"""``fedlens student``: what a run's samples are worth to a classifier."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli.output import add_json_flag, print_json, say

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
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR")
    parser.add_argument("--images", type=int, default=20_000, help="fresh samples to train on")
    parser.add_argument("--epochs", type=int, default=2, help="passes over them")
    parser.add_argument(
        "--labels",
        choices=LABELS,
        default="requested",
        help="the classes that samples were asked for, or the private annotator's soft labels of "
        "changed samples (a third samples, a third changed, a third mixed)",
    )
    parser.add_argument(
        "--project",
        help="train on the samples and labels of this annotation project instead of fresh samples "
        "with the classes they were asked for",
    )
    parser.add_argument("--store", default="", help="URL of the store, where it is another one")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Train, test, print."""
    from fedlens.cli import WrongUse
    from server.run_directory import RunDirectory
    from server.store import open_store
    from simulations.engine import measure_student, measure_taught_student, student_of_labels
    from simulations.reading import store_url_of

    for name in ("images", "epochs"):
        if getattr(args, name) < 1:
            raise WrongUse(f"--{name} {getattr(args, name)}: give at least 1")
    directory = RunDirectory.open(args.run_dir)
    config = directory.config()
    if args.project:
        with open_store(store_url_of(directory, args.store)) as store:
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
