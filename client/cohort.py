"""All drawn users of a node in one batched computation, clipped user by user."""

from __future__ import annotations

import numpy as np
import torch

from accountant.bayesian.norms import NORM_BINS
from client.clipping import clip_and_sum, histogram
from client.cohort_data import CohortData, UserSeeds
from client.data import LocalUsers
from client.messages import TrainReply, TrainRequest
from client.tasks import CLIENT_TASKS


def train(users: LocalUsers, request: TrainRequest) -> TrainReply:
    """The node's reply to a request, in the unit that it names.

    Raises:
        WrongUse: this node knows no such kind of task.
        ValueError: as `train_cohort`.
    """
    if request.mechanism.unit == "user":
        return train_cohort(users, request)
    update = CLIENT_TASKS[request.kind](users, request).record_update(users.partition)
    return TrainReply(update.numpy(), np.zeros(0, dtype=np.int64))


def train_cohort(users: LocalUsers, request: TrainRequest) -> TrainReply:
    """Train the request's users and return the sum of their clipped updates.

    Guarantees: each user's contribution to ``total`` has L2 norm at most the mechanism's
    ``clipping_norm`` and depends on no other user; a user with no record, or whose update is not
    finite, contributes zeros.

    Raises:
        ValueError: a user is asked for twice, or is not on this node.
    """
    chosen = request.users
    if len(set(chosen)) != len(chosen) or not all(0 <= u < len(users) for u in chosen):
        raise ValueError("users must be distinct positions on this node")
    bound = request.mechanism.clipping_norm
    task = CLIENT_TASKS[request.kind](users, request)
    total, norms = None, torch.zeros(NORM_BINS, dtype=torch.int64)
    for start in range(0, len(chosen), task.chunk):
        part = chosen[start : start + task.chunk]
        updates = task.updates(CohortData(users, part), UserSeeds(request.seed, part))
        summed, clipped = clip_and_sum(updates, bound)
        total = summed if total is None else total + summed
        norms += histogram(clipped, bound, NORM_BINS)
    if total is None:
        raise ValueError("a request must name at least one user")
    return TrainReply(total.numpy(), norms.numpy())
