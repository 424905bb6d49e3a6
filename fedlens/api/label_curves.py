"""Labels of annotators: what they are worth to a classifier, and more samples to label."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from fedlens.foundation.errors import WrongUse
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import tested_student
from fedlens.simulations.federation.apps import simulated_federation
from fedlens.simulations.run_artifacts import class_numbers, labelled_samples, run_id_of
from fedlens.simulations.students.students import StudentResult
from fedlens.store import Store, StoredLabel, StoreError

if TYPE_CHECKING:
    from fedlens.api.runs import Run

MOST = 10_000


def refill(run: Run, requested: int, count: int) -> int:
    """Draw samples of a class and add them to the run's curated batches; give back how many.

    Post-processing of what the run has released: its privacy figures are the last release's, and
    nothing is added to them. Queues serve the samples from their next request on.

    Args:
        run: with a kept generator.
        requested: class to ask for.
        count: 1 to 10,000.

    Raises:
        WrongUse: no such class, or a count out of range.
        FedlensError: the run kept no generator, or has no curated samples to take the figures from.
    """
    from dataclasses import fields, replace

    import torch

    from fedlens.server.round.publication import sample_records
    from fedlens.server.run.directory import RunDirectoryError
    from fedlens.simulations.run_artifacts import kept_sampler
    from fedlens.store import BatchRecord, open_store

    if not 1 <= count <= MOST:
        raise WrongUse(f"--count {count}: give 1 to {MOST}")
    sampler = kept_sampler(run.directory)
    if not 0 <= requested < sampler.shown_classes:
        raise WrongUse(f"--class {requested}: the run has classes 0 to {sampler.shown_classes - 1}")
    seed = secrets.randbelow(2**31)
    labels = torch.full((count,), requested)
    drawn = sampler.judged(sampler.asked(labels, seed), seed)
    with open_store(run.store) as store:
        made = [b for b in store.batches(run.id) if b.purpose == "curated"]
        if not made:
            raise RunDirectoryError(f"{run.path} has no curated samples in its store yet")
        last = BatchRecord(**{f.name: getattr(made[-1], f.name) for f in fields(BatchRecord)})
        rejected = drawn.rejected(labels) if sampler.filters else {}
        batch = replace(last, seed=seed, count=count, rejected=rejected)
        store.add_batch(batch, sample_records(labels, drawn))
        store.log("command line", "drew samples", f"{count} of class {requested}, run {run.id}")
    return count


def label_curve(
    config: Config,
    directory: RunDirectory,
    store: Store,
    project: str,
    *,
    epochs: int,
    shares: Sequence[float] = (1.0,),
    progress: Callable[[int, StudentResult], None] | None = None,
) -> list[tuple[int, StudentResult]]:
    """Train students on the samples that people gave a class in a project, with their labels.

    Where a filter hides something of samples, test images go through it too.

    ``progress`` is told of each student once it is trained: its labels, and what it reached.

    Returns:
        For each share, the fewest labels first: how many labels, and the student.

    Raises:
        StoreError: there is no such project, or nothing in it has a class yet.
    """
    found = [p for p in store.projects() if p.name == project]
    if not found:
        there = ", ".join(repr(one.name) for one in store.projects()) or "none yet"
        raise StoreError(
            f"there is no project {project!r} in the store: make one on the dashboard's page "
            f"Annotate, or name one that there is ({there})"
        )
    images, labels = labelled_samples(store, found[0].project_id)
    if not len(labels):
        raise StoreError(f"no sample of project {project!r} has a class yet")
    dataset, _ = simulated_federation(config.data, config.seed)
    _check_names(store.labels(found[0].project_id), dataset.classes, project)
    if int(labels.max()) >= dataset.classes:
        raise StoreError(f"project {project!r} has more class labels than the data has classes")
    if config.privatizer.active and found[0].run_id != run_id_of(directory):
        raise StoreError(
            f"project {project!r} labels samples of run {found[0].run_id}, which went through "
            f"another filter: give that run's directory instead of {directory.path}"
        )
    # Equal shares of a shuffle: labels come in the order of a queue.
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(config.seed))
    counts = sorted({max(1, round(share * len(labels))) for share in shares})
    curve = []
    for count in counts:
        part = order[:count].sort().values
        student = tested_student(config, directory, images[part], labels[part], epochs)
        curve.append((count, student))
        if progress is not None:
            progress(count, student)
    return curve


def _check_names(labels: Sequence[StoredLabel], classes: int, project: str) -> None:
    """Refuse fewer class labels than classes whose names do not say which classes they are."""
    numbers = class_numbers(labels)
    if len(numbers) < classes and list(numbers.values()) == list(range(len(numbers))):
        named = {label.name for label in labels if label.label_id in numbers}
        if named != {f"class {place}" for place in range(len(numbers))}:
            raise StoreError(
                f"project {project!r} has {len(numbers)} class labels and the data {classes} "
                "classes: name each label 'class N', N from 0, for students to know which it is"
            )
