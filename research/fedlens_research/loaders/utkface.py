"""The UTKFace layout: age, gender and race in each file's name (Zhang et al. 2017)."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.options import parse_options
from fedlens.data.attributes.pictures import labelled_pictures, read_pictures, split_at_random
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateDataError, Split

NAMED = re.compile(r"(\d{1,3})_([01])_([0-4])_\d+\.(?:jpg|jpeg|png)(?:\.chip\.jpg)?")
ATTRIBUTES = {"age": 4, "gender": 2, "race": 5}
"""Attributes with their numbers of classes; ages are cut at AGES."""
AGES = (20, 35, 55)
DEFAULTS = {"utility": "gender", "sensitive": "race", "side": "64", "limit": "20000"}


def load_utkface(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """``utkface:PATH,utility=gender,sensitive=race,side=64,limit=20000``.

    PATH has ``AGE_GENDER_RACE_TIME.jpg`` or ``....jpg.chip.jpg``; files whose name lacks one of
    them, as a few of the published ones do, are passed over. Ages are in classes cut at 20, 35 and
    55 years. The first ``limit`` pictures, in alphabetical order, are dealt at random.

    Raises:
        PrivateDataError: on an attribute that is absent, no such pictures, or a damaged one.
    """
    options = parse_options("utkface", argument, DEFAULTS)
    utility, sensitive = (options.one_of(which, ATTRIBUTES) for which in ("utility", "sensitive"))
    found = [
        (path, match)
        for path in sorted(options.path.iterdir())
        if (match := NAMED.fullmatch(path.name.lower()))
    ][: options.number("limit", 1)]
    if not found:
        raise PrivateDataError(
            f"{options.path} has no AGE_GENDER_RACE_TIME.jpg; give such a folder"
        )
    numbers = np.array([[int(match[place]) for place in (1, 2, 3)] for _, match in found], np.int64)
    pictures = labelled_pictures(
        name,
        read_pictures([path for path, _ in found], options.number("side", 16)),
        _classes(numbers, utility),
        _classes(numbers, sensitive),
        (ATTRIBUTES[utility], ATTRIBUTES[sensitive]),
    )
    return split_at_random(pictures, seed)


def _classes(numbers: NDArray[np.int64], attribute: str) -> NDArray[np.int64]:
    column = numbers[:, list(ATTRIBUTES).index(attribute)]
    return np.digitize(column, AGES).astype(np.int64) if attribute == "age" else column


UTKFACE = DatasetSpec("UTKFace", private=load_utkface)
