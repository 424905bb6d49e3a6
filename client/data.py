"""The users of a node and their local images; nothing here leaves the node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from flwr.app import Context
from numpy.typing import NDArray
from torch import Tensor

from foundation.errors import FedlensError
from models.pixels import from_pixels


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
    choice: Tensor | None = None
    """float32 [n, 1]: 1 where the user wants it hidden; None where all do."""


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


def sensitive_of(users: LocalUsers) -> tuple[str, int]:
    """Name and number of classes of the users' sensitive attribute; ("", 0) for none."""
    return str(getattr(users, "sensitive_attribute", "")), int(
        getattr(users, "sensitive_classes", 0)
    )


class NodeDataError(FedlensError, ValueError):
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
    sensitive: NDArray[np.int64] | None = None
    """[records], or None where no sensitive attribute is known."""
    sensitive_attribute: str = ""
    """The sensitive attribute's name."""
    sensitive_classes: int = 0
    hides: NDArray[np.bool_] | None = None
    """[users], whether a user wants it hidden; None where all do."""

    def __len__(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    def user(self, position: int) -> LocalData:
        """The records of user ``position``, scaled to [-1, 1]."""
        rows = self.indices[self.offsets[position] : self.offsets[position + 1]]
        labels = torch.from_numpy(self.labels[rows].astype(np.int64))
        sensitive = None if self.sensitive is None else torch.from_numpy(self.sensitive[rows])
        choice = None
        if self.hides is not None:
            choice = torch.full((len(rows), 1), float(self.hides[position]))
        return LocalData(from_pixels(self.images[rows]), labels, sensitive, choice)


def open_node_users(context: Context) -> LocalUsers:
    """The users in the ``.npz`` file that the node's operator names.

    The file is named in the node's own configuration (``--node-config 'data="/abs/users.npz"
    partition-id=0'``), never by the server. It holds ``images`` uint8 [n, c, h, w], ``labels``
    int64 [n], ``users`` int64 [n] (each record's user) and ``classes``; for a privatizer also
    ``sensitive`` int64 [n], ``sensitive_attribute`` (its name), ``sensitive_classes``, and
    ``hides`` bool [n] where some users do not mind (all of a user's records alike). The same object
    as before for as long as the file is not written to.

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
    found, classes = _read_users(path)
    images, labels, owners = found["images"], found["labels"], found["users"]
    order = np.argsort(owners, kind="stable")
    _, firsts, counts = np.unique(owners, return_index=True, return_counts=True)
    sensitive, sensitive_attribute, sensitive_classes = _read_sensitive(path, found)
    channels, height, width = (int(side) for side in images.shape[1:])
    return ArrayUsers(
        images=images,
        labels=labels.astype(np.int64),
        indices=order.astype(np.int64),
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        shape=(channels, height, width),
        classes=classes,
        partition=partition,
        sensitive=sensitive,
        sensitive_attribute=sensitive_attribute,
        sensitive_classes=sensitive_classes,
        hides=_read_choices(path, found, owners, firsts),
    )


def _read_users(path: Path) -> tuple[dict[str, NDArray[Any]], int]:
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
    return found, int(found["classes"].item())


def _read_sensitive(
    path: Path, found: dict[str, NDArray[Any]]
) -> tuple[NDArray[np.int64] | None, str, int]:
    """Each record's sensitive value, the attribute's name and classes, where the file has them."""
    if "sensitive" not in found:
        return None, "", 0
    sensitive = found["sensitive"]
    named = all(
        name in found and found[name].size == 1
        for name in ("sensitive_attribute", "sensitive_classes")
    )
    if not named or sensitive.dtype.kind not in "iu" or sensitive.shape != found["labels"].shape:
        raise NodeDataError(
            f"{path}: sensitive must be one integer an image, beside sensitive_attribute and "
            "sensitive_classes"
        )
    classes = int(found["sensitive_classes"].item())
    return sensitive.astype(np.int64), str(found["sensitive_attribute"].item()), classes


def _read_choices(
    path: Path, found: dict[str, NDArray[Any]], owners: NDArray[np.int64], firsts: NDArray[np.int64]
) -> NDArray[np.bool_] | None:
    """Whether each user hides the attribute, in the users' order, where the file says so."""
    if "hides" not in found:
        return None
    hides = found["hides"]
    if hides.dtype != np.bool_ or hides.shape != owners.shape:
        raise NodeDataError(f"{path}: hides must be one bool for each image")
    # a user hides if any of their records says so: one user's bits must never fail the node
    chosen: NDArray[np.bool_] = np.zeros(len(firsts), dtype=np.bool_)
    np.logical_or.at(chosen, np.unique(owners, return_inverse=True)[1], hides)
    return chosen
