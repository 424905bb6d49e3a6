"""The registry of data sets: one name, one loader.

Adding a source is one file in ``data_sources/`` and one line here.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from client.datasets.arrays import load_npz
from client.datasets.dataset import Dataset, DatasetError, digest_arrays
from client.datasets.embedded import load_embedded
from client.datasets.folder import load_folder
from client.datasets.idx_sets import FASHION_MNIST, MNIST, load_idx_set

__all__ = ["NAMED", "PATHS", "Dataset", "DatasetError", "digest_arrays", "load"]

NAMED: dict[str, Callable[[Path | None], Dataset]] = {
    "embedded": lambda _: load_embedded(),
    "mnist": lambda data_dir: load_idx_set(MNIST, data_dir),
    "fashion-mnist": lambda data_dir: load_idx_set(FASHION_MNIST, data_dir),
}
PATHS: dict[str, Callable[[Path], Dataset]] = {
    "image-folder": load_folder,
    "npz": load_npz,
}


def load(name: str, data_dir: Path | str | None = None) -> Dataset:
    """Load a data set by name.

    Args:
        name: ``embedded``, ``mnist``, ``fashion-mnist``, ``image-folder:PATH`` or ``npz:PATH``.
        data_dir: folder with the files of ``mnist`` or ``fashion-mnist``; when given, no other
            place is looked into. The others do not read it.

    Raises:
        DatasetError: on an unknown name, and on data that is missing or damaged.
    """
    kind, colon, path = name.partition(":")
    if not colon and kind in NAMED:
        return NAMED[kind](None if data_dir is None else Path(data_dir))
    if path and kind in PATHS:
        return PATHS[kind](Path(path).expanduser())
    known = ", ".join([*NAMED, *(f"{kind}:PATH" for kind in PATHS)])
    raise DatasetError(f"there is no data set {name!r}; use one of {known}")
