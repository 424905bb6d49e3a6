"""Data sets by name: ours, and those of other packages that are installed.

Adding one is a file with a `DatasetSpec` and a line here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fedlens.data.dataset import Dataset, DatasetError
from fedlens.data.spec import DatasetSpec
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.registry import Registry

__all__ = ["DATASETS", "Dataset", "DatasetError", "load", "spec_of"]

DATASETS: Registry[DatasetSpec] = Registry(
    "data set",
    "fedlens.datasets",
    {
        "embedded": "fedlens.data.embedded:EMBEDDED",
        "mnist": "fedlens.data.idx_sets:MNIST",
        "fashion-mnist": "fedlens.data.idx_sets:FASHION_MNIST",
        "image-folder": "fedlens.data.folder:IMAGE_FOLDER",
        "npz": "fedlens.data.arrays:NPZ",
        "folder": "fedlens.data.labelled.dataset:FOLDER",
        **{
            name: f"fedlens.data.formats.named:{name.upper()}"
            for name in (
                "tree",
                "manifest",
                "archive",
                "idx",
                "webdataset",
                "dicom",
                "emnist",
                "femnist",
                "cifar10",
                "cifar100",
                "svhn",
                "celeba",
                "medmnist",
                "federation",
            )
        },
        "hf": "fedlens.data.formats.named:HUGGING_FACE",
    },
)


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


def load(name: str, data_dir: Path | str | None = None) -> Dataset:
    """Load a data set by name.

    Args:
        name: one of ``DATASETS``, such as ``embedded``, ``mnist`` or ``npz:PATH``.
        data_dir: folder with the files of ``mnist`` or ``fashion-mnist``; when given, no other
            place is looked into. Data sets that are named with a path do not read it.

    Raises:
        DatasetError: on an unknown name, and on data that is missing or damaged.
    """
    spec = spec_of(name)
    kind, colon, path = name.partition(":")
    if spec.by_path and not path:
        raise DatasetError(f"data set {name!r} needs a path: write {kind}:PATH")
    if colon and not spec.by_path:
        raise DatasetError(f"data set {name!r}: nothing may follow {kind}")
    found = spec.load(path, None if data_dir is None else Path(data_dir))
    return found if found.name.partition(":")[0] == kind else replace(found, name=kind)
