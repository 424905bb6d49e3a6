"""What simulated records are labelled by: their own labels, nothing, or a label model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedlens.client.contract import PREFIX
from fedlens.data.dataset import Dataset, DatasetError
from fedlens.data.registry import load
from fedlens.models.label_models import read_label_model
from fedlens.models.shapes import from_pixels
from fedlens.server.config.tree import DataConfig
from fedlens.simulations.federation.partitions import Partition


def labelled_as(data: DataConfig, own: Dataset, dealt: Partition) -> tuple[Dataset, Partition]:
    """The users' records under ``data.labels``.

    By a label model each record's name follows from that record alone, as on a device; records
    that the model is less sure of than ``data.least_confidence`` are nobody's any more, and a user
    may have none left.

    Raises:
        LabelModelError: the file is no label model, or names other images.
    """
    if data.unlabelled:
        return own.without_labels(), dealt
    if not data.label_model:
        return own, dealt
    model = read_label_model(data.label_model)
    labels = np.zeros(len(own.train_labels), np.int64)
    labels[dealt.indices], sure = model.name(own.train_images[dealt.indices])
    tests, _ = model.name(own.test_images)
    for array in (labels, tests):
        array.setflags(write=False)
    named = replace(
        own,
        train_labels=labels,
        test_labels=tests,
        classes=len(model.class_names),
        class_names=model.class_names,
    )
    kept = sure >= data.least_confidence
    ends = np.concatenate([[0], np.cumsum(kept)])[dealt.offsets].astype(np.int64)
    return named, Partition(dealt.indices[kept], ends, dealt.own_ids)


def real_test_set(data: DataConfig, names: tuple[str, ...]) -> tuple[Tensor, Tensor] | None:
    """Test images in [-1, 1] of a simulation's data, and which of ``names`` each one is.

    For measuring alone: they are real and in no budget.

    Args:
        data: the run's.
        names: of classes, as people or the data set call them.

    Returns:
        None where names and data set do not call the same classes the same, or the data are at
        nodes.
    """
    if data.name.partition(":")[0] == PREFIX:
        return None
    try:
        own = load(data.name, data.dir or None)
    except DatasetError:  # its records have no labels
        return None
    known = list(range(len(names)))
    if own.class_names != names:
        number = {_plain(name): place for place, name in enumerate(names)}
        known = [number.get(_plain(name), -1) for name in own.class_names]
    if sorted(known) != list(range(len(names))):
        return None
    labels = np.array(known, np.int64)[own.test_labels]
    return from_pixels(own.test_images), torch.from_numpy(labels)


def _plain(name: str) -> str:
    return name.strip().casefold().removeprefix("class ")
