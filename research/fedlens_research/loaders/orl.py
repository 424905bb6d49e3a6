"""The ORL faces: 40 people, 10 pictures each, in one zip of PGM files.

The pictures are AT&T Laboratories Cambridge's, for research with credit; they are read from where
the user put them and are part of no package.
"""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

import numpy as np
import torch

from fedlens.data.attributes.options import parse_options
from fedlens.data.attributes.pictures import labelled_pictures, read_picture
from fedlens.data.spec import DatasetSpec
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split
from fedlens_research.loaders.load_days import find_file

FILE = "orl_faces.zip"
NAMED = re.compile(r"(?:.*/)?s(\d+)/(\d+)\.pgm")
SIDE = 48
TRAIN, ATTACK = 4, 3
"""Pictures of each person for filters and for attackers; the others are for scoring."""


def load_orl(name: str, argument: str, data_dir: Path | None, seed: int) -> Split:
    """Grey faces [1, side, side] in [-1, 1]: ``orl``, ``orl:SIDE`` or ``orl:PATH,side=48``.

    PATH is the zip or the folder that it lies in.

    Utility and sensitive attribute are both the identity, numbered from 0 in the order of the
    folders ``s1`` to ``s40``: whether it is to be known or hidden is up to the person
    (``Batch.choice``). Every person has pictures in all three parts; splitting by person is for the
    study to do, by ``owners``.

    Raises:
        PrivateDataError: on a zip that is missing, damaged, of another layout, or a wrong side.
    """
    path, side = _place(argument, data_dir)
    faces = read_faces(path, side, name)
    people = faces.utility.numpy()
    parts: tuple[list[int], ...] = ([], [], [])
    random = np.random.default_rng(seed)
    for person in range(faces.utility_classes):
        rows = random.permutation(np.flatnonzero(people == person)).tolist()
        for part, chosen in zip(
            parts, (rows[:TRAIN], rows[TRAIN : TRAIN + ATTACK], rows[TRAIN + ATTACK :]), strict=True
        ):
            part.extend(chosen)
    return Split(*(faces.take(torch.tensor(part, dtype=torch.int64)) for part in parts))


def _place(argument: str, data_dir: Path | None) -> tuple[Path, int]:
    """The zip and the side, of a path with options, of a side alone, or of nothing."""
    if argument and not argument.isdecimal():
        options = parse_options("orl", argument, {"side": str(SIDE)})
        path, side = options.path, options.number("side", 1)
        path = path / FILE if path.is_dir() else path
    else:
        path, side = find_file("orl", FILE, data_dir), int(argument or SIDE)
    if not 16 <= side <= 92:
        raise PrivateDataError(f"orl: the side {side} must be a number of pixels, 16..92")
    return path, side


def read_faces(path: Path, side: int, name: str) -> PrivateData:
    """All faces of the zip, by person and number.

    Raises:
        PrivateDataError: when it cannot be read, or is not laid out as ``s1/1.pgm``.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = sorted(
                (int(match[1]), int(match[2]), member)
                for member in archive.namelist()
                if (match := NAMED.fullmatch(member))
            )
            images = [
                read_picture(io.BytesIO(archive.read(member)), f"{path}: {member}", side, 1)
                for _, _, member in found
            ]
    except (OSError, zipfile.BadZipFile) as error:
        raise PrivateDataError(f"{path}: no readable zip ({error}); fetch it again") from error
    if not images:
        raise PrivateDataError(f"{path}: has no s<person>/<number>.pgm; give the ORL faces' zip")
    people = np.unique([person for person, _, _ in found], return_inverse=True)[1].astype(np.int64)
    classes = int(people.max()) + 1
    return labelled_pictures(name, np.stack(images), people, people, (classes, classes), people)


ORL = DatasetSpec("ORL faces", private=load_orl)
