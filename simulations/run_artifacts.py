"""Reading a run back: its generator and its samples, for everything that comes after training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy import make_url
from torch import Tensor, nn

from fedlens.models.shapes import ImageShape, as_bytes, as_seen, from_pixels
from fedlens.privatizers.export import release
from fedlens.privatizers.fitting import LeakageEstimate
from fedlens.server.generation.fitting import leakage_of
from fedlens.server.generation.sampler import (
    BATCH,
    Drawn,
    Sampler,
    restored_filter,
    restored_sampler,
)
from fedlens.server.learning.privatizer import filter_task_of, kept_filter_weights
from fedlens.server.learning.unguided import faithful_sampler
from fedlens.server.run.arrays import within
from fedlens.server.run.directory import RunDirectory, RunDirectoryError, load_generator
from fedlens.simulations.students.distillation import Room, parts_of
from fedlens.simulations.students.people import LabelledSet
from fedlens.store import (
    Purpose,
    RunRecord,
    SampleFilter,
    Store,
    StoredBatch,
    StoredLabel,
    StoredSample,
    StoreError,
    decode_png,
)


def kept_sampler(
    directory: RunDirectory, round_number: int | None = None, purpose: Purpose = "curated"
) -> Sampler:
    """The generator of a round (the last one by default) with its annotator, ready to draw from.

    For the ``purpose`` of `BatchRecord`: of ``curated`` samples through the run's filter, of
    ``strip`` without it, of ``faithful`` from a generator that nothing has guided.

    Raises:
        RunDirectoryError: the run has no whole round yet, kept no generator of this one, or one
            that this version of fedlens cannot read.
    """
    snapshot = directory.load_state()
    if snapshot is None:
        how = directory.resume_words()
        raise RunDirectoryError(f"{directory.path} has no whole round yet: {how} goes on with it")
    round_number = snapshot.round if round_number is None else round_number
    path = directory.generator_path(round_number)
    if not path.exists():
        raise RunDirectoryError(f"round {round_number} kept no generator; see {path.parent}")
    channels, height, width = snapshot.facts["shape"]
    shape, classes = (channels, height, width), int(snapshot.facts["classes"])
    arrays = load_generator(path)
    try:
        sampler = restored_sampler(directory.config(), shape, classes, arrays)
    except (KeyError, ValueError) as error:
        raise RunDirectoryError(f"{path} is not this version's: {error}; train anew") from None
    if purpose == "faithful":
        if sampler.privatizer is not None:
            raise RunDirectoryError(
                f"{directory.path} hides something of samples: none is faithful"
            )
        return faithful_sampler(directory, round_number, sampler)
    return sampler if purpose == "curated" else sampler.unfiltered()


def kept_run_filter(path: Path) -> tuple[nn.Module, ImageShape]:
    """The filter that a run with a privatizer trained, and the shape of its images.

    Raises:
        RunDirectoryError: it is no run, has no whole round yet, or trained no filter.
    """
    directory = RunDirectory.open(path)
    snapshot = directory.load_state()
    config = directory.config()
    vector = None if snapshot is None else kept_filter_weights(config, snapshot.arrays)
    if snapshot is None or vector is None:
        raise RunDirectoryError(
            f"{directory.path} has no filter: its run has no [privatizer], or is not done yet"
        )
    channels, height, width = snapshot.facts["shape"]
    shape = channels, height, width
    return restored_filter(config, shape, vector), shape


def as_devices_send(directory: RunDirectory, images: Tensor, seed: int) -> Tensor:
    """Real images [n, c, h, w] as devices send them to what a run's samples taught.

    Where the run hides anything they went through its filter, for somebody who wants that hidden,
    each with noise of its own that follows from ``seed``: to be measured with and not to be kept.

    Raises:
        RunDirectoryError: the run has no whole round or no filter yet.
    """
    if not directory.config().privatizer.active:
        return images
    network, _ = kept_run_filter(directory.path)
    source = torch.Generator().manual_seed(seed)
    return torch.cat([release(network, part, source) for part in torch.split(images, BATCH)])


def kept_leakage(directory: RunDirectory) -> LeakageEstimate | None:
    """What a fresh adversary reads of what the run's filter was fitted on; None if nothing says.

    That is filtered samples, or images of drawn features. They carry no more output noise than
    filters are fitted with, those that are released may carry more.
    """
    snapshot = directory.load_state()
    if snapshot is None:
        return None
    name = filter_task_of(directory.config())
    place = "filter" if name is None else f"tasks/{name}"
    return leakage_of(within(place, snapshot.arrays))


def fresh_samples(sampler: Sampler, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """``count`` images in [-1, 1] with their requested classes, all equally often.

    Of pairs of class and sensitive value that a filter hides the class alone.
    """
    labels = torch.arange(count) % sampler.shown_classes
    return sampler.draw(sampler.asked(labels, seed), seed), labels


def seen_samples(sampler: Sampler, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The same as students see them (`as_seen`), as bytes; drawn in parts, for memory."""
    room, classes = Room(count), []
    for some, own in parts_of(count, math.prod(sampler.generator.shape), seed):
        images, labels = fresh_samples(sampler, some, own)
        room.put(as_bytes(as_seen(images)))
        classes.append(labels)
        del images  # or two parts are in memory while the next is drawn
    return room.images, torch.cat(classes)


def judged_samples(sampler: Sampler, count: int, seed: int) -> tuple[Drawn, Tensor]:
    """The same as `fresh_samples`, with the annotator's opinion of each image."""
    labels = torch.arange(count) % sampler.shown_classes
    return sampler.judged(sampler.asked(labels, seed), seed), labels


def last_batch(
    store: Store, run_id: str, purpose: Purpose, round_number: int | None = None
) -> StoredBatch:
    """The batch of a purpose that the run made of its last round, or of that round.

    Raises:
        RunDirectoryError: there is none.
    """
    found = [
        batch
        for batch in store.batches(run_id)
        if batch.purpose == purpose and round_number in (None, batch.round)
    ]
    if not found:
        of_round = "" if round_number is None else f" of round {round_number}"
        raise RunDirectoryError(f"run {run_id} has no {purpose} samples{of_round} in its store")
    # what is drawn later for queues has the same round and comes after the run's own
    return next(batch for batch in found if batch.round == found[-1].round)


def stored_samples(
    store: Store, wanted: SampleFilter, limit: int = 100_000
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images uint8 [n, c, h, w] and requested classes int64 [n] from the store.

    The class of samples that are unlabelled is -1.
    """
    found = store.samples(wanted, 0, limit)
    if not found:
        raise RunDirectoryError("the store holds no samples of this kind")
    images = np.stack([decode_png(sample.png) for sample in found])
    return images, requested_numbers(found)


def requested_numbers(samples: Sequence[StoredSample]) -> NDArray[np.int64]:
    """The class that each was requested for, int64 [n]; -1 where it is unlabelled."""
    asked = [one.requested_class for one in samples]
    return np.array([-1 if number is None else number for number in asked], np.int64)


def without_password(url: str) -> str:
    """A store's URL as it may be shown."""
    return make_url(url).render_as_string(hide_password=True)


def labelled_samples(store: Store, project_id: int) -> tuple[Tensor, Tensor]:
    """Samples that people gave a class: images in [-1, 1], and the class, int64 [n].

    A sample appears once where people agree, and once for each class where they differ, unless a
    reviewer has decided what it counts as; skips, artefacts, unknown classes and what a reviewer
    left out are left out.
    """
    number = class_numbers(store.labels(project_id), run_of_project(store, project_id))
    decided = {one.sample_id: one for one in store.final_labels(project_id) if one.decided}
    said = [a for a in store.annotations(project_id) if a.sample_id not in decided]
    pairs = [(one.sample_id, one.label_id) for one in said]
    pairs += [(sample, one.label_id) for sample, one in decided.items()]
    found = [(sample, number[label]) for sample, label in dict.fromkeys(pairs) if label in number]
    if not found:
        return torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    pixels = [decode_png(store.sample(sample).png) for sample, _ in found]
    return from_pixels(np.stack(pixels)), torch.tensor([class_ for _, class_ in found])


def labelled_set(store: Store, project_id: int) -> LabelledSet:
    """The same as `labelled_samples`, classes numbered as the project's class labels stand."""
    labels = store.labels(project_id)
    numbers = class_numbers(labels, run_of_project(store, project_id))
    images, classes = labelled_samples(store, project_id)
    place = {number: place for place, number in enumerate(numbers.values())}
    names = tuple(label.name for label in labels if label.label_id in numbers)
    places = torch.tensor([place[number] for number in classes.tolist()], dtype=torch.int64)
    return LabelledSet(images, places, names)


def run_of_project(store: Store, project_id: int) -> RunRecord:
    """The run whose samples are labelled in a project."""
    return store.run(store.project(project_id).run_id)


def class_numbers(labels: Sequence[StoredLabel], run: RunRecord) -> dict[int | None, int]:
    """The class that each class label of a project stands for, by the label's id.

    That is the class of its name. Where one has another name, positions are the classes, unless a
    label with the name of one of the run's classes stands elsewhere.

    Raises:
        StoreError: it says so.
    """
    labels = [label for label in labels if label.kind == "class"]
    ids = [label.label_id for label in labels]
    named = [run.class_of_name(label.name) for label in labels]
    if None not in named:
        return {one: number for one, number in zip(ids, named, strict=True) if number is not None}
    moved = [place for place, number in enumerate(named) if number not in (None, place)]
    if run.class_names and moved:
        strange, sure = labels[named.index(None)].name, labels[moved[0]].name
        raise StoreError(
            f"which class is the label {strange!r}? The label {sure!r} is one by its name, so "
            "positions do not say it: call each as the run calls its class, or 'class N'"
        )
    return {one: place for place, one in enumerate(ids)}
