"""The users of a node and their local images; nothing here leaves the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from flwr.app import Context
from numpy.typing import NDArray
from torch import Tensor

from fedlens.data.mapped_arrays import let_go
from fedlens.foundation.errors import FedlensError
from fedlens.models.shapes import from_pixels

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class LocalData:
    """One user's records."""

    images: Tensor
    """float32 [n, channels, height, width] in [-1, 1], by a fixed scaling that looks at no data."""
    labels: Tensor
    """int64 [n] in [0, classes)."""
    sensitive: Tensor | None = None
    """int64 [n] in [0, sensitive classes): what the user wants hidden, where the node knows of
    it."""
    hides: Tensor | None = None
    """float32 [n, 1]: 1 where the user wants it hidden; None where all do."""


@dataclass(frozen=True)
class DataOrigin:
    """Where a node's data are from, as the node itself says it."""

    own: bool = True
    """Whether they are the node's own, and no simulation's: taken for granted where nothing is
    said, for a simulation is spared what hides how much a user holds."""
    federation: str = ""
    """Name of the federation under whose contract they were prepared; empty for none."""
    contract: str = ""
    """SHA-256 (hex) of that contract; empty for none."""


class LocalUsers(Protocol):
    """The users that a node hosts, and all that is ever asked of them: none of it has a default.

    Whether data are a simulation's, what is to be hidden and who is left out follow from what is
    said here, so users that do not say it are refused: `check_users`.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of an image."""

    @property
    def classes(self) -> int:
        """Number of classes, those that no user here holds included."""

    @property
    def partition(self) -> int:
        """The node's position among the nodes."""

    @property
    def sensitive_attribute(self) -> str:
        """Name of the attribute that users may want hidden; empty where the node knows of none."""

    @property
    def sensitive_classes(self) -> int:
        """Its number of classes; 0 where there is none."""

    @property
    def slice(self) -> str:
        """The slice that these are the users of, ``attribute=value``; empty for all users."""

    @property
    def people(self) -> NDArray[np.int64] | None:
        """[users], each user's number that is the same at each node; None: `user_id` is."""

    @property
    def origin(self) -> DataOrigin:
        """Where the data are from."""

    def __len__(self) -> int:
        """Number of users enrolled on the node."""

    def user_id(self, position: int) -> int:
        """A number of the user's own, in [-2^127, 2^127), which no other user changes.

        Seeds of a user's batches and of a filter's noise go by it. Were they to go by the position,
        taking one user out would change what all later ones contribute.
        """

    def held(self, position: int) -> int:
        """How many records the user holds; must take no time that depends on the number."""

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The records of one user, who may hold none.

        Args:
            position: the user's place on the node.
            rows: which of the user's records, in [0, held); None for all. Must take time and memory
                for these alone.
        """


class NodeDataError(FedlensError, ValueError):
    """A node's data file cannot be used.

    Names the file and its arrays, nothing in them, so that the node may log it for its operator.
    """


def check_users(users: LocalUsers) -> LocalUsers:
    """The users, if they say all that `LocalUsers` asks.

    Raises:
        NodeDataError: they lack something; names it.
    """
    asked = (name for name in vars(LocalUsers) if not name.startswith("_"))
    if lacking := [name for name in (*asked, "__len__") if not hasattr(users, name)]:
        raise NodeDataError(
            f"{type(users).__name__} lacks {', '.join(sorted(lacking))}: users must say all that "
            "LocalUsers asks (fedlens.client.users.protocol), as each of it decides what a node "
            "protects"
        )
    return users


OpenUsers = Callable[[Context], LocalUsers]
"""How a ClientApp finds its node's users; simulations and deployments each bring their own."""


@dataclass(frozen=True, eq=False)
class ArrayUsers:
    """Users over arrays in memory (or memory-mapped), in compressed sparse row order.

    Two of them are equal only if they are the same object, which what is cached between rounds goes
    by: the arrays must not change.
    """

    images: NDArray[np.uint8]
    """[records, channels, height, width], 0..255."""
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]
    """Records in the order of their users."""
    offsets: NDArray[np.int64]
    """User i holds ``indices[offsets[i]:offsets[i + 1]]``; shape [users + 1]."""
    shape: tuple[int, int, int]
    classes: int
    partition: int
    sensitive: NDArray[np.int64] | None = None
    """[records], or None where no sensitive attribute is known."""
    sensitive_attribute: str = ""
    """The sensitive attribute's name."""
    sensitive_classes: int = 0
    hides: NDArray[np.bool_] | None = None
    """[users], whether a user wants it hidden; None where all do."""
    ids: NDArray[np.int64] | None = None
    """[users], each user's own number. None: the positions, where users neither come nor go."""
    people: NDArray[np.int64] | None = None
    """[users], numbers under a secret that nodes' owners share: the same at each node."""
    declared: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    """[users] by name: each user's value of a public attribute; empty texts where it has none."""
    slice: str = ""
    """The slice that these are the users of, ``attribute=value``; empty for all users."""
    origin: DataOrigin = field(default_factory=DataOrigin)
    """Where they are from: the node's own, unless said otherwise."""

    def __len__(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def user_id(self, position: int) -> int:
        """The user's own number."""
        return position if self.ids is None else int(self.ids[position])

    def held(self, position: int) -> int:
        """How many records the user holds."""
        return int(self.offsets[position + 1] - self.offsets[position])

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The records of user ``position``, scaled to [-1, 1]."""
        own = self.indices[self.offsets[position] : self.offsets[position + 1]]
        records = own if rows is None else own[rows]
        labels = torch.from_numpy(self.labels[records].astype(np.int64))
        sensitive = None if self.sensitive is None else torch.from_numpy(self.sensitive[records])
        hides = None
        if self.hides is not None:
            hides = torch.full((len(records), 1), float(self.hides[position]))
        images = from_pixels(self.images[records])
        let_go(self.images)
        return LocalData(images, labels, sensitive, hides)


def is_simulated(context: Context) -> bool:
    """Whether Flower's simulation runs this node: it tells each of its number and of all nodes.

    Where in doubt it is a deployed one, wherever its users come from.
    """
    return "num-partitions" in context.node_config and "data" not in context.node_config
