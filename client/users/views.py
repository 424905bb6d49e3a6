"""A node's users as a request wants them seen: views of users, one around the other.

- `CappedUsers`: at most a public number of records each, chosen before any is read. What a node
  does for a user must not depend on how much the user holds: one with 300,000 records would exhaust
  the node's memory or outlast the round, and with it every other user of the node would be missing
  from the sum, whose sensitivity to that one user would be many times the clip.
- `SplitUsers`: users on one side of a private split; those on the other hold nothing. A side
  follows from the user's own records, a public model and a public threshold. It is found out on the
  node and no reply has a field for it: a user on the other side is, in all that a task computes, a
  user without records. As far as a node's sums show who contributed, the server, which adds the
  noise, sees it, as it does who holds no records.
- `ClasslessUsers`: all records as of one class, where some have labels and others have none, and
  a task asks for no class.
- `FilteredUsers`: images behind a filter, or records in pairs with the sensitive attribute. A
  filter is trained first (`fedlens.client.tasks.privatizer`); then it travels in every request.
  Each record is filtered with noise that follows from the run's key, the user's id and the record
  itself, so that no other record has a part in it, what nodes cache between rounds stays valid and
  a run can be repeated. That noise is no secret and no protection by itself: filtered images never
  leave the node, only noised sums do. Server and nodes have the key, so the 32 bits that PyTorch
  takes of a seed hide no less than more would.

`prepare_users` puts them around a node's users, the same objects for the same request.
"""

from __future__ import annotations

import hashlib
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.messages import FilterSettings, TrainRequest, UserSplit
from fedlens.client.users.cache import WeakCache
from fedlens.client.users.protocol import (
    DataOrigin,
    LocalData,
    LocalUsers,
    NodeDataError,
    Rows,
    check_users,
)
from fedlens.client.users.records import NO_USER, CohortData, no_records, padded, placed_records
from fedlens.client.users.seeds import keyed_seed
from fedlens.models import devices
from fedlens.models.annotators import Annotator
from fedlens.models.probes import PROBES
from fedlens.models.probes.protocol import Argument, ProbedRecords
from fedlens.models.weights import load_vector
from fedlens.privatizers.networks.design import FilterNetwork, filter_network

AT_ONCE = 16
"""Records that are filtered, or users who are scored, together: always as many."""
MOST_CACHED = 2**26
"""Values (256 MiB) of filtered images that a node caches; what is beyond is made anew."""
LEAST_SIZE = 2**18
"""Values that a view counts as at the least, though it may hold no record."""
UNSOUND = -1
"""A class that no schema has, of a record that does not count."""


@dataclass(frozen=True, eq=False)
class UsersView:
    """The same users at the same positions; a subclass says what each of them holds."""

    users: LocalUsers

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of an image."""
        return self.users.shape

    @property
    def classes(self) -> int:
        """Number of classes."""
        return self.users.classes

    @property
    def partition(self) -> int:
        """The node's position among the nodes."""
        return self.users.partition

    @property
    def sensitive_attribute(self) -> str:
        """The sensitive attribute's name; empty for none."""
        return self.users.sensitive_attribute

    @property
    def sensitive_classes(self) -> int:
        """The sensitive attribute's number of classes."""
        return self.users.sensitive_classes

    @property
    def slice(self) -> str:
        """The slice that these are the users of; empty for all."""
        return self.users.slice

    @property
    def people(self) -> NDArray[np.int64] | None:
        """Users' numbers that are the same at each node; None where `user_id` is."""
        return self.users.people

    @property
    def origin(self) -> DataOrigin:
        """Where the data are from."""
        return self.users.origin

    @property
    def cached_values(self) -> int:
        """Values that the view may hold in memory."""
        return 0

    def __len__(self) -> int:
        """Number of users."""
        return len(self.users)

    def user_id(self, position: int) -> int:
        """The user's own number."""
        return self.users.user_id(position)

    def held(self, position: int) -> int:
        """How many records the user holds."""
        return self.users.held(position)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The user's records, or some of them."""
        return self.users.user(position, rows)


VIEWS: WeakCache[UsersView] = WeakCache(2**30)
"""Of all nodes of a process, by the users that they are around: 4 GiB of values at most."""
View = TypeVar("View", bound=UsersView)


def prepare_users(users: LocalUsers, request: TrainRequest) -> LocalUsers:
    """The node's users as the request wants them.

    In user mode those on the other side of a split hold nothing, and each has at most
    ``records_per_user`` records, chosen before any is read; without labels where the request wants
    none of them; filtered where the request carries a
    filter; in pairs where it wants them. Where a filter is to be trained on samples there is none
    to look through yet: images are as they are, and a record's class is the pair of its class and
    its sensitive value. The same object for the same users, cap and filter, so that rows made of it
    can be cached.

    Raises:
        NodeDataError: the users do not say all that `LocalUsers` asks; classes are to be
            conditioned on an attribute that the users do not have, or there is a filter that cannot
            be run; or a split is asked of what cannot be split.
    """
    by_user = request.mechanism.unit == "user"
    users = check_users(users)
    if request.split is not None:
        if not by_user or request.filter is not None:
            raise NodeDataError("a split is of users as they are: user mode, and no filter")
        users = take_side(users, request.split)
    if by_user:
        users = cap_users(users, request.records_per_user, request.key)
    if request.unlabelled:
        users = cached_view(users, ClasslessUsers, (), ClasslessUsers)
    vector, settings = request.weights.get("filter"), request.filter
    if vector is None and settings is None:
        return users
    if settings is None or (vector is None and not settings.pairs):
        raise NodeDataError("the request lacks the filter's weights or its settings")
    asked = (vector if vector is None else vector.tobytes(), settings, request.key)
    least = request.records_per_user if by_user else 0
    return cached_view(
        users,
        FilteredUsers,
        asked,
        lambda seen: FilteredUsers.of(seen, vector, settings, request.key, least),
    )


def cached_view(
    users: LocalUsers, kind: type[View], asked: object, make: Callable[[LocalUsers], View]
) -> View:
    """The view of a kind around users, the same one for the same ``asked``."""
    known = VIEWS.get(users, (kind, asked))
    if not isinstance(known, kind):
        # held weakly: what is made of users goes with them, as when a node's file is written anew
        known = make(weakref.proxy(users))
        VIEWS.put(users, (kind, asked), known, max(LEAST_SIZE, known.cached_values))
    return known


@dataclass(frozen=True, eq=False)
class CappedUsers(UsersView):
    """Users around users, each with at most ``most`` records, the same ones for the whole run."""

    most: int
    key: bytes
    """The run's; it decides together with the user's id which records are kept."""

    def held(self, position: int) -> int:
        """How many records of the user are kept."""
        return min(self.users.held(position), self.most)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The kept records of a user."""
        seed = keyed_seed(self.key, "records", self.users.user_id(position))
        kept = choose_rows(self.users.held(position), self.most, seed)
        return self.users.user(position, kept if rows is None else kept[rows])


def cap_users(users: LocalUsers, most: int, key: bytes) -> CappedUsers:
    """The users, each with at most ``most`` records; the same object for the same arguments."""
    return cached_view(users, CappedUsers, (most, key), lambda all_: CappedUsers(all_, most, key))


def choose_rows(held: int, most: int, seed: int) -> Rows:
    """Which of ``held`` records are kept: all, or ``most`` of them, each set as likely as another.

    Floyd's sampling (Bentley & Floyd 1987): ``most`` draws, whatever ``held`` is.

    Returns:
        Ascending positions, int64 [min(held, most)].
    """
    if held <= most:
        return np.arange(held, dtype=np.int64)
    last = np.arange(held - most, held)
    drawn = np.random.default_rng(seed).integers(0, last + 1)
    chosen: set[int] = set()
    for top, draw in zip(last.tolist(), drawn.tolist(), strict=True):
        chosen.add(top if draw in chosen else draw)
    return np.array(sorted(chosen), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class ClasslessUsers(UsersView):
    """Users around users: the same records, all of one class, which is none."""

    @property
    def classes(self) -> int:
        """Number of classes."""
        return 1

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The user's records, or some of them, whether they have labels or not."""
        data = self.users.user(position, rows)
        return replace(data, labels=torch.zeros_like(data.labels))


@dataclass(frozen=True, eq=False)
class SplitUsers(UsersView):
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


def take_side(users: LocalUsers, split: UserSplit) -> SplitUsers:
    """The users, of whom those on the other side hold nothing; the same object for the same split.

    Raises:
        NodeDataError: the model is not for such images and classes.
    """

    def divide(everyone: LocalUsers) -> SplitUsers:
        high = score_users(everyone, split) >= split.settings.threshold
        return SplitUsers(everyone, high if split.settings.side == "from" else ~high)

    return cached_view(users, SplitUsers, (split.identity, split.settings.side), divide)


def score_users(users: LocalUsers, split: UserSplit) -> NDArray[np.float64]:
    """How well the model does on each user's records: in [0, 1], float64 [users].

    A user's score depends on no other user and on no run; that of one without sound records is 0.
    All users of the node are scored together, each by the same work whatever is held, so that when
    it happens tells nothing of who was drawn. The records that are scored are drawn by the split's
    own key, not the run's: as long as the user's records, the node's software and its processor
    stay the same, so does the side, in every run on the split. That is what lets runs on the two
    sides compose in parallel.

    Raises:
        NodeDataError: the model is not for such images and classes.
    """
    settings, key = split.settings, bytes.fromhex(split.identity)
    network = _scoring_network(users, split)
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


def _scoring_network(users: LocalUsers, split: UserSplit) -> Annotator:
    settings = split.settings
    try:
        network = Annotator(users.shape, users.classes, settings.components, settings.features)
        load_vector(network, split.model)
    except ValueError as error:
        raise NodeDataError(f"the split's model does not fit this node's data: {error}") from None
    return network.eval()


@dataclass(frozen=True, eq=False)
class FilteredUsers(UsersView):
    """Users around users: the same records with filtered images, or with pairs for classes.

    With ``conditioned`` a record's class is (class x values + value), so that a generator learns
    what images of each value look like: of filtered ones, the strongest test of a filter. The
    sensitive attribute stays behind: nothing that is asked of the view names it.
    """

    network: FilterNetwork | None
    """None where images are as they are."""
    key: bytes
    """The run's; it decides the filter's noise together with user and record."""
    conditioned: bool = False
    least: int = 0
    """Records that a user's take as long as, at the least; user mode's cap."""
    _cached: dict[int, LocalData] = field(default_factory=dict)

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
        if self.conditioned and self.users.sensitive_classes < 2:
            raise NodeDataError(
                "the run conditions on a sensitive attribute, and this node's data has none"
            )

    @property
    def sensitive_attribute(self) -> str:
        """None."""
        return ""

    @property
    def sensitive_classes(self) -> int:
        """None."""
        return 0

    @property
    def classes(self) -> int:
        """Number of classes, or of pairs with the sensitive attribute."""
        return self.users.classes * (self.users.sensitive_classes if self.conditioned else 1)

    @property
    def cached_values(self) -> int:
        """Values of all users' filtered images in user mode; 0 where they are too many."""
        values = len(self) * self.least * math.prod(self.shape)
        return values if self.network is not None and values <= MOST_CACHED else 0

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The user's sound records, filtered; their sensitive values stay behind.

        An unsound one is in its place with a class that no schema has. In user mode all users'
        are made at once where there is room for them: when does not tell who was asked for.
        """
        if rows is not None or not self.cached_values:
            return self._made(position, rows)
        if not self._cached:
            self._cached.update({place: self._readable(place) for place in range(len(self))})
        return self._cached[position]

    def _readable(self, position: int) -> LocalData:
        """A user's filtered records; none of one whose records cannot be, who must fail no one."""
        try:
            return self._made(position, None)
        except Exception:
            return no_records(self)

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
            labels[places] = data.labels * self.users.sensitive_classes + data.sensitive
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
        hides = None if data.hides is None else torch.ones(size, 1)
        if hides is not None and data.hides is not None:
            hides[:count] = data.hides
        parts: list[Tensor] = []
        device = devices.device_of(self.network)
        for first in range(0, size, AT_ONCE):
            part = slice(first, first + AT_ONCE)
            bits = None if hides is None else hides[part].to(device)
            released = self.network(images[part].to(device), noise[part].to(device), bits)
            parts.append(released.cpu())
        return torch.cat([*parts, images[:0]])[:count]

    def _noise(self, user: int, image: Tensor, network: FilterNetwork) -> Tensor:
        """A record's own noise, whatever else is held: by what it shows, not by where it lies."""
        content = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=16).digest()
        source = torch.Generator().manual_seed(keyed_seed(self.key, "filter", user, content))
        return torch.randn(network.noise_shape, generator=source)
