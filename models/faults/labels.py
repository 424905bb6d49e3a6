"""Faults of labels, and of which records a user holds."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.models.faults.protocol import Fault, FaultSetting, Records


def swapped(images: Tensor, labels: Tensor, setting: FaultSetting) -> Records:
    """Two classes named by each other's name."""
    one, other = setting.chosen
    found = torch.where(labels == one, other, torch.where(labels == other, one, labels))
    return images, found


def moved_on(images: Tensor, labels: Tensor, setting: FaultSetting) -> Records:
    """Each class named as the one ``amount`` places after it."""
    return images, (labels + round(setting.amount)) % setting.classes


def drawn_at_random(images: Tensor, labels: Tensor, setting: FaultSetting) -> Records:
    """Every label drawn anew, all classes alike."""
    drawn = torch.randint(setting.classes, labels.shape, generator=setting.generator())
    return images, drawn


def without(images: Tensor, labels: Tensor, setting: FaultSetting) -> Records:
    """Records of the chosen classes taken out."""
    kept = ~torch.isin(labels, torch.tensor(setting.chosen))
    return images[kept], labels[kept]


def crowded(images: Tensor, labels: Tensor, setting: FaultSetting) -> Records:
    """``amount`` of the other records replaced by copies of those of the chosen class, if any."""
    own = torch.isin(labels, torch.tensor(setting.chosen)).nonzero()[:, 0]
    if not len(own):
        return images, labels
    source, rows = setting.generator(), torch.arange(len(labels))
    replaced = torch.rand(len(labels), generator=source) < setting.amount
    replaced[own] = False
    rows[replaced] = own[torch.randint(len(own), (int(replaced.sum()),), generator=source)]
    return images[rows], labels[rows]


def repeated(images: Tensor, labels: Tensor, setting: FaultSetting) -> Records:
    """All records copies of the first, if any."""
    rows = torch.zeros_like(labels)
    return images[rows], labels[rows]


SWAP_LABELS = Fault(
    "swap_labels",
    "two classes' names exchanged",
    label=swapped,
    takes="pair",
    renames=True,
    probe="better_after:swap_labels:{classes}",
    otherwise="Two classes that some users really call by each other's name.",
)
SHIFT_LABELS = Fault(
    "shift_labels",
    "every class named as a neighbour",
    label=moved_on,
    amounts=(1.0, -1.0),
    measure="classes",
    renames=True,
    probe="better_after:shift_labels:amount={minus}",
    otherwise="A list of classes in another order, or one that counts from 1.",
)
RANDOM_LABELS = Fault(
    "random_labels",
    "labels drawn at random",
    label=drawn_at_random,
    probe="confidence",
    otherwise="Users who tap through a questionnaire without looking.",
)
MISSING_CLASS = Fault(
    "missing_class",
    "a class missing",
    label=without,
    takes="class",
    probe="lacks_label:{label}",
    otherwise="Users who never meet that class: uneven data, not a defect.",
)
FREQUENT_CLASS = Fault(
    "frequent_class",
    "too many of a class",
    label=crowded,
    amounts=(0.5,),
    measure="of the other records",
    takes="class",
    probe="label_share:{label}",
    otherwise="Users who meet that class more often: uneven data, not a defect.",
)
DUPLICATES = Fault(
    "duplicates",
    "copies of one record",
    label=repeated,
    copies=True,
    probe="repeats",
    otherwise="An application that saves the same image again.",
)
