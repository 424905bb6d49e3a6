"""All drawn users of a node in one batched computation, clipped user by user."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import overload

import numpy as np
import torch
from torch import Tensor

from fedlens.accountant.bayesian.norms import NORM_BINS
from fedlens.client.messages import TrainReply, TrainRequest
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.update.clipping import clip_and_sum, histogram
from fedlens.client.update.record_mode import record_reply
from fedlens.client.users.protocol import LocalUsers, NodeDataError
from fedlens.client.users.records import NO_USER, CohortData
from fedlens.client.users.seeds import keyed_seed
from fedlens.client.users.views import prepare_users


def train(users: LocalUsers, request: TrainRequest, at_least: int = 0) -> TrainReply:
    """The node's reply to a request, in the unit that it names.

    ``at_least`` is that of `train_cohort`.

    Raises:
        WrongUse: this node knows no such kind of task.
        NodeDataError: as `fedlens.client.users.views.prepare_users`, `train_cohort` and
            `fedlens.client.update.record_mode.record_reply`.
    """
    shown = prepare_users(users, request)  # capped, and filtered where the request carries a filter
    if request.mechanism.unit == "user":
        return train_cohort(shown, request, at_least)
    update = record_reply(shown, CLIENT_TASKS[request.kind](shown, request), request)
    return TrainReply(update.numpy(), np.zeros(0, dtype=np.int64))


def train_cohort(users: LocalUsers, request: TrainRequest, at_least: int = 0) -> TrainReply:
    """Train the request's users and return the sum of their clipped updates.

    Guarantees: each user's contribution to ``total`` has L2 norm at most the mechanism's
    ``clipping_norm`` and depends on no other user; a user with no record, or whose update is not
    finite or cannot be computed, contributes zeros. Users are computed in chunks of one size, at
    least one, however few were drawn.

    Args:
        users: whom the request names, in the order of their positions.
        request: names those drawn.
        at_least: compute as many users as that, absent ones in place of those not drawn, and read
            other users' records and drop them there: how long it takes then tells nothing of how
            many were.

    Raises:
        NodeDataError: ``users`` are not as many as the request goes by, or a user is asked for
            twice.
    """
    chosen = request.users
    if request.enrolled != len(users):
        raise NodeDataError(
            f"{len(users)} users are to be trained, and the request is of {request.enrolled}"
        )
    if len(set(chosen)) != len(chosen) or not all(0 <= u < len(users) for u in chosen):
        raise NodeDataError("users must be distinct positions on this node")
    task, bound = CLIENT_TASKS[request.kind](users, request), request.mechanism.clipping_norm
    total, norms = None, torch.zeros(NORM_BINS, dtype=torch.int64)
    places = range(0, max(1, len(chosen), at_least), task.chunk)
    decoys = _decoys(len(users), chosen, len(places) * task.chunk) if at_least else ()
    for start in places:
        part = chosen[start : start + task.chunk]
        beside = decoys[start : start + task.chunk]
        summed, clipped = _chunk(task, users, request, part, beside)
        total = summed if total is None else total + summed
        norms += histogram(clipped[: len(part)], bound, NORM_BINS)
    if total is None:
        raise ValueError("there is always a chunk")
    return TrainReply(total.numpy(), norms.numpy())


def _decoys(users: int, chosen: tuple[int, ...], places: int) -> tuple[int, ...]:
    """For each place whom to read and drop there: users who were not drawn, in any order.

    Behind those drawn, as far as there are others; who they are changes no sum.
    """
    others = np.setdiff1d(np.arange(users), chosen)
    picked = np.random.default_rng().permutation(others)[: places - len(chosen)].tolist()
    filled = (NO_USER,) * len(chosen) + tuple(picked)
    return filled + (NO_USER,) * (places - len(filled))


def _chunk(
    task: ClientTask,
    users: LocalUsers,
    request: TrainRequest,
    part: tuple[int, ...],
    decoys: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    """The clipped sum of some users and their clipped norms, others' zeros behind them.

    Where they cannot be computed together each place is computed alone, among absent ones, and one
    who cannot be is absent as well. Places where there is no user are computed like the others, so
    that this too takes as long however many were drawn.
    """
    try:
        return _computed(task, users, request, part, decoys)
    except Exception:  # whatever it is, it may be one user's doing
        total, nothing = _computed(task, users, request, ())
        clipped = torch.zeros_like(nothing)
        for place in range(task.chunk):
            here = slice(place, place + 1)
            with suppress(Exception):
                alone, norm = _computed(task, users, request, part[here], decoys[here])
                total, clipped[place] = total + alone, norm[0]
        return total, clipped


def _computed(
    task: ClientTask,
    users: LocalUsers,
    request: TrainRequest,
    part: tuple[int, ...],
    decoys: tuple[int, ...] = (),
) -> tuple[Tensor, Tensor]:
    filled, beside = (who + (NO_USER,) * (task.chunk - len(who)) for who in (part, decoys))
    seeds = UserSeeds(users, request.key, request.round, filled)
    updates = task.updates(CohortData(users, filled, beside), seeds)
    if len(updates) != len(filled):  # or a user could be counted twice
        raise ValueError(f"{len(updates)} updates of {len(filled)} users")
    total, clipped = clip_and_sum(updates, request.mechanism.clipping_norm)
    return total.cpu(), clipped.cpu()


class UserSeeds(Sequence[int]):
    """A seed for each user's batches of a round; it depends on no other user."""

    def __init__(
        self, users: LocalUsers, key: bytes, round_number: int, positions: Sequence[int]
    ) -> None:
        """Seeds by the users' own ids under the run's key."""
        self._users, self._key, self._round = users, key, round_number
        self._positions = tuple(positions)

    def __len__(self) -> int:
        """How many users."""
        return len(self._positions)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> UserSeeds: ...
    def __getitem__(self, index: int | slice) -> int | UserSeeds:
        """The seed of one of them."""
        if isinstance(index, slice):
            return UserSeeds(self._users, self._key, self._round, self._positions[index])
        position = self._positions[index]
        own = 0 if position == NO_USER else self._users.user_id(position)
        return keyed_seed(self._key, "batches", self._round, own)
