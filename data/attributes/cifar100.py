"""The CIFAR-100 layout, binary version: 20 coarse and 100 fine classes (Krizhevsky 2009)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.options import parse_options
from fedlens.data.attributes.pictures import labelled_pictures
from fedlens.data.spec import PrivateSource
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split, split_in_two

RECORD = 2 + 3 * 32 * 32
"""Bytes of a record: coarse label, fine label, red, green and blue planes."""
ATTRIBUTES = {"coarse": 20, "fine": 100}
DEFAULTS = {"utility": "coarse", "sensitive": "fine", "limit": "50000"}


def load_cifar100(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """``cifar100:PATH,utility=coarse,sensitive=fine,limit=50000``.

    PATH has ``train.bin`` and ``test.bin`` of the binary version (the other one is a pickle, which
    is never opened). Training pictures go to filters and attackers, half each.

    Raises:
        PrivateDataError: on a file that is missing or of another length, or an absent attribute.
    """
    options = parse_options("cifar100", argument, DEFAULTS)
    chosen = [options.one_of(which, ATTRIBUTES) for which in ("utility", "sensitive")]
    limit = options.number("limit", 1)
    known, test = (
        _labelled(name, _records(options.path / file)[:limit], chosen)
        for file in ("train.bin", "test.bin")
    )
    train, attack = split_in_two(known, 0.5, seed)
    return Split(train, attack, test)


def _labelled(name: str, records: NDArray[np.uint8], chosen: list[str]) -> PrivateData:
    columns = [list(ATTRIBUTES).index(attribute) for attribute in chosen]
    labels = records[:, columns].astype(np.int64)
    images = records[:, 2:].reshape(-1, 3, 32, 32)
    classes = ATTRIBUTES[chosen[0]], ATTRIBUTES[chosen[1]]
    return labelled_pictures(name, images, labels[:, 0], labels[:, 1], classes)


def _records(path: Path) -> NDArray[np.uint8]:
    try:
        content = np.frombuffer(path.read_bytes(), np.uint8)
    except OSError as error:
        raise PrivateDataError(f"{path}: cannot be read ({error}); CIFAR-100 has it") from error
    if len(content) == 0 or len(content) % RECORD:
        raise PrivateDataError(
            f"{path}: {len(content)} bytes are no whole number of records of {RECORD}; "
            "fetch the binary version again"
        )
    return content.reshape(-1, RECORD)


CIFAR100 = PrivateSource(load_cifar100)
