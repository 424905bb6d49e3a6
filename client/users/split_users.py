"""A node's users on one side of a private split; those on the other hold nothing.

A user's side follows from that user's own records, a public model and a public threshold. It is
found out on the node and no reply has a field for it: a user on the other side is, in all that a
task computes, a user without records. As far as a node's sums show who contributed, the server,
which adds the noise, sees it, as it does who holds no records. All users of the node are scored
together, each by the same work whatever is held, so that when it happens tells nothing of who was
drawn.

The records that are scored are drawn by the split's own key, not the run's: as long as the user's
records, the node's software and its processor stay the same, so does the side, in every run on the
split. That is what lets runs on the two sides compose in parallel.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.client.messages import UserSplit
from fedlens.client.users.around import SensitiveUsersAround
from fedlens.client.users.cache import KeptBeside
from fedlens.client.users.capped import MOST_NODES, CappedUsers
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError, Rows
from fedlens.client.users.records import NO_USER, CohortData, no_records, padded
from fedlens.models.annotators import Annotator
from fedlens.models.probes import PROBES
from fedlens.models.probes.protocol import Argument, ProbedRecords
from fedlens.models.vectors import load_vector

AT_ONCE = 16
"""Users whose records are in memory together while they are scored."""


@dataclass(frozen=True, eq=False)
class SplitUsers(SensitiveUsersAround):
    """Users around users: the same ones, of whom some hold nothing.

    Their number, and how many records each holds, are those of both sides.
    """

    inside: NDArray[np.bool_]
    """[users], whether each is on the side that is asked."""

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The records of a user; none of one on the other side, whose are read and dropped.

        So a side takes as long to read as the other.
        """
        data = self.users.user(position, rows)
        return data if self.inside[position] else no_records(self.users)


def scores(users: LocalUsers, split: UserSplit) -> NDArray[np.float64]:
    """How well the model does on each user's records: in [0, 1], float64 [users].

    A user's score depends on no other user and on no run; that of one without sound records is 0.

    Raises:
        NodeDataError: the model is not for such images and classes.
    """
    settings, key = split.settings, bytes.fromhex(split.identity)
    network = _network(users, split)
    shown = CappedUsers(users, settings.records, key)
    found = np.zeros(len(users))
    for start in range(0, len(users), AT_ONCE):
        part = range(start, min(start + AT_ONCE, len(users)))
        cohort = CohortData(shown, [*part, *(NO_USER,) * (AT_ONCE - len(part))])
        held = padded(cohort, settings.records, users)
        for row, user in enumerate(part):
            records = (held.images[row], held.labels[row], held.present[row])
            own = ProbedRecords(*records, users.classes, network)
            found[user] = _score(own, settings.rule)
    return found


@torch.no_grad()
def _score(records: ProbedRecords, rule: str) -> float:
    """The mean over the records that are there; in float64, so that 7 of 10 is at 0.7."""
    values = PROBES[rule].value(records, Argument())
    values = torch.nan_to_num(values.double()).clamp(0, 1) * records.present
    return float(values.sum() / records.present.sum().clamp(min=1))


def _network(users: LocalUsers, split: UserSplit) -> Annotator:
    settings = split.settings
    try:
        network = Annotator(users.shape, users.classes, settings.components, settings.features)
        load_vector(network, split.model)
    except ValueError as error:
        raise NodeDataError(f"the split's model does not fit this node's data: {error}") from None
    return network.eval()


_KEPT: KeptBeside[SplitUsers] = KeptBeside(MOST_NODES)


def on_side(users: LocalUsers, split: UserSplit) -> SplitUsers:
    """The users, of whom those on the other side hold nothing; the same object for the same split.

    Raises:
        NodeDataError: the model is not for such images and classes.
    """
    asked = (split.identity, split.settings.side)
    known = _KEPT.get(users, asked)
    if known is None:
        high = scores(users, split) >= split.settings.threshold
        inside = high if split.settings.side == "from" else ~high
        # held weakly: what is made of users goes with them
        known = SplitUsers(weakref.proxy(users), inside)
        _KEPT.put(users, asked, known)
    return known
