"""Data sets by name: ours, and those of other packages that are installed.

Adding one is a file with a `DatasetSpec` and a line here. It says what it can provide: records one
at a time, a simulation's data, or parts with a private attribute.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedlens.data.dataset import Dataset, DatasetError
from fedlens.data.formats.records import SourceFormat
from fedlens.data.spec import DatasetSpec
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.registry import Registry
from fedlens.foundation.unlabelled import NO_CLASS, UNLABELLED

__all__ = ["DATASETS", "Dataset", "DatasetError", "format_of", "load", "spec_of"]

_FORMATS = {
    "celeba": "fedlens.data.formats.faces:CELEBA",
    "svhn": "fedlens.data.formats.svhn:SVHN",
    "cifar10": "fedlens.data.formats.cifar:CIFAR10",
    "cifar100": "fedlens.data.formats.cifar:CIFAR100",
    "idx": "fedlens.data.formats.idx_files:IDX",
    "hf": "fedlens.data.formats.arrow:HUGGING_FACE",
    "webdataset": "fedlens.data.formats.tars:WEBDATASET",
    "packed": "fedlens.data.formats.packed:PACKED",
    "manifest": "fedlens.data.formats.manifests:MANIFEST",
    "archive": "fedlens.data.formats.archives:ARCHIVE",
    "hdf5": "fedlens.data.formats.hdf5:HDF5",
    "leaf": "fedlens.data.formats.leaf:LEAF",
    "dicom": "fedlens.data.formats.dicom:DICOM",
    "tree": "fedlens.data.formats.folders:TREE",
    "pictures": "fedlens.data.formats.folders:PICTURES",
}
"""Records, in the order in which a path is asked whether it is one: the first that fits."""
_OTHERS = {
    "embedded": "fedlens.data.embedded:EMBEDDED",
    "stand-in": "fedlens.data.stand_in:STAND_IN",
    "mnist": "fedlens.data.idx_sets:MNIST",
    "fashion-mnist": "fedlens.data.idx_sets:FASHION_MNIST",
    "emnist": "fedlens.data.formats.idx_files:EMNIST",
    "femnist": "fedlens.data.formats.leaf:FEMNIST",
    "medmnist": "fedlens.data.formats.archives:MEDMNIST",
    "image-folder": "fedlens.data.folder:IMAGE_FOLDER",
    "npz": "fedlens.data.arrays:NPZ",
    "folder": "fedlens.data.formats.manifests:FOLDER",
    "series": "fedlens.data.labelled.series:SERIES",
    "federation": "fedlens.data.registry:FEDERATION",
    "mnist-greater5": "fedlens.data.attributes.digits:MNIST_GREATER5",
    "amnist": "fedlens.data.attributes.digits:AMNIST",
    "mnist-thickness": "fedlens.data.attributes.digits:MNIST_THICKNESS",
    "embedded-mnist-greater5": "fedlens.data.attributes.digits:EMBEDDED_GREATER5",
    "embedded-amnist": "fedlens.data.attributes.digits:EMBEDDED_AMNIST",
    "embedded-mnist-thickness": "fedlens.data.attributes.digits:EMBEDDED_THICKNESS",
}
DATASETS: Registry[DatasetSpec] = Registry(
    "data set",
    "fedlens.datasets",
    {**_FORMATS, **_OTHERS},
)


def _at_nodes(argument: str, data_dir: Path | None) -> Dataset:
    raise DatasetError(
        f"federation:{argument}: its records are at its nodes and nowhere else; simulate with "
        "another data set, or name public images of the same kind as a reference"
    )


FEDERATION = DatasetSpec("A federation's own data", _at_nodes, by_path=True)


def spec_of(name: str) -> DatasetSpec:
    """The spec of a data set by its name, with or without a path.

    Raises:
        DatasetError: there is no such data set.
        PluginError: another package's cannot be loaded.
    """
    try:
        return DATASETS[name.partition(":")[0]]
    except WrongUse as error:
        raise DatasetError(str(error)) from None


def format_of(name: str) -> SourceFormat:
    """How the records of a data set are read.

    Raises:
        WrongUse: there is no such data set, or it has no records.
        PluginError: another package's cannot be loaded.
    """
    found = DATASETS[name].format
    if found is None:
        raise WrongUse(f"{name} is read whole, not record by record; name a format of records")
    return found


def load(
    name: str,
    data_dir: Path | str | None = None,
    *,
    labelled: bool = True,
    partly: bool = False,
) -> Dataset:
    """Load a data set by name.

    Args:
        name: one of ``DATASETS``, such as ``embedded``, ``mnist`` or ``npz:PATH``.
        data_dir: folder with the files of ``mnist`` or ``fashion-mnist``; when given, no other
            place is looked into. Data sets that are named with a path do not read it.
        labelled: whether records need labels; else they have none, whatever the source has.
        partly: whether training records may lack one where they need labels: those have `NO_CLASS`.

    Raises:
        DatasetError: on an unknown name, and on data that is missing or damaged.
    """
    from fedlens.data.formats.gathered import load_records

    spec = spec_of(name)
    kind, colon, path = name.partition(":")
    if spec.load is None and spec.format is None:
        raise DatasetError(f"data set {name!r} is for filters, in three parts; a run needs another")
    if spec.needs_path and not path and spec is not FEDERATION:
        raise DatasetError(f"data set {name!r} needs a path: write {kind}:PATH")
    if colon and not spec.needs_path:
        raise DatasetError(f"data set {name!r}: nothing may follow {kind}")
    if spec.load is None:
        found = load_records(kind, path, labelled=labelled, partly=partly)
    else:
        found = spec.load(path, None if data_dir is None else Path(data_dir))
    found = found if found.name.partition(":")[0] == kind else replace(found, name=kind)
    if labelled and found.class_names == (UNLABELLED,):
        raise DatasetError(f"{name}: its records have no labels; set data.labels = 'none'")
    if labelled and not partly and (lacking := int((found.train_labels == NO_CLASS).sum())):
        raise DatasetError(
            f"{name}: {lacking} of {len(found.train_labels)} training records have no label (-1): "
            "set data.labels = 'own-or-none'"
        )
    return found if labelled else found.without_labels()
