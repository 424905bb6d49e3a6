"""Where and how users' images differ from the reference's, as far as released sums tell.

Sums of features are no pictures. But each fault of the library, and each change that is in none,
moves both: the sums and the mean image of every class. The mixture of them that best explains the
sums, each taken for rare, therefore says what the mean images of users must look like. It is a
guess at the kind of change, coarse where the changes are; no record of a user is in it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.diagnosis.inquiry import Inquiry
from fedlens.diagnosis.model import LinearModel
from fedlens.models.shapes import as_pixels

RARE = 0.1
"""Standard deviation of the share of users that each change is taken to have beforehand."""
MOST_SHOWN = 6
"""Classes whose mean images are shown: those that are changed most."""
PARTS = 3
"""An image is divided into so many parts a side to say where it is changed."""
ROWS, COLUMNS = ("above", "in the middle", "below"), ("left", "", "right")
UNCLEAR = 0.5
"""Of what is changed, the strongest part has to be over its mean by so much to be named."""


@dataclass(frozen=True)
class ShownClass:
    """A class's mean image, as base64 PNGs."""

    label: int
    before: str
    """Of the reference."""
    after: str
    """Of users, as their sums say."""
    change: str
    """After less before: red where brighter, blue where darker, as strong as can be shown."""


@dataclass(frozen=True)
class Deviation:
    """How users' mean images differ from the reference's."""

    where: str
    """In words."""
    shown: tuple[ShownClass, ...]


def deviation_of(inquiry: Inquiry, model: LinearModel) -> Deviation:
    """Mean images of users, from what is observed and every change that was looked at."""
    places = [i for i, one in enumerate(inquiry.hypotheses) if one.fault.kind == "image"]
    shares = likely_shares(model, places)
    before = inquiry.reference.mean_images()
    change = torch.zeros_like(before)
    for place, share in zip(places, shares, strict=True):
        moved = inquiry.reference.mean_images(inquiry.hypotheses[place])
        change += float(share) * (moved - before)
    return Deviation(describe_place(change.mean((0, 1))), _shown(before, change))


def likely_shares(model: LinearModel, places: list[int]) -> NDArray[np.float64]:
    """Share of users that has each change if all of them are rare: normal about 0.

    The products are unbiased and so not quite positive; what of them is negative is cut.
    """
    products = model.products[np.ix_(places, places)]
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    found = vectors.T @ model.found[places]
    shares: NDArray[np.float64] = vectors @ (found / (np.maximum(values, 0) + RARE**-2))
    return shares


def describe_place(change: Tensor) -> str:
    """Where images become brighter or darker, in words.

    Args:
        change: float32 [height, width].
    """
    parts = torch.nn.functional.adaptive_avg_pool2d(change[None, None], PARTS)[0, 0]
    sizes = parts.abs()
    word = "brighter" if float(parts.sum()) > 0 else "darker"
    if float(sizes.max()) < (1 + UNCLEAR) * float(sizes.mean()):
        return f"{word} all over"
    row, column = divmod(int(sizes.argmax()), PARTS)
    word = "brighter" if float(parts[row, column]) > 0 else "darker"
    return f"{word} most {' '.join(filter(None, (ROWS[row], COLUMNS[column])))}"


def _shown(before: Tensor, change: Tensor) -> tuple[ShownClass, ...]:
    most = change.flatten(1).norm(dim=1).argsort(descending=True)[:MOST_SHOWN]
    scale = float(change.abs().max().clamp(min=1e-6))
    return tuple(
        ShownClass(
            label,
            _png(before[label]),
            _png(before[label] + change[label]),
            _png(_coloured(change[label] / scale)),
        )
        for label in sorted(most.tolist())
    )


def _coloured(change: Tensor) -> Tensor:
    """[-1, 1] to white for nothing, red for more, blue for less, [3, height, width]."""
    grey = change.mean(0)
    up, down = grey.clamp(min=0), (-grey).clamp(min=0)
    return 1 - 2 * torch.stack([down, up + down, up])


def _png(image: Tensor) -> str:
    from fedlens.store.pngs import encode  # few diagnoses show any, and a store takes long to load

    return base64.b64encode(encode(as_pixels(image))).decode("ascii")
