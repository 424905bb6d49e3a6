"""Pictures of faces and things, read from files and made private data of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.data.labelled.pictures import read_square, read_square_of
from fedlens.models.shapes import from_pixels
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split, split_in_two


def labelled_pictures(
    name: str,
    images: NDArray[np.uint8],
    utility: NDArray[np.integer | np.bool_],
    sensitive: NDArray[np.integer | np.bool_],
    classes: tuple[int, int],
    owners: NDArray[np.int64] | None = None,
) -> PrivateData:
    """Pictures with two labels each as private data, pixels in [-1, 1].

    Args:
        name: of the source.
        images: uint8 [n, c, h, w].
        utility: whole numbers or truth values [n], from 0.
        sensitive: the same.
        classes: of utility and sensitive attribute.
        owners: int64 [n], the person shown, or None.

    Raises:
        PrivateDataError: when there is nothing, or nothing to hide.
    """
    return PrivateData(
        name=name,
        records=from_pixels(images),
        utility=torch.from_numpy(utility.astype(np.int64)),
        sensitive=torch.from_numpy(sensitive.astype(np.int64)),
        side=None,
        owners=None if owners is None else torch.from_numpy(owners),
        utility_classes=classes[0],
        sensitive_classes=classes[1],
        low=-1.0,
        high=1.0,
    )


def split_at_random(data: PrivateData, seed: int) -> Split:
    """Two fifths for filters, two fifths for attackers, one fifth for scoring."""
    test, known = split_in_two(data, 0.2, seed)
    train, attack = split_in_two(known, 0.5, seed + 1)
    return Split(train, attack, test)


def read_pictures(paths: Sequence[Path], side: int, channels: int = 3) -> NDArray[np.uint8]:
    """Pictures cut to their middle square and scaled, uint8 [n, channels, side, side].

    Raises:
        PrivateDataError: when there is none, or one is missing or damaged.
    """
    if not paths:
        raise PrivateDataError("no pictures are left; give a folder that has some")
    return np.stack([read_picture(path, str(path), side, channels) for path in paths])


def read_picture(file: Path | IO[bytes], name: str, side: int, channels: int) -> NDArray[np.uint8]:
    """One picture; as above.

    Raises:
        PrivateDataError: when it is missing or damaged.
    """
    if isinstance(file, Path):
        return read_square(file, side, channels)
    return read_square_of(file.read(), name, side, channels)
