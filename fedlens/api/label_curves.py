"""Labels of annotators: what they are worth to a classifier, and more samples to label."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from fedlens.client.contract import PREFIX
from fedlens.data.registry import spec_of
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.unlabelled import OWN, UNLABELLED
from fedlens.server.config.tree import Config
from fedlens.server.federation.contract_check import run_contract
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import (
    AGREED_ON,
    annotators_student,
    is_measurable,
    measure_taught_student,
    tested_student,
)
from fedlens.simulations.federation.apps import simulated_federation
from fedlens.simulations.federation.labels import real_test_set
from fedlens.simulations.run_artifacts import (
    as_devices_send,
    class_numbers,
    labelled_samples,
    labelled_set,
    run_of_project,
)
from fedlens.simulations.students.people import (
    EPOCHS,
    HELD_OUT,
    IMAGES,
    LabelledSet,
    people_student,
)
from fedlens.simulations.students.students import StudentResult
from fedlens.store import RunRecord, Store, StoredLabel, StoredProject, StoreError

if TYPE_CHECKING:
    from fedlens.api.runs import Run

MOST = 10_000


def refill(run: Run, requested: int | None, count: int) -> int:
    """Draw samples of a class, add them to the run's curated batches, and give back how many.

    Post-processing of what the run has released: its privacy figures are the last release's, and
    nothing is added to them. Queues serve the samples from their next request on.

    Args:
        run: with a kept generator.
        requested: class to ask for; None of data without labels, and of such data alone.
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
    unlabelled = run.config.data.unlabelled
    if unlabelled and requested is not None:
        raise WrongUse(f"--class {requested}: the run's samples are unlabelled; leave it out")
    if requested is None and not unlabelled:
        raise WrongUse(f"--class: give one of 0 to {sampler.shown_classes - 1}")
    if requested is not None and not 0 <= requested < sampler.shown_classes:
        raise WrongUse(f"--class {requested}: the run has classes 0 to {sampler.shown_classes - 1}")
    seed = secrets.randbelow(2**31)
    labels = torch.full((count,), requested or 0)
    drawn = sampler.judged(sampler.asked(labels, seed), seed)
    with open_store(run.store) as store:
        made = [b for b in store.batches(run.id) if b.purpose == "curated"]
        if not made:
            raise RunDirectoryError(f"{run.path} has no curated samples in its store yet")
        last = BatchRecord(**{f.name: getattr(made[-1], f.name) for f in fields(BatchRecord)})
        rejected = drawn.rejected(labels) if sampler.filters else {}
        batch = replace(last, seed=seed, count=count, rejected=rejected)
        store.add_batch(batch, sample_records(labels, drawn, labelled=not unlabelled))
        kind = UNLABELLED if requested is None else f"of class {requested}"
        store.log("command line", "drew samples", f"{count} {kind}, run {run.id}")
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

    Where a filter hides something of samples, test images go through it too. Where the data's own
    labels are not used, classes are those that people named, each sample is shown often, changed,
    and `tested_on` says what students are tested on.

    ``progress`` is told of each student once it is trained: its labels, and what it reached.

    Returns:
        For each share, the fewest labels first: how many labels, and the student. Where the data's
        own labels are not used, a share whose labels are all of one class is left out.

    Raises:
        StoreError: there is no such project, or nothing in it has a class yet.
    """
    found = [_project(store, project)]
    images, labels = labelled_samples(store, found[0].project_id)
    if not len(labels):
        raise StoreError(f"no sample of project {project!r} has a class yet")
    if config.data.labels != OWN:
        given = labelled_set(store, found[0].project_id)
        return _people_curve(config, directory, given, epochs, shares, progress)
    dataset, _ = simulated_federation(config.data, config.seed)
    number = found[0].project_id
    run = run_of_project(store, number)
    _check_names(store.labels(number), run, dataset.classes, project)
    if int(labels.max()) >= dataset.classes:
        raise StoreError(f"project {project!r} has more class labels than the data has classes")
    if config.privatizer.active and found[0].run_id != directory.run_id:
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


def tested_on(config: Config, store: Store, project: str) -> tuple[str, bool]:
    """On which images `label_curve` tests, in words, and whether that is for simulations only."""
    names = labelled_set(store, _project(store, project).project_id).names
    if config.data.labels != OWN and real_test_set(config.data, names) is None:
        return (
            f"one in {HELD_OUT} of the samples that people labelled, kept from the student",
            False,
        )
    filtered = "filtered real" if config.privatizer.active else "real"
    return f"{filtered} test images of {config.data.name}", True


def write_label_model(
    run: Run, project: str, path: Path | str, *, epochs: int = EPOCHS, images: int = IMAGES
) -> int:
    """Train a label model on all that people said in a project, and write it; how many labels.

    Post-processing of what the run has released: it costs no privacy. The file says what the run
    released, which counts for a run whose devices name their records by it.

    Args:
        run: whose samples were labelled.
        project: its name.
        path: file to write.
        epochs: passes over the images.
        images: samples and changed samples that it learns from.

    Raises:
        StoreError: there is no such project over this run, or it has too few labels.
        FedlensError: the run's ledger cannot be trusted, or the file cannot be written.
    """
    from fedlens.store import open_store

    with open_store(run.store) as store:
        found = _project(store, project)
        if found.run_id != run.id:
            raise StoreError(
                f"project {project!r} labels samples of run {found.run_id}, and {run.path} is run "
                f"{run.id}: give that run's directory, whose ledger says what they cost"
            )
        given = labelled_set(store, found.project_id)
        student = _taught(run.config, given, (given.images, given.labels), epochs, images)
        store.log("command line", "wrote a label model", f"{project}: {Path(path).name}")
    keep_label_model(run, student, given.names, path)
    return len(given.labels)


def annotators_curve(
    run: Run, *, epochs: int, images: int
) -> tuple[list[tuple[int, StudentResult]], str, bool]:
    """A student of samples that the run's annotator labelled, and what it was tested on.

    Raises:
        FedlensError: the annotator cannot label samples.
        ValueError: the run has no annotator.
    """
    config, at_nodes = run.config, run_contract(run.config) is not None
    if at_nodes or not is_measurable(config):
        student = annotators_student(config, run.directory, images=images, epochs=epochs)
        return [(images, student)], f"{AGREED_ON} fresh samples, as the annotator calls them", False
    student = measure_taught_student(config, run.directory, images=images, epochs=epochs)
    filtered = "filtered real" if config.privatizer.active else "real"
    return [(images, student)], f"{filtered} test images of {config.data.name}", True


def class_names(config: Config) -> tuple[str, ...]:
    """What the classes of a run's records are called."""
    contract = run_contract(config)
    if contract is not None:
        return contract.classes
    return simulated_federation(config.data, config.seed)[0].class_names


def keep_label_model(
    run: Run, student: StudentResult, names: Sequence[str], path: Path | str
) -> None:
    """Write a student of a run's samples as a label model, with what the run released.

    Raises:
        FedlensError: the run's ledger cannot be trusted, or the file cannot be written.
    """
    from fedlens.foundation.files import write_durably
    from fedlens.models.label_models import make_label_model
    from fedlens.server.learning.label_models import origin_of

    origin = origin_of(run.directory)
    made = make_label_model(student.model, names, student.architecture, origin)
    write_durably(Path(path), made.to_bytes())


def _project(store: Store, project: str) -> StoredProject:
    found = [one for one in store.projects() if one.name == project]
    if not found:
        there = ", ".join(repr(one.name) for one in store.projects()) or "none yet"
        raise StoreError(
            f"there is no project {project!r} in the store: make one on the dashboard's page "
            f"Annotate, or name one that there is ({there})"
        )
    return found[0]


def _people_curve(
    config: Config,
    directory: RunDirectory,
    given: LabelledSet,
    epochs: int,
    shares: Sequence[float],
    progress: Callable[[int, StudentResult], None] | None,
) -> list[tuple[int, StudentResult]]:
    """Students of shares of what people said, under the names that they gave."""
    real = real_test_set(config.data, given.names)
    if real is None:
        kept = given.held_out()
        if kept.all() or not kept.any():
            raise StoreError(f"{len(given.labels)} labels are too few to keep some for a test")
        held, given = given.part(kept), given.part(~kept)
        test = held.images, held.labels
    else:
        test = as_devices_send(directory, real[0], config.seed), real[1]
    order = torch.randperm(len(given.labels), generator=torch.Generator().manual_seed(config.seed))
    curve = []
    for count in sorted({max(1, round(share * len(given.labels))) for share in shares}):
        part = given.part(order[:count].sort().values)
        if count < len(given.labels) and len(set(part.labels.tolist())) < 2:
            continue  # a few labels may all be of one class, of which nobody learns anything
        student = _taught(config, part, test, epochs, IMAGES)
        curve.append((count, student))
        if progress is not None:
            progress(count, student)
    return curve


def _taught(
    config: Config, given: LabelledSet, test: tuple[torch.Tensor, torch.Tensor], epochs: int,
    images: int,
) -> StudentResult:  # fmt: skip
    at_nodes = config.data.name.partition(":")[0] == PREFIX
    return people_student(
        given,
        test,
        augmentation=None if at_nodes else spec_of(config.data.name).augmentation,
        images=images,
        epochs=epochs,
        seed=config.seed,
    )


def _check_names(labels: Sequence[StoredLabel], run: RunRecord, classes: int, project: str) -> None:
    """Refuse fewer class labels than classes whose names do not say which classes they are."""
    numbers = class_numbers(labels, run)
    said = [label.name for label in labels if label.label_id in numbers]
    if len(numbers) < classes and any(run.class_of_name(name) is None for name in said):
        raise StoreError(
            f"project {project!r} has {len(numbers)} class labels and the data {classes} classes: "
            "name each label as the run calls its class, or 'class N', N from 0, for students to "
            "know which it is"
        )
