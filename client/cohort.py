"""All drawn users of a node in one batched computation, clipped user by user."""

from __future__ import annotations

import numpy as np
import torch

from accountant.norms import NORM_BINS
from client.clipping import clip_and_sum, histogram
from client.critics import FAMILIES
from client.data import LocalData, LocalUsers
from client.records import TrainReply, TrainRequest


def train_cohort(users: LocalUsers, request: TrainRequest) -> TrainReply:
    """Train the request's users and return the sum of their clipped updates.

    Guarantees: each user's contribution to ``total`` has L2 norm at most
    ``settings["clipping_norm"]`` and depends on no other user; a user with no record, or whose
    update is not finite, contributes zeros.

    Raises:
        ValueError: a user is asked for twice, or is not on this node.
    """
    chosen = request.users
    if len(set(chosen)) != len(chosen) or not all(0 <= u < len(users) for u in chosen):
        raise ValueError("users must be distinct positions on this node")
    bound = float(request.settings["clipping_norm"])
    critic = FAMILIES[str(request.settings["family"])](users, request)
    seeds = [_seed(request.seed, user) for user in chosen]
    total, norms = None, torch.zeros(NORM_BINS, dtype=torch.int64)
    for start in range(0, len(chosen), critic.chunk):
        part = slice(start, start + critic.chunk)
        cohort = [sound_records(users, user) for user in chosen[part]]
        updates = critic.updates(cohort, seeds[part])
        summed, clipped = clip_and_sum(updates, bound)
        total = summed if total is None else total + summed
        norms += histogram(clipped, bound, NORM_BINS)
    if total is None:
        raise ValueError("a request must name at least one user")
    return TrainReply(total.numpy(), norms.numpy())


def sound_records(users: LocalUsers, user: int) -> LocalData:
    """A user's records that fit the schema; the others are as if they were not there.

    Users are computed together, so a label or an image of one must never reach another's rows, or
    fail the node: the sensitivity of the sum to one user would not be C.
    """
    data = users.user(user)
    fits = (data.labels >= 0) & (data.labels < users.classes)
    fits &= torch.isfinite(data.images).flatten(1).all(1)
    return LocalData(data.images[fits], data.labels[fits])


def _seed(seed: int, user: int) -> int:
    return int(np.random.SeedSequence([seed, user]).generate_state(1, np.uint64)[0])
