"""Record mode: a node's reply is made of noised sums of records' clipped contributions.

A kind of task says what each record contributes, and what it does with a step's noised sum. Which
records take part, the clip and the noise are the framework's alone, so that a task, of whichever
package, can neither forget nor weaken them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedlens.accountant.noise import add_noise, chosen, private_source
from fedlens.client.messages import TrainRequest
from fedlens.client.update.clipping import Updates, clip_and_sum
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError, Rows
from fedlens.client.users.records import placed_records

AT_ONCE = 128
"""Records that are read, computed and clipped together."""
_SAMPLING, _NOISE = 1, 2
"""Uses of a fixed seed, in tests."""


class NodeRecords:
    """All records of a node in the order of its users, sound or not, read only where drawn."""

    def __init__(self, users: LocalUsers) -> None:
        self.users = users
        held = [users.held(position) for position in range(len(users))]
        self._offsets = np.concatenate([[0], np.cumsum(held)]).astype(np.int64)

    def __len__(self) -> int:
        """How many: private in record mode."""
        return int(self._offsets[-1])

    def read(self, places: Rows) -> tuple[LocalData, Tensor]:
        """The sound ones among records at ascending ``places``.

        Returns:
            Their images and labels (nothing in record mode reads more), and which of ``places``
            they are, int64 [n].
        """
        owners = np.searchsorted(self._offsets, places, side="right") - 1
        cuts = np.flatnonzero(np.diff(owners)) + 1
        images, labels = [torch.zeros(0, *self.users.shape)], [torch.zeros(0, dtype=torch.int64)]
        sound = [torch.zeros(0, dtype=torch.int64)]
        for first, end in pairwise([0, *cuts.tolist(), len(places)]):
            if first == end:
                continue
            owner = int(owners[first])
            rows = places[first:end] - self._offsets[owner]
            data, own = placed_records(self.users, owner, rows)
            images.append(data.images)
            labels.append(data.labels)
            sound.append(own + first)
        return LocalData(torch.cat(images), torch.cat(labels)), torch.cat(sound)


@dataclass(frozen=True)
class DrawnRecords:
    """Some records that a step draws: few enough to be computed together."""

    node: NodeRecords
    places: Rows
    """Which records of the node, ascending, int64 [n]."""

    def read(self) -> LocalData:
        """Images and labels of those that are sound."""
        return self.node.read(self.places)[0]


class RecordTask(Protocol):
    """What record mode asks of a task: see `fedlens.client.tasks.protocol.ClientTask`."""

    takes_steps: bool

    def record_rows(self, drawn: DrawnRecords) -> Tensor | Updates:
        """The unclipped contributions of drawn records."""

    def take_step(self, release: Tensor) -> None:
        """Go on from a step's noised sum over the fixed denominator, float64 [P]."""

    def change(self) -> Tensor:
        """What the node replies, float64 [P]: it follows from the steps' noised sums alone."""


def record_reply(users: LocalUsers, task: RecordTask, request: TrainRequest) -> Tensor:
    """The node's noised contribution to a round, float64 [P].

    Guarantees: it is post-processing of as many Poisson-subsampled Gaussian mechanisms at record
    level as the mechanism has ``steps``, each with its sampling rate and its noise multiplier
    relative to C, the L2 sensitivity of the sum when one record is added or removed (provided that
    what a record contributes depends on that record and on noised sums only).

    Raises:
        NodeDataError: several steps are asked of a kind of task that takes one.
    """
    mechanism, records = request.mechanism, NodeRecords(users)
    stepped = task if task.takes_steps else None
    if stepped is None and mechanism.steps != 1:
        raise NodeDataError(f"kind {request.kind!r} takes one step, not {mechanism.steps}")
    release = torch.zeros(0, dtype=torch.float64)
    for step in range(mechanism.steps):
        total = clipped_sum(records, task, request, step)
        # fixed: how many took part, and even how many records the node holds, are private
        release = add_step_noise(total, request, users.partition, step) / mechanism.denominator
        if stepped is not None:
            stepped.take_step(release)
    return release if stepped is None else stepped.change()


def clipped_sum(records: NodeRecords, task: RecordTask, request: TrainRequest, step: int) -> Tensor:
    """A step's sum before its noise, float64 [P]: private, of L2 sensitivity C."""
    places = draw_records(len(records), request, records.users.partition, step)
    total = _share(records, task, request, places[:0])
    for some in torch.split(places, AT_ONCE) if len(places) else ():
        total += _sound_share(records, task, request, some)
    return total


def draw_records(records: int, request: TrainRequest, node: int, step: int) -> Tensor:
    """The records of a node that a step draws, each with probability q, as positions, int64."""
    mechanism = request.mechanism
    source = private_source(mechanism.fixed_seed, request.round, _SAMPLING, node, step)
    return torch.from_numpy(chosen(records, mechanism.sampling_rate, source))


def add_step_noise(total: Tensor, request: TrainRequest, node: int, step: int) -> Tensor:
    """A step's sum with its noise, float64, on the lattice of `fedlens.accountant.noise.lattice`.

    The noise is N(0, (zC)^2), C being the sum's sensitivity.
    """
    mechanism = request.mechanism
    return torch.from_numpy(
        add_noise(
            total.numpy(),
            noise_multiplier=mechanism.noise_multiplier,
            sensitivity=mechanism.clipping_norm,
            source=private_source(mechanism.fixed_seed, request.round, _NOISE, node, step),
        )
    )


def _sound_share(
    records: NodeRecords, task: RecordTask, request: TrainRequest, places: Tensor
) -> Tensor:
    """`_share`, in which a record that cannot be computed contributes nothing and fails none."""
    try:
        return _share(records, task, request, places)
    except Exception:
        nothing = _share(records, task, request, places[:0])
        if len(places) <= 1:
            return nothing
        for place in torch.split(places, 1):
            nothing += _sound_share(records, task, request, place)
        return nothing


def _share(records: NodeRecords, task: RecordTask, request: TrainRequest, places: Tensor) -> Tensor:
    """What the records at ``places`` add up to, float64 [P], each clipped.

    Raises:
        ValueError: the task gives more rows than it was given records.
    """
    rows = task.record_rows(DrawnRecords(records, places.numpy()))
    if len(rows) > len(places):
        raise ValueError(f"{len(rows)} rows of {len(places)} records")
    return clip_and_sum(rows, request.mechanism.clipping_norm)[0].cpu()
