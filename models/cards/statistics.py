"""What a data card counts: its statistics with their bins, and where each lies in the vector.

A statistic is a histogram. One *of records* gives each user the shares of the own records that fall
into each bin, an L2 norm of 1 at most: the less, the more bins the records are spread over. All of
a user's together are cut to `RECORDS_NORM`, so one whose pictures are all alike counts for less.
One *of users* puts each enrolled user into one bin, and is never cut.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedlens.models.shapes import ImageShape

RECORDS_NORM = 2.0
"""L2 norm to which a user's histograms of records are cut together. Of those with ten pictures each
it leaves 0.98 (handwritten digits), 0.99 (clothes), 0.9 (small colour photographs) on the mean."""
PIXEL_BINS = 16
LOOKED_AT = 128
"""Records of a user, the first ones, among which copies are looked for."""
COPIED = 0.1
"""Share of a user's records that have to be copies for the user to be one who holds copies."""


@dataclass(frozen=True)
class Statistic:
    """One histogram of a card."""

    name: str
    says: str
    """What is counted, in words."""
    edges: tuple[float, ...]
    """Of the bins, rising; a bin holds its lower edge. What lies outside is in an outer bin."""
    of_users: bool = False
    """Whether users are counted, each in one bin, and not records."""
    implied: int | None = None
    """The first or the last bin, where it is not sent, because most are in it nearly everywhere: it
    is what the others leave, of users those who hold no records among them."""
    weight: float = 1.0
    """What a user's histogram is multiplied by before it is sent: its noise is as many times
    smaller, and it takes as much more of what a user may add."""
    named: tuple[str, ...] = ()
    """Names of the bins, where they are no intervals of a measure."""
    whole: bool = False
    """Whether it counts in whole numbers."""
    told: int | None = None
    """Where bins have names, the one whose share stands for the statistic; None for none."""

    @property
    def bins(self) -> int:
        """How many bins there are."""
        return len(self.edges) - 1

    @property
    def sent(self) -> tuple[int, ...]:
        """The bins that are sent."""
        return tuple(i for i in range(self.bins) if i != self.implied)

    @property
    def closed(self) -> bool:
        """Whether its shares add up to 1; else they leave out users who hold no records."""
        return not self.of_users or self.implied is not None

    @property
    def numeric(self) -> bool:
        """Whether its bins are in order, so that it has a median."""
        return not self.named

    @property
    def has_quantity(self) -> bool:
        """Whether one number stands for it: a median, or the share of one bin."""
        return self.numeric or self.told is not None


@dataclass(frozen=True)
class CardLayout:
    """The statistics of a card of some kind of data."""

    statistics: tuple[Statistic, ...]
    """Those of records come first."""

    @cached_property
    def inner_edges(self) -> tuple[Tensor, ...]:
        """The edges between the bins of each statistic, float32 [bins - 1]."""
        return tuple(torch.tensor(one.edges[1:-1]) for one in self.statistics)

    @cached_property
    def places(self) -> dict[str, slice]:
        """Where each statistic lies in the vector."""
        return dict(self._places())

    def _places(self) -> Iterator[tuple[str, slice]]:
        first = 0
        for one in self.statistics:
            yield one.name, slice(first, first + len(one.sent))
            first += len(one.sent)

    @property
    def classes(self) -> int:
        """Classes that are told apart; 1 where records have no labels."""
        return next((one.bins for one in self.statistics if one.name == "classes"), 1)

    @property
    def size(self) -> int:
        """P: length of a user's vector."""
        return sum(len(one.sent) for one in self.statistics)

    @property
    def longest(self) -> float:
        """L2 norm that no user's vector exceeds, whatever the user holds."""
        of_users = sum(one.weight**2 for one in self.statistics if one.of_users)
        return math.hypot(RECORDS_NORM, math.sqrt(of_users))


def _even(low: float, high: float, bins: int) -> tuple[float, ...]:
    return tuple(float(edge) for edge in np.linspace(low, high, bins + 1))


def _fine_at_ends(bins: int) -> tuple[float, ...]:
    """Bins of [0, 1] that are narrow near black and near white."""
    return tuple((1 - math.cos(math.pi * i / bins)) / 2 for i in range(bins + 1))


def _log(low: float, high: float, bins: int) -> tuple[float, ...]:
    return (0.0, *(float(edge) for edge in np.geomspace(low, high, bins)))


LEVELS = (1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 257)
COUNTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 13, 17, 33, 65, 129, 257)
HELD = (1, 2, 3, 5, 9, 17, 33, 65, 129, 257)

PICTURES = (
    Statistic("brightness", "mean brightness of a picture, 0 black to 1 white", _fine_at_ends(20)),
    Statistic("contrast", "standard deviation of a picture's brightness", _even(0, 0.5, 20)),
    Statistic(
        "highest", "highest level of any pixel, 0 to 255", _even(0, 256, 16), implied=15, whole=True
    ),
    Statistic(
        "levels", "number of levels of grey in a picture", tuple(map(float, LEVELS)), whole=True
    ),
    Statistic(
        "pixels",
        "levels of single pixels, 0 to 255",
        _even(0, 256, PIXEL_BINS),
        implied=0,
        weight=3.0,
        whole=True,
    ),
    Statistic("gradients", "root mean square of steps between neighbours", _log(0.01, 0.6, 28)),
    Statistic("sharpness", "second differences over first ones", _even(0.3, 1.7, 28)),
    Statistic("centre_across", "centre of brightness, 0 left to 1 right", _even(0.3, 0.7, 20)),
    Statistic("centre_down", "centre of brightness, 0 top to 1 bottom", _even(0.3, 0.7, 20)),
    Statistic("turn", "principal axis, degrees from the vertical", _even(-90, 90, 12)),
    Statistic("size", "spread of brightness about its centre, in sides", _even(0.1, 0.5, 16)),
    Statistic("border", "mean brightness of the border", _fine_at_ends(12), implied=0),
)
COLOURS = tuple(
    Statistic(name, f"how much brighter {name} is than grey", _even(-0.25, 0.25, 16))
    for name in ("red", "green", "blue")
)
USERS = (
    Statistic(
        "records",
        "records of a user that take part",
        tuple(map(float, HELD)),
        whole=True,
        of_users=True,
        weight=0.5,
    ),
    Statistic(
        "duplicates",
        "users of whose records a tenth or more are copies of one another",
        (0.0, 1.0, 2.0, 3.0),
        of_users=True,
        implied=0,
        weight=1.25,
        named=("none", "exact", "nearly"),
        told=1,
    ),
)
LARGEST_SHARE = Statistic(
    "largest_share",
    "share of a user's records in the user's commonest class",
    _even(0, 1, 10),
    of_users=True,
    weight=0.5,
)
USER_CLASSES = "user_classes"


def card_layout(shape: ImageShape, classes: int) -> CardLayout:
    """The statistics of a card: those of classes only where there is more than one.

    Args:
        shape: of an image.
        classes: of the records; 1 where they have no labels.
    """
    found = PICTURES + (COLOURS if shape[0] == 3 else ())
    if classes < 2:
        return CardLayout((*found, *USERS))
    return CardLayout((*found, _classes(classes), *USERS, _user_classes(classes), LARGEST_SHARE))


def _classes(classes: int) -> Statistic:
    edges, named = map(float, range(classes + 1)), map(str, range(classes))
    return Statistic("classes", "class of a record", tuple(edges), weight=1.5, named=tuple(named))


def _user_classes(classes: int) -> Statistic:
    counts = (*(count for count in COUNTS if count <= classes), classes + 1)
    return Statistic(
        USER_CLASSES,
        "classes that a user has records of",
        tuple(map(float, counts)),
        of_users=True,
        weight=0.5,
        whole=True,
    )
