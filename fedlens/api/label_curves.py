"""What annotators' labels are worth to a classifier, and whether more of them would help."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import tested_student
from fedlens.simulations.federation.apps import simulated_federation
from fedlens.simulations.run_artifacts import class_numbers, labelled_samples, run_id_of
from fedlens.simulations.students.students import StudentResult
from fedlens.store import Store, StoredLabel, StoreError


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
