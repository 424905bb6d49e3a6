"""A node's users as a run with a privatizer sees them: filtered, or in pairs with an attribute.

A filter is trained first (`client.tasks.privatizer`); then it travels in every request. Each
record is filtered once, with noise that follows from a public seed and the user's place on the
node, so that what nodes keep between rounds stays valid and a run can be repeated. That noise is no
secret and no protection by itself: filtered images never leave the node, only noised sums do.

Where the filter is to be trained on samples, there is none to look through yet: images are as they
are, and a record's class is the pair of its class and its sensitive value.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.cohort_data import sound_records
from client.data import LocalData, LocalUsers, NodeDataError
from client.messages import FilterSettings, TrainRequest
from models.vectors import load_vector
from privatizers.networks.design import FilterNetwork, filter_network

MOST_NODES = 16
"""Nodes of one process whose filtered images are kept together."""
_NOISE = 5


def as_asked(users: LocalUsers, request: TrainRequest) -> LocalUsers:
    """The node's users, filtered where the request carries a filter, in pairs where it wants them.

    The same object for the same users and filter, so that rows made of it can be kept.

    Raises:
        NodeDataError: classes are to be conditioned on an attribute that the users do not have, or
            there is a filter that cannot be run.
    """
    vector, settings = request.weights.get("filter"), request.filter
    if vector is None and settings is None:
        return users
    if settings is None or (vector is None and not settings.pairs):
        raise NodeDataError("the request lacks the filter's weights or its settings")
    asked = (vector if vector is None else vector.tobytes(), settings)
    known = _KEPT.get(id(users))
    if known is not None and known.owner() is users and known.asked == asked:
        return known.shown
    # Held weakly: filtered images go with the users that they were made of, as when an operator
    # writes the node's file anew.
    shown = FilteredUsers.of(weakref.proxy(users), vector, settings)
    _keep(users, asked, shown)
    return shown


@dataclass(frozen=True)
class _Kept:
    owner: weakref.ref[LocalUsers]
    asked: tuple[object, ...]
    shown: FilteredUsers


_KEPT: dict[int, _Kept] = {}


def _keep(users: LocalUsers, asked: tuple[object, ...], shown: FilteredUsers) -> None:
    """Keep what users look like behind one filter; another filter's images are forgotten."""
    key = id(users)
    _KEPT.pop(key, None)
    with_images = [k for k, kept in list(_KEPT.items()) if kept.shown.network is not None]
    for oldest in with_images[: max(0, len(with_images) - MOST_NODES + 1)]:
        _KEPT.pop(oldest, None)
    _KEPT[key] = _Kept(weakref.ref(users, lambda _: _KEPT.pop(key, None)), asked, shown)


@dataclass(frozen=True, eq=False)
class FilteredUsers:
    """Users around users: the same records with filtered images, or with pairs for classes.

    With ``conditioned`` a record's class is (class x values + value), so that a generator learns
    what images of each value look like: of filtered ones, the strongest test of a filter.
    """

    users: LocalUsers
    network: FilterNetwork | None
    """None where images are as they are."""
    seed: int
    """Public; it decides the filter's noise together with partition and user."""
    conditioned: bool = False
    _kept: dict[int, LocalData] = field(default_factory=dict)

    @classmethod
    def of(
        cls, users: LocalUsers, vector: NDArray[np.float32] | None, settings: FilterSettings
    ) -> FilteredUsers:
        """Users behind the filter of a request; without one, pairs of unfiltered images."""
        if vector is None:
            return cls(users, None, settings.seed, conditioned=True)
        network = filter_network(settings.model_dump(), users.shape)
        load_vector(network, vector)
        return cls(users, network.eval(), settings.seed, settings.pairs)

    def __post_init__(self) -> None:
        if self.conditioned and self._sensitive_classes < 2:
            raise NodeDataError(
                "the run conditions on a sensitive attribute, and this node's data has none"
            )

    @property
    def _sensitive_classes(self) -> int:
        return int(getattr(self.users, "sensitive_classes", 0))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of an image."""
        return self.users.shape

    @property
    def classes(self) -> int:
        """Number of classes, or of pairs with the sensitive attribute."""
        return self.users.classes * (self._sensitive_classes if self.conditioned else 1)

    @property
    def partition(self) -> int:
        """The node's position among the nodes."""
        return self.users.partition

    def __len__(self) -> int:
        """Number of users."""
        return len(self.users)

    def user(self, position: int) -> LocalData:
        """The user's sound records, filtered; their sensitive values stay behind."""
        if self.network is None:  # nothing is saved by keeping what costs nothing to make
            return self._made(position)
        if position not in self._kept:
            self._kept[position] = self._made(position)
        return self._kept[position]

    @torch.no_grad()
    def _made(self, position: int) -> LocalData:
        data = sound_records(self.users, position)
        if self.conditioned and data.sensitive is None:  # then there is no pair to be of
            data = LocalData(data.images[:0], data.labels[:0])
        if not len(data.labels):
            return LocalData(data.images, data.labels)
        images = self._released(data, position)
        if self.conditioned and data.sensitive is not None:
            return LocalData(images, data.labels * self._sensitive_classes + data.sensitive)
        return LocalData(images, data.labels)

    def _released(self, data: LocalData, position: int) -> Tensor:
        if self.network is None:
            return data.images
        mixed = np.random.SeedSequence([self.seed, _NOISE, self.partition, position])
        source = torch.Generator().manual_seed(int(mixed.generate_state(1, np.uint64)[0]))
        noise = torch.randn(len(data.labels), *self.network.noise_shape, generator=source)
        images: Tensor = self.network(data.images, noise, data.choice)
        return images
