"""A fault planted in the data: a share of users, or of records, with rotated images.

A copy of the data set is written as one archive that a run reads like any other; its test images
stay as they are.
"""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedlens.foundation.files import write_durably
from fedlens.server.config.tree import Config
from fedlens.simulations.federation.apps import simulated_federation

SEED = 9_000_011


def write_faulty_copy(config: Config, share: float, path: Path) -> None:
    """Write the data set of ``config`` with a share of its users' or records' images rotated.

    Whole or not at all. The order of records and all labels stay, so the same seed deals the same
    records to the same users; ``privacy.unit`` says whose share in [0, 1] it is.
    """
    dataset, _ = simulated_federation(config.data, config.seed)
    images = dataset.train_images.copy()
    turned = faulty_records(config, share)
    images[turned] = np.rot90(images[turned], 1, (2, 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = ("train_labels", "test_images", "test_labels")
    content = io.BytesIO()
    np.savez(content, train_images=images, **{name: getattr(dataset, name) for name in parts})
    write_durably(path, content.getvalue())


def faulty_records(config: Config, share: float) -> NDArray[np.int64]:
    """The training records that are rotated, int64 [n], ascending."""
    dataset, dealt = simulated_federation(config.data, config.seed)
    source = np.random.default_rng([SEED, config.seed])
    if config.privacy.unit == "record":
        records = len(dataset.train_labels)
        return np.sort(source.permutation(records)[: round(share * records)])
    users = source.permutation(dealt.users)[: round(share * dealt.users)]
    held = [dealt.indices[dealt.offsets[u] : dealt.offsets[u + 1]] for u in users]
    return np.unique(np.concatenate([np.zeros(0, np.int64), *held]).astype(np.int64))
