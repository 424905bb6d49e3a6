"""The users of a node and their local images; nothing here leaves the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from flwr.app import Context
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class LocalData:
    """One user's records."""

    images: Tensor
    """float32 [n, channels, height, width] in [-1, 1], by a fixed scaling that looks at no data."""
    labels: Tensor
    """int64 [n] in [0, classes)."""


class LocalUsers(Protocol):
    """The users that a node hosts."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width of an image."""

    @property
    def classes(self) -> int:
        """Number of classes, those that no user here holds included."""

    @property
    def partition(self) -> int:
        """The node's position among the nodes."""

    def __len__(self) -> int:
        """Number of users enrolled on the node."""

    def user(self, position: int) -> LocalData:
        """The records of one user; may hold no record at all."""


OpenUsers = Callable[[Context], LocalUsers]
"""How a ClientApp finds its node's users; simulations and deployments each bring their own."""


@dataclass(frozen=True)
class ArrayUsers:
    """Users over arrays in memory (or memory-mapped), in compressed sparse row order."""

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

    def __len__(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def user(self, position: int) -> LocalData:
        """The records of user ``position``, scaled to [-1, 1]."""
        rows = self.indices[self.offsets[position] : self.offsets[position + 1]]
        pixels = torch.from_numpy(self.images[rows].astype(np.float32))
        return LocalData(pixels / 127.5 - 1, torch.from_numpy(self.labels[rows].astype(np.int64)))


def open_node_users(context: Context) -> LocalUsers:
    """The users in the ``.npz`` file that the node's operator names.

    The file is named in the node's own configuration (``--node-config 'data="/abs/users.npz"
    partition-id=0'``), never by the server. It holds ``images`` uint8 [n, c, h, w], ``labels``
    int64 [n], ``users`` int64 [n] (each record's user) and ``classes``.

    Raises:
        ValueError: no file is named, or it lacks an array.
    """
    named = context.node_config.get("data")
    if not named:
        raise ValueError("the node names no data: start it with --node-config 'data=\"/abs/file\"'")
    with np.load(Path(str(named)), allow_pickle=False) as arrays:
        missing = {"images", "labels", "users", "classes"} - set(arrays.files)
        if missing:
            raise ValueError(f"{named} lacks the arrays {sorted(missing)}")
        images, labels, owners = arrays["images"], arrays["labels"], arrays["users"]
        classes = int(arrays["classes"])
    order = np.argsort(owners, kind="stable")
    _, counts = np.unique(owners, return_counts=True)
    channels, height, width = (int(side) for side in images.shape[1:])
    return ArrayUsers(
        images=images,
        labels=labels.astype(np.int64),
        indices=order.astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        shape=(channels, height, width),
        classes=classes,
        partition=int(context.node_config.get("partition-id", 0)),
    )
