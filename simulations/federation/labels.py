"""What simulated records are labelled by: their own labels, a label model, nothing, or in part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedlens.client.contract import PREFIX
from fedlens.data.dataset import Dataset, DatasetError
from fedlens.data.registry import load
from fedlens.foundation.unlabelled import NO_CLASS, NONE, OWN_OR
from fedlens.models.label_models import LabelModel, read_label_model
from fedlens.models.shapes import from_pixels
from fedlens.server.config.tree import DataConfig
from fedlens.simulations.federation.partitions import Partition

_LABELLED = 10
"""Stream of the run's seed that decides which users are labelled."""


def labelled_as(
    data: DataConfig, own: Dataset, dealt: Partition, seed: int
) -> tuple[Dataset, Partition]:
    """The users' records under ``data.labels``.

    With ``own-or-none`` a record without a label has `NO_CLASS`. By a label model each record's
    name follows from that record alone, as on a device; records that the model is less sure of than
    ``data.least_confidence`` are nobody's any more, and a user may have none left. With
    ``own-or-model`` those that have a label keep it.

    Args:
        data: the run's.
        own: with the labels that the records have.
        dealt: to whom.
        seed: the run's; it decides which users are labelled, where not all are.

    Raises:
        LabelModelError: the file is no label model, or names other images.
        DatasetError: it calls classes otherwise than the data do, and records keep their own.
    """
    if data.labels == NONE:
        return own.without_labels(), dealt
    if data.labelled_users < 1:
        own = _labelled_in_part(own, dealt, data.labelled_users, seed)
    if not data.label_model:
        return own, dealt
    model = read_label_model(data.label_model)
    labels = np.zeros(len(own.train_labels), np.int64)
    labels[dealt.indices], sure = model.name(own.train_images[dealt.indices])
    tests, _ = model.name(own.test_images)
    if data.labels.startswith(OWN_OR):
        number = np.array([*_numbers(own, model), NO_CLASS])
        kept = own.train_labels != NO_CLASS
        labels[kept], tests = number[own.train_labels[kept]], number[own.test_labels]
        sure[kept[dealt.indices]] = 1
    for array in (labels, tests):
        array.setflags(write=False)
    named = replace(
        own,
        train_labels=labels,
        test_labels=tests,
        classes=len(model.class_names),
        class_names=model.class_names,
        declared=True,
    )
    kept = sure >= data.least_confidence
    ends = np.concatenate([[0], np.cumsum(kept)])[dealt.offsets].astype(np.int64)
    return named, Partition(dealt.indices[kept], ends, dealt.own_ids)


def _labelled_in_part(own: Dataset, dealt: Partition, share: float, seed: int) -> Dataset:
    """The data set, whose records have a label if they are of that share of the users alone."""
    chosen = np.random.default_rng([seed, _LABELLED]).permutation(dealt.users)
    labels = np.full_like(own.train_labels, NO_CLASS)
    for user in chosen[: round(share * dealt.users)]:
        labels[dealt.user(user)] = own.train_labels[dealt.user(user)]
    labels.setflags(write=False)
    return replace(own, train_labels=labels)


def _numbers(own: Dataset, model: LabelModel) -> list[int]:
    """Which class of the label model each of the data's is, by its name."""
    found = _same_names(own.class_names, model.class_names)
    if sorted(found) != list(range(len(model.class_names))):
        raise DatasetError(
            f"{own.name}: its classes are {', '.join(own.class_names[:20])}, and the label model "
            f"names {', '.join(model.class_names[:20])}: records can keep their own labels only "
            "where both are called the same"
        )
    return found


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
    known = _same_names(own.class_names, names)
    if sorted(known) != list(range(len(names))):
        return None
    labels = np.array(known, np.int64)[own.test_labels]
    return from_pixels(own.test_images), torch.from_numpy(labels)


def _same_names(own: tuple[str, ...], names: tuple[str, ...]) -> list[int]:
    """Which of ``names`` each own one is; -1 for none."""
    if own == names:
        return list(range(len(names)))
    number = {_plain(name): place for place, name in enumerate(names)}
    return [number.get(_plain(name), -1) for name in own]


def _plain(name: str) -> str:
    return name.strip().casefold().removeprefix("class ")
