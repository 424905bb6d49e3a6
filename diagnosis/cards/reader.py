"""A data card as a diagnosis reads it: the nodes' own histograms, many users at once.

Not all of a card is compared with a reference. How many records and classes users hold, and how
alike one person's pictures are, differs between people and public records that were dealt out,
without any fault.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.client.messages import TrainRequest
from fedlens.diagnosis.held import HALVES, Held, Named, clipped
from fedlens.models.cards.measures import copies, thumbnails
from fedlens.models.cards.statistics import LOOKED_AT, card_layout
from fedlens.models.cards.vectors import card_vectors, picture_rows
from fedlens.models.shapes import ImageShape, as_bytes

PEOPLE = ("records", "user_classes", "largest_share")
"""Statistics of users that follow from how records are dealt out."""
EXACT = 0
"""Place, among the numbers about copies, of users who hold exact ones; the other is of near ones,
which one person's own pictures may be."""
PIECES, PIECE = 4, 2**12
"""A picture's bytes are summed up, with public weights, in so many numbers below this."""
_SEED = 33


class CardReader:
    """Histograms of users' pictures, classes and copies; all rounds ask the same."""

    def __init__(self, rounds: Sequence[TrainRequest], shape: ImageShape, classes: int) -> None:
        self.key: tuple[object, ...] = ("card", shape)
        self._rounds, self._layout = rounds, card_layout(shape, classes)

    def features(self, images: Tensor) -> Tensor:
        """Each picture's part of histograms, its thumbnail and sums of its bytes, [n, numbers]."""
        images = images.clamp(-1, 1)
        return torch.cat([picture_rows(images, self._layout), thumbnails(images), _sums(images)], 1)

    def rows(self, features: Tensor) -> Tensor:
        """The same."""
        return features

    def sums(self, rows: Tensor, held: Held) -> Tensor:
        """Users' whole vectors, clipped."""
        own = rows[held.places]
        thumb, digest = own.shape[2] - PIECES - 64, own.shape[2] - PIECES
        digests = own[:, :LOOKED_AT, digest:]
        same = (digests[:, :, None] == digests[:, None]).all(3)
        exact, near = copies(same, own[..., thumb:digest], held.present)
        pictures = own[..., :thumb]
        found = card_vectors(pictures, held.labels, held.present, exact, near, self._layout)
        return clipped(found, self._rounds[0]) * len(self._rounds)

    def halves(self, rows: Tensor, named: Named) -> Tensor:
        """Sums of `sums`, way by way: cards are short."""
        users, count, _ = rows.shape
        flat, first = rows.flatten(0, 1), torch.arange(users)[:, None] * count
        found = [self.sums(flat, replace(way, places=way.places + first)) for way in named.ways]
        return torch.stack([torch.stack([o[half].sum(0) for half in HALVES]) for o in found])


def _sums(images: Tensor) -> Tensor:
    """Whole numbers [n, PIECES] below `PIECE`, equal of equal pictures and hardly of others."""
    pixels = as_bytes(images).flatten(1).double()
    return (pixels @ _weights(pixels.shape[1])).remainder(4093).float()


@lru_cache(maxsize=8)
def _weights(pixels: int) -> Tensor:
    """Whole numbers as doubles, which hold sums of so many bytes times them exactly."""
    source = torch.Generator().manual_seed(_SEED)
    return torch.randint(1, PIECE, (pixels, PIECES), generator=source).double()


def card_places(shape: ImageShape, classes: int) -> Tensor:
    """Places of a card's numbers that are compared with a reference, int64 [m]."""
    return torch.cat(
        [torch.arange(part.start, part.stop) for part in _compared(shape, classes).values()]
    )


def card_parts(shape: ImageShape, classes: int) -> NDArray[np.int64]:
    """Where, among those numbers, each statistic begins, ascending from 0."""
    widths = [part.stop - part.start for part in _compared(shape, classes).values()]
    return np.cumsum([0, *widths[:-1]])


def copies_place(shape: ImageShape, classes: int) -> int:
    """Place, among those numbers, of the one that counts users who hold exact copies."""
    return int(card_parts(shape, classes)[list(_compared(shape, classes)).index("duplicates")])


def _compared(shape: ImageShape, classes: int) -> dict[str, slice]:
    """Where in the card the statistics are that are compared."""
    places = dict(card_layout(shape, classes).places)
    first = places["duplicates"].start + EXACT
    places["duplicates"] = slice(first, first + 1)
    return {name: part for name, part in places.items() if name not in PEOPLE}


def commonest_records(mean: NDArray[np.float64], shape: ImageShape, classes: int) -> int:
    """How many records most users hold, to the middle of a card's bin.

    Args:
        mean: the noised card, float64 [P].
        shape: of an image.
        classes: of the records.
    """
    layout = card_layout(shape, classes)
    edges = next(one.edges for one in layout.statistics if one.name == "records")
    most = int(np.argmax(mean[layout.places["records"]]))
    return round(math.sqrt(edges[most] * (edges[most + 1] - 1)))
