"""Orders of a batch of any size by what its samples look like, prepared by a process of its own.

A million samples take minutes to unpack and compare: once for each batch and server, beside the
pages, which say meanwhile how far it is. What was found lies in memory, and in a folder that ends
with the server. Run as a module it is that process.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedlens.dashboard.jobs import CommandFailed, follow_command
from fedlens.dashboard.samples.batches import intact_pixels
from fedlens.dashboard.samples.order import (
    AT_ONCE,
    MOST_FOR_AXES,
    Matrix,
    distances,
    find_axes,
    oddness,
    project,
    shrink,
)
from fedlens.dashboard.samples.prepared import Prepared
from fedlens.store import SampleFilter, Store, StoredSample, StoreError, open_store

WholeOrder = Literal["oddest", "commonest", "doubtful", "agreed", "alike", "spread"]
MOST_KEPT = 2
"""Batches whose orders are kept in memory: 150 MB each, of a million samples."""
ORDERS_KEPT = 4
"""Of a batch: 8 MB each, of a million samples."""
MOST_SECONDS = 3600
NICE = 10
COMPARING = 0.2
"""Of all the time, what comparing takes once all is unpacked."""


@dataclass(frozen=True, eq=False)
class Whole:
    """What all samples of a batch look like, in short, each field in the order of their ids."""

    sample_ids: NDArray[np.int64]
    classes: NDArray[np.int64]
    """-1 for unlabelled ones."""
    agreements: NDArray[np.float64]
    """NaN where there is none."""
    features: Matrix
    """Principal components of the pixels, [n, components]; zeros for damaged pictures."""
    intact: NDArray[np.bool_]
    odd: NDArray[np.float64]
    # A person turns from one part of an order to the next: few are kept, with the batch alone.
    _orders: dict[tuple[WholeOrder, int], NDArray[np.int64]] = field(
        default_factory=dict, init=False
    )

    def ranked(self, order: WholeOrder, like: int, most: int) -> NDArray[np.int64]:
        """Places of all samples in an order; damaged and unknown ones last.

        Args:
            order: ``spread`` is every so manieth sample as stored, at most ``most``.
            like: id of the sample that all are compared with, for ``alike``.
            most: samples of a spread.
        """
        if order == "spread":
            return np.arange(0, len(self.sample_ids), -(-len(self.sample_ids) // most))
        asked = order, like
        ranked = self._orders.get(asked)
        if ranked is None:
            ranked = self._orders[asked] = np.argsort(self._level(order, like), kind="stable")
            for old in list(self._orders)[:-ORDERS_KEPT]:
                self._orders.pop(old, None)
        return ranked

    def _level(self, order: WholeOrder, like: int) -> NDArray[np.float64]:
        """What samples are sorted by, the least first."""
        if order in ("doubtful", "agreed"):
            sign = 1 if order == "doubtful" else -1
            return np.where(np.isnan(self.agreements), np.inf, sign * self.agreements)
        if order == "alike":
            place = int(np.searchsorted(self.sample_ids, like))
            if place == len(self.sample_ids) or self.sample_ids[place] != like:
                raise StoreError(f"like = {like}: it is no sample of this batch")
            level = distances(self.features[place : place + 1], self.features)[0].astype(float)
            level[place] = -1.0
        else:
            level = self.odd if order == "commonest" else -self.odd
        return np.where(self.intact, level, np.inf)


class WholeBatches:
    """The orders of large batches: each is prepared once, one after another."""

    def __init__(self) -> None:
        self._batches: Prepared[Whole] = Prepared(MOST_KEPT)

    def get(self, store: Store, made_from: Hashable, wanted: SampleFilter) -> Whole | float:
        """What was found of a batch; the share of the work that is done while it is under way.

        Args:
            store: where the samples lie.
            made_from: tells them from others in the place of these.
            wanted: which.

        Raises:
            StoreError: the last try came to nothing; the next call tries again.
        """
        try:
            return self._batches.get(made_from, lambda told: _prepare(store, wanted, told))
        except CommandFailed as error:
            raise StoreError(f"the samples could not be compared: {error}") from None


def _prepare(store: Store, wanted: SampleFilter, told: Callable[[float], None]) -> Whole:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "whole.npz"
        command = [sys.executable, "-m", "fedlens.dashboard.samples.whole", str(file)]
        batch = "" if wanted.batch_id is None else str(wanted.batch_id)
        asked = "\n".join([_url_of(store), str(wanted.run_id), batch])
        follow_command(
            command, lambda line: told(float(line)), most_seconds=MOST_SECONDS, given=asked
        )
        with np.load(file) as there:
            return Whole(**{name: there[name] for name in there.files})


def _url_of(store: Store) -> str:
    """Stores beside the dashboard's own are files; it may be on a server, by an address."""
    from fedlens.dashboard.widgets.options import STORE_VARIABLE

    return store.place if Path(store.place).exists() else os.environ[STORE_VARIABLE]


WRITTEN = tuple(one.name for one in fields(Whole) if one.init)
"""What of a `Whole` goes from the process that finds it to this one."""
WHOLE = WholeBatches()
"""Of this process."""


def find_whole(store: Store, wanted: SampleFilter) -> Iterator[float | Whole]:
    """Look at all samples that match: shares of the work done, and at last what was found."""
    total = store.count_samples(wanted)
    each = -(-MOST_FOR_AXES * AT_ONCE // max(1, total))
    pages = (store.samples(wanted, at, min(each, AT_ONCE)) for at in range(0, total, AT_ONCE))
    some = [one for page in pages for one in map(_seen, page) if one is not None]
    mean, axes = find_axes(np.stack(some) if some else np.zeros((0, 2), np.uint8))
    ids, classes, agreements, features, intact = [], [], [], [], []
    for place in range(0, total, AT_ONCE):
        page = store.samples(wanted, offset=place, limit=AT_ONCE)
        # where none of those looked at is intact, nothing is known that others could be compared by
        seen = [_seen(one) if some else None for one in page]
        blank = np.zeros(len(mean), np.uint8)
        features.append(
            project(np.stack([blank if one is None else one for one in seen]), mean, axes)
        )
        ids += [one.sample_id for one in page]
        classes += [-1 if one.requested_class is None else one.requested_class for one in page]
        agreements += [np.nan if one.agreement is None else one.agreement for one in page]
        intact += [one is not None for one in seen]
        yield (1 - COMPARING) * min(1.0, (place + AT_ONCE) / total)
    there = np.array(intact, bool)
    compared = np.where(there[:, None], np.concatenate(features), 0).astype(np.float32)
    numbers = np.array(classes, np.int64)
    yield Whole(
        np.array(ids, np.int64),
        numbers,
        np.array(agreements, float),
        compared,
        there,
        oddness(compared, numbers),
    )


def _seen(sample: StoredSample) -> NDArray[np.uint8] | None:
    pixels = intact_pixels(sample)
    return None if pixels is None else shrink(pixels)


def main() -> None:
    """Write what is found of the batch that standard input names, and say how far it is."""
    os.nice(NICE)
    url, run_id, batch = (sys.stdin.read() + "\n\n").split("\n")[:3]
    wanted = SampleFilter(run_id=run_id, batch_id=int(batch) if batch else None)
    with open_store(url) as store:
        for found in find_whole(store, wanted):
            if isinstance(found, Whole):
                np.savez(sys.argv[1], **{name: vars(found)[name] for name in WRITTEN})
            else:
                sys.stdout.write(f"{found:.3f}\n")
                sys.stdout.flush()


if __name__ == "__main__":
    main()
