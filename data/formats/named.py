"""Every source format as a simulation's data: ``data.name=hf:PATH,label=COLUMN,side=32``."""

from __future__ import annotations

import logging
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from fedlens.data.attributes.options import Options, parse_options
from fedlens.data.dataset import Dataset, DatasetError, build_dataset
from fedlens.data.formats.arrow import hub_folder
from fedlens.data.formats.decoding import form_of, pixels_of
from fedlens.data.formats.formats import LabelledRecord, RecordSource, open_source
from fedlens.data.formats.records import TEST, TRAIN, SourceError, SourceRecord, UnusableRecord
from fedlens.data.labelled.folder import COLOURS
from fedlens.data.labelled.labels import owner_number, value_order
from fedlens.data.labelled.pictures import (
    OversizedPictureError,
    UnreadablePictureError,
    check_side,
    resizing_note,
    usual_side,
)
from fedlens.data.spec import Augmentation, DatasetSpec

DEFAULTS = {"label": "", "user": "", "image": "", "side": "", "colour": "auto", "limit": "0"}
MOST_CLASSES = 1000
TEST_SHARE = 6
"""Without a test part about one user in six is for the test; without users, one record."""
SHOWN = 3
_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def _nameless() -> IO[bytes]:
    return tempfile.TemporaryFile()


@dataclass
class _Part:
    """One part's records: pixels in a nameless file, labels and users beside."""

    pixels: IO[bytes] = field(default_factory=_nameless)
    labels: array[int] = field(default_factory=lambda: array("q"))
    users: array[int] = field(default_factory=lambda: array("q"))

    def images(self, channels: int, side: int) -> NDArray[np.uint8]:
        """uint8 [n, channels, side, side], on the disk."""
        shape = (len(self.labels), channels, side, side)
        self.pixels.flush()
        if not len(self.labels):
            return np.zeros(shape, np.uint8)
        return np.memmap(self.pixels, np.uint8, "r", shape=shape)


@dataclass(frozen=True)
class _Form:
    """What a first look says of a source."""

    classes: tuple[str, ...]
    channels: int
    side: int
    notes: list[str]


def load_source(kind: str, argument: str, attribution: str = "") -> Dataset:
    """A source's records as a data set: looked at once, then decoded into a nameless file.

    Pictures are cut to their middle square and scaled to ``side`` (their own, where all have one
    that networks take, else 32); they are grey where all are, unless ``colour`` says otherwise.
    What cannot be decoded is left out, named and counted. Records of a part ``test`` are for the
    test; without any a hash of the user (or of the record's place) takes one in six.

    Args:
        kind: the format's name.
        argument: ``PATH,option=value``.
        attribution: whom to credit.

    Raises:
        DatasetError: the source cannot be read, has no record or over 1,000 classes.
    """
    options = parse_options(kind, argument, DEFAULTS)
    options.one_of("colour", COLOURS)
    asked = options.values
    source = open_source(
        options.path, kind, label=asked["label"], user=asked["user"], image=asked["image"]
    )
    source = replace(source, needs_user=bool(asked["user"]) or _knows_users(source))
    left_out: Counter[str] = Counter()
    form = _looked_at(source, options)
    train, test = _decoded(source, options, form, left_out)
    notes = [*form.notes, *(f"{count} left out, {why}" for why, count in left_out.items())]
    for note in notes:
        logging.getLogger(__name__).warning("%s: %s", options.path, note)
    owners = np.asarray(train.users, np.int64) if source.needs_user else None
    return build_dataset(
        f"{kind}:{options.path.name}",
        options.path,
        (train.images(form.channels, form.side), np.asarray(train.labels, np.int64)),
        (test.images(form.channels, form.side), np.asarray(test.labels, np.int64)),
        class_names=form.classes,
        attribution=attribution or f"your own records, from {options.path.name}",
        user_ids=owners,
    )


def _knows_users(source: RecordSource) -> bool:
    """Whether the first record has a column that the format takes for the user."""
    for found in source.format.records(source.path, source.columns):
        if isinstance(found, SourceRecord):
            return any(name in found.values for name in source.format.users)
    return False


def _counted(source: RecordSource, options: Options) -> Iterator[LabelledRecord | UnusableRecord]:
    """Records of training and test parts, at most ``limit`` of each."""
    limit, seen = options.number("limit", 0), Counter[str]()
    for found in source.records():
        if isinstance(found, LabelledRecord):
            part = found.part or TRAIN
            if part not in (TRAIN, TEST):
                continue
            seen[part] += 1
            if limit and seen[part] > limit:
                if part == TEST:
                    return
                continue
        yield found


def _looked_at(source: RecordSource, options: Options) -> _Form:
    sizes: set[tuple[int, int]] = set()
    classes: set[str] = set()
    grey = True
    for found in _counted(source, options):
        if isinstance(found, UnusableRecord):
            continue
        try:
            is_grey, size = form_of(found.picture, found.where)
        except (UnreadablePictureError, OversizedPictureError):
            continue  # counted where it is decoded
        grey &= is_grey
        classes.add(found.label)
        sizes = sizes | {size} if len(sizes) < SHOWN else sizes
        if len(classes) > MOST_CLASSES:
            raise DatasetError(
                f"{source.path}: has over {MOST_CLASSES} labels, such as {found.label!r}; name "
                "another column with label="
            )
    if not sizes:
        raise SourceError(f"{source.path}: has no readable picture; give some")
    wanted = options.values["side"] and options.number("side", 1)
    side = check_side(source.kind, int(wanted or usual_side(sizes)))
    channels = COLOURS[options.values["colour"]] or (1 if grey else 3)
    fixed = source.format.classes
    names = fixed if classes <= set(fixed) else tuple(sorted(classes, key=value_order))
    return _Form(names, channels, side, resizing_note(sizes, side))


def _decoded(
    source: RecordSource, options: Options, form: _Form, left_out: Counter[str]
) -> tuple[_Part, _Part]:
    numbers = {name: number for number, name in enumerate(form.classes)}
    parts = {TRAIN: _Part(), TEST: _Part()}
    by_hash = not _has_test(source, options)
    for found in _counted(source, options):
        if isinstance(found, UnusableRecord):
            left_out[f"{found.why}, such as {found.where}" if not left_out else found.why] += 1
            continue
        try:
            pixels = pixels_of(found.picture, found.where, form.side, form.channels)
        except (UnreadablePictureError, OversizedPictureError):
            left_out["as no readable picture"] += 1
            continue
        key = owner_number(found.user or found.where)
        name = TEST if (by_hash and key % TEST_SHARE == 0) or found.part == TEST else TRAIN
        part = parts[name]
        part.pixels.write(pixels.tobytes())
        part.labels.append(numbers[found.label])
        part.users.append(key)
    return parts[TRAIN], parts[TEST]


def _has_test(source: RecordSource, options: Options) -> bool:
    return any(
        isinstance(found, LabelledRecord) and found.part == TEST
        for found in _counted(source, options)
    )


def _spec(kind: str, title: str, attribution: str = "", moves: str = "none") -> DatasetSpec:
    return DatasetSpec(
        title,
        lambda argument, _: load_source(kind, argument, attribution),
        by_path=True,
        augmentation=Augmentation(moves),
        public=bool(attribution),  # what somebody published, and is credited for
    )


def _on_disk(argument: str) -> str:
    """A data set's folder in place of its name on the hub; what follows stays."""
    name, comma, rest = argument.partition(",")
    if Path(name).expanduser().exists() or not _ON_HUB.fullmatch(name):
        return argument
    return f"{hub_folder(name)}{comma}{rest}"


def _at_nodes(argument: str, data_dir: Path | None) -> Dataset:
    raise DatasetError(
        f"federation:{argument}: its records are at its nodes and nowhere else; simulate with "
        "another data set, or name public images of the same kind as a reference"
    )


FEDERATION = DatasetSpec("A federation's own data", _at_nodes, by_path=True)
HUGGING_FACE = DatasetSpec(
    "Hugging Face data set", lambda argument, _: load_source("hf", _on_disk(argument)), by_path=True
)
IDX = _spec("idx", "IDX files")
EMNIST = _spec(
    "idx",
    "EMNIST",
    "EMNIST by Cohen et al. (2017), from NIST data",
    "affine",
)
WEBDATASET = _spec("webdataset", "WebDataset shards")
MANIFEST = _spec("manifest", "Pictures with a manifest")
ARCHIVE = _spec("archive", "NumPy archive by columns")
MEDMNIST = _spec("archive", "MedMNIST", "MedMNIST by Yang et al. (2023); see its licence")
FEMNIST = _spec("leaf", "FEMNIST", "FEMNIST by Caldas et al. (2018), from NIST data", "affine")
DICOM = _spec("dicom", "DICOM files")
CIFAR10 = _spec("cifar10", "CIFAR-10", "CIFAR-10 by Krizhevsky (2009)", "flips")
CIFAR100 = _spec("cifar100", "CIFAR-100", "CIFAR-100 by Krizhevsky (2009)", "flips")
SVHN = _spec("svhn", "SVHN", "SVHN by Netzer et al. (2011); for research")
CELEBA = _spec("celeba", "CelebA", "CelebA by Liu et al. (2015); for research", "flips")
TREE = _spec("tree", "Class folders, resized")
