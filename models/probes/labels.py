"""Questions about labels, and about which records a user holds."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.models.probes.protocol import Argument, Probe, ProbedRecords


def label_share(records: ProbedRecords, argument: Argument) -> Tensor:
    """1 for a record of the class."""
    return (records.labels == argument.number).float()


def lacks_label(records: ProbedRecords, argument: Argument) -> Tensor:
    """1 for each record of a user none of whose records has the class, else -1."""
    some = ((records.labels == argument.number) & records.present).any().float()
    return (1 - 2 * some).expand(len(records.labels))


def repeats(records: ProbedRecords, _: Argument) -> Tensor:
    """1 for a record whose image is that of the record before it, else -1; the first is half-way.

    A user with one record repeats nothing.
    """
    images = records.images.flatten(1)
    same = (images == torch.roll(images, 1, 0)).all(1)
    found = torch.where(same, 1.0, -1.0)
    alone = records.present.sum() < 2
    return torch.where(torch.arange(len(found)) == 0, torch.where(alone, -1.0, 0.0), found)


LABEL_SHARE = Probe("label_share", "share of records of class {}", label_share, 0, 1, takes="class")
LACKS_LABEL = Probe(
    "lacks_label",
    "share of users without a record of class {}",
    lacks_label,
    -1,
    1,
    user="vote",
    takes="class",
)
REPEATS = Probe(
    "repeats", "share of users most of whose records are copies", repeats, -1, 1, user="vote"
)
