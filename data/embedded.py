"""The embedded sample of MNIST: 10,000 training and 2,000 test images that travel with the code."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

import numpy as np

from fedlens.data.dataset import Dataset, DatasetError, build_dataset
from fedlens.data.download import DATA_VARIABLE
from fedlens.data.idx_sets import MNIST_FILES
from fedlens.data.spec import Augmentation, DatasetSpec

FILE = "mnist-sample.npz.xz"
SHA256 = "33d43c8bb9db8d606ede0973f0e585d16bbb4c4596850eb594d6486612fa8a2d"
DISTRIBUTION = "fedlens"
BESIDE = Path(__file__).resolve().parent / "embedded_data"


def load_embedded() -> Dataset:
    """The embedded sample; see ``data/embedded_data/README.md`` for how it was drawn.

    Raises:
        DatasetError: when the file is found nowhere, or is not the one that was shipped.
    """
    path = find_embedded()
    packed = path.read_bytes()
    if hashlib.sha256(packed).hexdigest() != SHA256:
        raise DatasetError(f"{path}: differs from the file that was shipped; reinstall fedlens")
    with np.load(io.BytesIO(lzma.decompress(packed)), allow_pickle=False) as arrays:
        train = arrays["train_images"], arrays["train_labels"].astype(np.int64)
        test = arrays["test_images"], arrays["test_labels"].astype(np.int64)
    return build_dataset(
        "embedded",
        path,
        train,
        test,
        class_names=MNIST_FILES.class_names,
        declared=True,
        attribution=f"A sample of {MNIST_FILES.attribution}",
    )


EMBEDDED = DatasetSpec(
    "Embedded digits",
    lambda *_: load_embedded(),
    augmentation=Augmentation("affine"),
    public=True,
)


def find_embedded() -> Path:
    """The file's path: beside this code, in the installed distribution, or under FEDLENS_DATA.

    A Flower bundle carries .py files only, so code that runs from an unpacked bundle has no data
    beside it; the worker's installed fedlens has.

    Raises:
        DatasetError: when it is in none of these places.
    """
    tried = [folder / FILE for folder in _folders()]
    for path in tried:
        if path.is_file():
            return path
    places = ", ".join(str(path.parent) for path in tried)
    raise DatasetError(
        f"the embedded data ({FILE}) is in none of {places}; install fedlens on this machine, "
        f"or copy the file there and name its folder in {DATA_VARIABLE}"
    )


def _folders() -> Iterator[Path]:
    yield BESIDE
    yield from _installed_folders()
    if named := os.environ.get(DATA_VARIABLE):
        yield Path(named)


def _installed_folders() -> Iterator[Path]:
    """Data folders of the installed distribution: its files, and an editable install's source."""
    try:
        installed = metadata.distribution(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return
    inside = Path("fedlens") / "data" / "embedded_data"
    yield Path(str(installed.locate_file(inside)))
    origin = installed.read_text("direct_url.json")
    source = _editable_source(origin) if origin else None
    if source is not None:
        yield source / inside


def _editable_source(origin: str) -> Path | None:
    """The source folder of an editable install, from its ``direct_url.json`` (PEP 610)."""
    try:
        record = json.loads(origin)
        address = urlsplit(record["url"])
        editable = bool(record.get("dir_info", {}).get("editable"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return Path(url2pathname(address.path)) if editable and address.scheme == "file" else None
