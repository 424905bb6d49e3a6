"""Make the embedded sample of MNIST from the four original files.

    python -m fedlens.data.embedded_data.make --source FOLDER_WITH_MNIST

Per split, every class gets its share of the original (largest remainders), and within a class
the images are drawn without replacement by NumPy's PCG64 seeded with the same number; they stay
in the original's order. The same files and NumPy give the same sample.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import lzma
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.data.embedded import BESIDE, FILE
from fedlens.data.idx_sets import MNIST_FILES, load_idx_set

SEED = 20_200_302
TRAIN_IMAGES, TEST_IMAGES = 10_000, 2_000


def draw(labels: NDArray[np.int64], size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Indices of a sample with the class shares of ``labels``, in rising order."""
    exact = np.bincount(labels) * size / len(labels)
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: size - counts.sum()]] += 1
    picks = [
        rng.choice(np.flatnonzero(labels == label), count, replace=False)
        for label, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(picks))


def sample(source: Path) -> dict[str, NDArray[np.uint8]]:
    """The sampled arrays of the MNIST in ``source``, by their names in the archive."""
    whole = load_idx_set(MNIST_FILES, source)
    rng = np.random.Generator(np.random.PCG64(SEED))
    train = draw(whole.train_labels, TRAIN_IMAGES, rng)
    test = draw(whole.test_labels, TEST_IMAGES, rng)
    return {
        "train_images": whole.train_images[train],
        "train_labels": whole.train_labels[train].astype(np.uint8),
        "test_images": whole.test_images[test],
        "test_labels": whole.test_labels[test].astype(np.uint8),
    }


def pack(arrays: dict[str, NDArray[np.uint8]]) -> bytes:
    """The archive, compressed."""
    plain = io.BytesIO()
    np.savez(plain, allow_pickle=False, **arrays)
    return lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    """Write the sample and say its digest, to be set in ``data/embedded.py``."""
    parser = argparse.ArgumentParser(description="make the embedded sample of MNIST")
    parser.add_argument("--source", type=Path, required=True, help="folder with the IDX files")
    parser.add_argument("--target", type=Path, default=BESIDE / FILE, help="file to write")
    options = parser.parse_args()
    packed = pack(sample(options.source))
    options.target.write_bytes(packed)
    sys.stdout.write(
        f"{options.target}: {len(packed)} bytes, {hashlib.sha256(packed).hexdigest()}\n"
    )


if __name__ == "__main__":
    main()
