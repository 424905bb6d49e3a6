"""The FaceScrub layout: actors and actresses, a folder of faces each (Ng and Winkler 2014)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedlens.data.attributes.options import parse_options
from fedlens.data.attributes.pictures import labelled_pictures, read_pictures, split_at_random
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateDataError, Split

GENDERS = ("actors", "actresses")
SUFFIXES = (".jpg", ".jpeg", ".png")
ATTRIBUTES = {"person": 0, "gender": 1}
DEFAULTS = {"utility": "person", "sensitive": "gender", "side": "64", "limit": "100"}


def load_facescrub(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """``facescrub:PATH,utility=person,sensitive=gender,side=64,limit=100``.

    PATH has ``actors/faces/PERSON/*.jpeg`` and ``actresses/faces/PERSON/*.jpeg`` (the folder
    ``faces`` may be left out). At most ``limit`` pictures a person, in alphabetical order; they are
    dealt to the three parts at random, so that a person is in all of them (Bertran et al. 2019,
    section 5.3). With both attributes ``person`` it is up to the person whether to be known or
    hidden (section 5.1, as of the ORL faces).

    Raises:
        PrivateDataError: on an absent attribute, when a folder is missing or a picture damaged.
    """
    options = parse_options("facescrub", argument, DEFAULTS)
    used, hidden = (options.one_of(which, ATTRIBUTES) for which in ("utility", "sensitive"))
    people = [
        (gender, person)
        for gender, folder in enumerate(GENDERS)
        for person in _people(options.path / folder)
    ]
    found = [
        (number, gender, path)
        for number, (gender, person) in enumerate(people)
        for path in _faces(person)[: options.number("limit", 1)]
    ]
    persons = np.array([number for number, _, _ in found], np.int64)
    genders = np.array([gender for _, gender, _ in found], np.int64)
    known = {"person": (persons, len(people)), "gender": (genders, len(GENDERS))}
    pictures = labelled_pictures(
        name,
        read_pictures([path for _, _, path in found], options.number("side", 16)),
        known[used][0],
        known[hidden][0],
        (known[used][1], known[hidden][1]),
        persons,
    )
    return split_at_random(pictures, seed)


def _people(folder: Path) -> list[Path]:
    inner = folder / "faces" if (folder / "faces").is_dir() else folder
    if not inner.is_dir():
        raise PrivateDataError(f"{inner} is no folder; FaceScrub has {' and '.join(GENDERS)}")
    return sorted(path for path in inner.iterdir() if path.is_dir())


def _faces(person: Path) -> list[Path]:
    return sorted(path for path in person.iterdir() if path.suffix.lower() in SUFFIXES)


FACESCRUB = DatasetSpec("FaceScrub", private=load_facescrub)
