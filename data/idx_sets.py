"""MNIST and Fashion-MNIST: what they are, where their files are looked for, and proof of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedlens.data.dataset import Dataset, DatasetError, build_dataset
from fedlens.data.download import download, search_folders
from fedlens.data.idx import read_images, read_labels
from fedlens.data.spec import Augmentation, DatasetSpec, Distortion

STEMS = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


@dataclass(frozen=True)
class IdxSet:
    """A published set of four IDX files.

    Attributes:
        name: as given to ``load``.
        class_names: one per label.
        attribution: credit and licence.
        mirrors: addresses of folders with the four ``.gz`` files, tried in order.
        digests: SHA-256 (hex) of each *unpacked* file, in the order of ``STEMS``; the mirrors
            compress the same files differently.
        system_folders: where system packages put the files.
    """

    name: str
    class_names: tuple[str, ...]
    attribution: str
    mirrors: tuple[str, ...]
    digests: tuple[str, str, str, str]
    system_folders: tuple[Path, ...] = ()


MNIST_FILES = IdxSet(
    name="mnist",
    class_names=tuple("0123456789"),
    attribution=(
        "MNIST by Yann LeCun, Corinna Cortes and Christopher J.C. Burges, derived from NIST "
        "data; Creative Commons Attribution-ShareAlike 3.0"
    ),
    mirrors=(
        "https://ossci-datasets.s3.amazonaws.com/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
    ),
    digests=(
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
FASHION_MNIST_FILES = IdxSet(
    name="fashion-mnist",
    class_names=(
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
    attribution="Fashion-MNIST by Han Xiao, Kashif Rasul and Roland Vollgraf (Zalando SE); MIT",
    mirrors=(
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    ),
    digests=(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
    system_folders=(Path("/usr/share/datasets/fashion-mnist"),),
)


MNIST = DatasetSpec(
    "MNIST",
    lambda _, data_dir: load_idx_set(MNIST_FILES, data_dir),
    augmentation=Augmentation("affine"),
    distortion=Distortion(warping=3 / 28, patching=0.5),
    published="mnist",
    public=True,
)
"""Digits bear being turned and moved, but no mirror."""
FASHION_MNIST = DatasetSpec(
    "Fashion-MNIST",
    lambda _, data_dir: load_idx_set(FASHION_MNIST_FILES, data_dir),
    augmentation=Augmentation("flips", moving=0.1),
    distortion=Distortion(shading=0.5, patching=0.5),
    student_images=2,  # worth more than a point of accuracy here, a quarter of one on digits
    published="fashion",
    public=True,
)
"""Clothes bear the mirror, and moving a little."""


def load_idx_set(published: IdxSet, data_dir: Path | None) -> Dataset:
    """Find the four files, prove them by their digests, and read them.

    They are looked for in `search_folders`, and without ``data_dir`` last on the mirrors.

    Raises:
        DatasetError: when the files are nowhere, damaged, or not the published ones.
    """
    paths = _find(published, data_dir)
    digests = published.digests
    classes = len(published.class_names)
    train = read_images(paths[0], digests[0]), read_labels(paths[1], classes, digests[1])
    test = read_images(paths[2], digests[2]), read_labels(paths[3], classes, digests[3])
    return build_dataset(
        published.name,
        paths[0].parent,
        train,
        test,
        class_names=published.class_names,
        declared=True,
        attribution=published.attribution,
    )


def _find(published: IdxSet, data_dir: Path | None) -> list[Path]:
    tried = search_folders(published.name, data_dir, published.system_folders)
    for folder in tried:
        if paths := _files_in(folder):
            return paths
    if data_dir is not None:
        raise DatasetError(
            f"--data-dir {data_dir} has no {published.name}; put {', '.join(STEMS)} "
            f"(plain or .gz) there or in {data_dir / published.name}"
        )
    names = [f"{stem}.gz" for stem in STEMS]
    return download(published.name, published.mirrors, names, published.digests, tried)


def _files_in(folder: Path) -> list[Path]:
    """The four files of ``folder``; none when it has none of them.

    Raises:
        DatasetError: when some are there and some are not.
    """
    found: list[Path] = []
    missing: list[str] = []
    for stem in STEMS:
        here = [path for path in (folder / f"{stem}.gz", folder / stem) if path.is_file()]
        found.extend(here[:1])
        missing.extend([] if here else [stem])
    if found and missing:
        raise DatasetError(
            f"{folder}: lacks {', '.join(missing)} (plain or .gz); add what is missing or "
            "remove the rest"
        )
    return found
