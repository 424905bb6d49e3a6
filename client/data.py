"""The users of a node and their local images; nothing here leaves the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
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


class NodeDataError(ValueError):
    """A node's data file cannot be used.

    Names the file and its arrays, nothing in them, so that the node may log it for its operator.
    """


OpenUsers = Callable[[Context], LocalUsers]
"""How a ClientApp finds its node's users; simulations and deployments each bring their own."""


@dataclass(frozen=True, eq=False)
class ArrayUsers:
    """Users over arrays in memory (or memory-mapped), in compressed sparse row order.

    Two of them are equal only if they are the same object, which what is kept between rounds goes
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
    int64 [n], ``users`` int64 [n] (each record's user) and ``classes``. The same object as before
    for as long as the file is not written to.

    Raises:
        NodeDataError: no file is named, or it cannot be read, lacks an array, or has one of
            another shape or type.
    """
    named = context.node_config.get("data")
    if not named:
        raise NodeDataError("no data is named: start it with --node-config 'data=\"/abs/file\"'")
    path = Path(str(named))
    try:
        status = path.stat()
    except OSError:
        raise NodeDataError(f"{path} cannot be read as a NumPy .npz file") from None
    stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
    return _opened_users(path, stamp, int(context.node_config.get("partition-id", 0)))


@lru_cache(maxsize=1)
def _opened_users(path: Path, stamp: tuple[int, int, int], partition: int) -> ArrayUsers:
    """The users in a file; ``stamp`` tells whether it was written to since it was read."""
    images, labels, owners, classes = _read_users(path)
    order = np.argsort(owners, kind="stable")
    _, counts = np.unique(owners, return_counts=True)
    channels, height, width = (int(side) for side in images.shape[1:])
    return ArrayUsers(
        images=images,
        labels=labels,
        indices=order.astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        shape=(channels, height, width),
        classes=classes,
        partition=partition,
    )


def _read_users(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64], int]:
    """The arrays of a node's file, checked for what every user's data must have in common."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError):
        raise NodeDataError(f"{path} cannot be read as a NumPy .npz file") from None
    missing = {"images", "labels", "users", "classes"} - set(found)
    if missing:
        raise NodeDataError(f"{path} lacks the arrays {sorted(missing)}")
    images, labels, owners = found["images"], found["labels"], found["users"]
    if images.ndim != 4 or images.dtype != np.uint8:
        raise NodeDataError(f"{path}: images must be uint8 of shape [n, channels, height, width]")
    whole = all(a.ndim == 1 and a.dtype.kind in "iu" for a in (labels, owners))
    if not whole or not len(images) == len(labels) == len(owners) or found["classes"].size != 1:
        raise NodeDataError(f"{path}: labels and users must be one integer for each image")
    return images, labels.astype(np.int64), owners.astype(np.int64), int(found["classes"].item())
