"""The same folders and archives as a run's data: images, classes, users, a sensitive column."""

from __future__ import annotations

import logging

import numpy as np

from fedlens.data.dataset import Dataset, build_dataset
from fedlens.data.labelled.folder import read_labelled_folder
from fedlens.data.labelled.labels import OwnRecords, numbered, owner_number, part_keys, parts_of
from fedlens.data.spec import DatasetSpec
from fedlens.models.pixels import as_pixels
from fedlens.privatizers.private_data import PrivateDataError

TEST_PART = 2


def labelled_dataset(own: OwnRecords) -> Dataset:
    """Records as a run's data; the part to score on is the test set, all else are users' own.

    Classes are the values of the utility, the sensitive column those of the sensitive attribute,
    users the owners. Which images are for the test is what a curve's seed 0 says.

    Raises:
        DatasetError: an attribute has one value, or a part is empty.
    """
    if own.utility is None:
        raise PrivateDataError(f"{own.path}: a run's data are pictures; these are series")
    names, labels = numbered(own.path, own.utility, "utility")
    hidden, sensitive = numbered(own.path, own.sensitive, "sensitive")
    for what, found in (("utility", names), ("sensitive", hidden)):
        if len(found) < 2:
            raise PrivateDataError(f"{own.path}: {what} has one value only, {found[0]!r}")
    test = parts_of(part_keys(own), 0) == TEST_PART
    if test.all() or not test.any():
        raise PrivateDataError(
            f"{own.path}: too few owners or pictures to set some apart; add some"
        )
    images = as_pixels(own.records)
    users = None
    if own.owners is not None:
        users = np.array([owner_number(name) for name in np.array(own.owners)[~test]], np.int64)
    for note in own.notes:
        logging.getLogger(__name__).warning("%s: %s", own.path, note)
    return build_dataset(
        f"folder:{own.path.parent.name}",
        own.path,
        (images[~test], labels[~test]),
        (images[test], labels[test]),
        class_names=names,
        attribution=f"your own pictures, from {own.path.parent.name}",
        user_ids=users,
        sensitive=(sensitive[~test], sensitive[test]),
    )


FOLDER = DatasetSpec(
    "Labelled folder",
    lambda argument, _: labelled_dataset(read_labelled_folder("folder", argument)),
    by_path=True,
)
