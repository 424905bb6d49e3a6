"""Record mode: a node's reply is made of noised sums of records' clipped contributions.

A kind of task says what each record contributes, and what it does with a step's noised sum. Which
records take part, the clip and the noise are the framework's alone, so that a task, of whichever
package, can neither forget nor weaken them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.update.clipping import clip_and_sum
from fedlens.client.update.silo import drawn, noised
from fedlens.client.users.protocol import LocalUsers, NodeDataError
from fedlens.client.users.record_batches import DrawnRecords, NodeRecords

AT_ONCE = 128
"""Records that are read, computed and clipped together."""


def record_reply(users: LocalUsers, task: ClientTask, request: TrainRequest) -> Tensor:
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
        release = noised(total, request, users.partition, step) / mechanism.denominator
        if stepped is not None:
            stepped.take_step(release)
    return release if stepped is None else stepped.change()


def clipped_sum(records: NodeRecords, task: ClientTask, request: TrainRequest, step: int) -> Tensor:
    """A step's sum before its noise, float64 [P]: private, of L2 sensitivity C."""
    places = drawn(len(records), request, records.users.partition, step)
    total = _share(records, task, request, places[:0])
    for some in torch.split(places, AT_ONCE) if len(places) else ():
        total += _sound_share(records, task, request, some)
    return total


def _sound_share(
    records: NodeRecords, task: ClientTask, request: TrainRequest, places: Tensor
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


def _share(records: NodeRecords, task: ClientTask, request: TrainRequest, places: Tensor) -> Tensor:
    """What the records at ``places`` add up to, float64 [P], each clipped.

    Raises:
        ValueError: the task gives more rows than it was given records.
    """
    rows = task.record_rows(DrawnRecords(records, places.numpy()))
    if len(rows) > len(places):
        raise ValueError(f"{len(rows)} rows of {len(places)} records")
    return clip_and_sum(rows, request.mechanism.clipping_norm)[0].cpu()
