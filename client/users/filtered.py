"""A node's users as a request wants them seen: capped, and filtered or in pairs with an attribute.

A filter is trained first (`fedlens.client.tasks.privatizer`); then it travels in every request.
Each record is filtered with noise that follows from the run's key, the user's id and the record
itself, so that no other record has a part in it, what nodes keep between rounds stays valid and a
run can be repeated. That noise is no secret and no protection by itself: filtered images never
leave the node, only noised sums do. Server and nodes have the key, so the 32 bits that PyTorch
takes of a seed hide no less than more would.

Where the filter is to be trained on samples, there is none to look through yet: images are as they
are, and a record's class is the pair of its class and its sensitive value.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.messages import FilterSettings, TrainRequest
from fedlens.client.users.around import UsersAround
from fedlens.client.users.cache import KeptBeside
from fedlens.client.users.capped import capped
from fedlens.client.users.protocol import LocalData, LocalUsers, NodeDataError, Rows, sensitive_of
from fedlens.client.users.records import no_records, placed_records
from fedlens.client.users.seeds import keyed_seed
from fedlens.client.users.split_users import on_side
from fedlens.models import devices
from fedlens.models.vectors import load_vector
from fedlens.privatizers.networks.design import FilterNetwork, filter_network

MOST_NODES = 16
"""Nodes of one process whose filter is kept between rounds, with the rows made of its images."""
AT_ONCE = 16
"""Records that are filtered together, always as many: fewer are filled up."""
MOST_KEPT = 2**26
"""Values (256 MiB) of filtered images that a node keeps; what is beyond is made anew."""
UNSOUND = -1
"""A class that no schema has, of a record that does not count."""


def as_asked(users: LocalUsers, request: TrainRequest) -> LocalUsers:
    """The node's users as the request wants them.

    In user mode those on the other side of a split hold nothing, and each has at most
    ``records_per_user`` records, chosen before any is read; filtered
    where the request carries a filter; in pairs where it wants them. The same object for the same
    users, cap and filter, so that rows made of it can be kept.

    Raises:
        NodeDataError: classes are to be conditioned on an attribute that the users do not have, or
            there is a filter that cannot be run; or a split is asked of what cannot be split.
    """
    by_user = request.mechanism.unit == "user"
    if not isinstance(users, LocalUsers):  # or every user would be one who cannot be read
        raise NodeDataError("the node's users lack a method or attribute of LocalUsers")
    if request.split is not None:
        if not by_user or request.filter is not None:
            raise NodeDataError("a split is of users as they are: user mode, and no filter")
        users = on_side(users, request.split)
    if by_user:
        users = capped(users, request.records_per_user, request.key)
    vector, settings = request.weights.get("filter"), request.filter
    if vector is None and settings is None:
        return users
    if settings is None or (vector is None and not settings.pairs):
        raise NodeDataError("the request lacks the filter's weights or its settings")
    asked = (vector if vector is None else vector.tobytes(), settings, request.key)
    known = _KEPT.get(users, asked)
    if known is None:
        # held weakly, so that it goes with the users that it is made of
        least = request.records_per_user if by_user else 0
        known = FilteredUsers.of(weakref.proxy(users), vector, settings, request.key, least)
        _KEPT.put(users, asked, known)
    return known


@dataclass(frozen=True, eq=False)
class FilteredUsers(UsersAround):
    """Users around users: the same records with filtered images, or with pairs for classes.

    With ``conditioned`` a record's class is (class x values + value), so that a generator learns
    what images of each value look like: of filtered ones, the strongest test of a filter.
    """

    network: FilterNetwork | None
    """None where images are as they are."""
    key: bytes
    """The run's; it decides the filter's noise together with user and record."""
    conditioned: bool = False
    least: int = 0
    """Records that a user's take as long as, at the least; user mode's cap."""
    _kept: dict[int, LocalData] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        users: LocalUsers,
        vector: NDArray[np.float32] | None,
        settings: FilterSettings,
        key: bytes,
        least: int,
    ) -> FilteredUsers:
        """Users behind the filter of a request; without one, pairs of unfiltered images."""
        if vector is None:
            return cls(users, None, key, conditioned=True)
        network = filter_network(settings.model_dump(), users.shape)
        load_vector(network, vector)
        made = cls(users, network.eval().to(devices.best_device()), key, settings.pairs, least)
        # one that cannot be run must fail the node, not pass for users who cannot be read
        made._released(no_records(users), 0, 1)
        return made

    def __post_init__(self) -> None:
        if self.conditioned and self._sensitive_classes < 2:
            raise NodeDataError(
                "the run conditions on a sensitive attribute, and this node's data has none"
            )

    @property
    def _sensitive_classes(self) -> int:
        return sensitive_of(self.users)[1]

    @property
    def classes(self) -> int:
        """Number of classes, or of pairs with the sensitive attribute."""
        return self.users.classes * (self._sensitive_classes if self.conditioned else 1)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The user's sound records, filtered; their sensitive values stay behind.

        An unsound one is in its place with a class that no schema has. In user mode all users'
        are made at once where there is room to keep them: when does not tell who was asked for.
        """
        if rows is not None or not self._has_room:
            return self._made(position, rows)
        if not self._kept:
            self._kept.update({place: self._readable(place) for place in range(len(self))})
        return self._kept[position]

    def _readable(self, position: int) -> LocalData:
        """A user's filtered records; none of one whose records cannot be, who must fail no one."""
        try:
            return self._made(position, None)
        except Exception:
            return no_records(self)

    @property
    def _has_room(self) -> bool:
        values = len(self) * self.least * math.prod(self.shape)
        return self.network is not None and 0 < values <= MOST_KEPT

    @torch.no_grad()
    def _made(self, position: int, rows: Rows | None) -> LocalData:
        data, places = placed_records(self.users, position, rows)
        asked = self.held(position) if rows is None else len(rows)
        images, labels = torch.zeros(asked, *self.shape), torch.full((asked,), UNSOUND)
        if self.conditioned and data.sensitive is None:  # then there is no pair to be of
            return LocalData(images, labels)
        images[places] = self._released(data, self.user_id(position), asked)
        labels[places] = data.labels
        if self.conditioned and data.sensitive is not None:
            labels[places] = data.labels * self._sensitive_classes + data.sensitive
        return LocalData(images, labels)

    @torch.no_grad()
    def _released(self, data: LocalData, user: int, asked: int) -> Tensor:
        """Filtered images [n, c, h, w], at the cost of ``asked`` records however many there are."""
        if self.network is None:
            return data.images
        count, size = len(data.labels), max(asked, self.least)
        size += -size % AT_ONCE
        images = torch.zeros(size, *self.shape)
        images[:count] = data.images
        noise = torch.stack([self._noise(user, image, self.network) for image in images])
        choice = None if data.choice is None else torch.ones(size, 1)
        if choice is not None and data.choice is not None:
            choice[:count] = data.choice
        parts: list[Tensor] = []
        device = devices.device_of(self.network)
        for first in range(0, size, AT_ONCE):
            part = slice(first, first + AT_ONCE)
            bits = None if choice is None else choice[part].to(device)
            released = self.network(images[part].to(device), noise[part].to(device), bits)
            parts.append(released.cpu())
        return torch.cat([*parts, images[:0]])[:count]

    def _noise(self, user: int, image: Tensor, network: FilterNetwork) -> Tensor:
        """A record's own noise, whatever else is held: by what it shows, not by where it lies."""
        content = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=16).digest()
        source = torch.Generator().manual_seed(keyed_seed(self.key, "filter", user, content))
        return torch.randn(network.noise_shape, generator=source)


_KEPT: KeptBeside[FilteredUsers] = KeptBeside(MOST_NODES)
