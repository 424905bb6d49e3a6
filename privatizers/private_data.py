"""Private data, in three parts: records with utility and sensitive attribute.

A filter is trained on one part, attackers on the *filtered* second part (an attacker who has seen
what the filter was trained on would be judged on memories of it), and both are scored on the third.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from fedlens.data.dataset import DatasetError
from fedlens.privatizers.protocol import Batch

Rows = Tensor | Sequence[int] | slice
"""Which records: int64 row numbers, a bool mask of all records, or a slice."""


class PrivateDataError(DatasetError):
    """Records or labels that no privatizer can be trained on; the message says the fix."""


@dataclass(frozen=True, eq=False)
class PrivateData:
    """Records of people, what a service wants to know of each, and what the people want hidden.

    Attributes:
        name: the source's name.
        records: float32 [n, ...], finite: images [n, c, h, w], series [n, T, 1], points [n, d].
        utility: int64 [n], each in [0, utility_classes); [n, T] of zeros with one class where the
            use is the record itself (series).
        sensitive: int64 [n], or [n, T] for the steps of series; each in [0, sensitive_classes).
        side: float32 [n, k] or [n, T, k], what adversary and attacker also know, or None.
        owners: int64 [n], the person each record belongs to, or None where it is unknown.
        utility_classes: number of classes of ``utility``; 1 where the record is its own utility.
        sensitive_classes: number of classes of ``sensitive``, at least 2.
        low: least value that a record's entry may have.
        high: greatest such value.
        utility_names: what the values of ``utility`` are called, in order; empty where they have
            no names.
        sensitive_names: the same of ``sensitive``.
        unit: what an entry is multiplied with to be in the units that it was read in.

    Raises:
        PrivateDataError: on an empty set, a shape or type that does not fit, values out of range.
    """

    name: str
    records: Tensor
    utility: Tensor
    sensitive: Tensor
    side: Tensor | None
    owners: Tensor | None
    utility_classes: int
    sensitive_classes: int
    low: float
    high: float
    utility_names: tuple[str, ...] = ()
    sensitive_names: tuple[str, ...] = ()
    unit: float = 1.0

    def __post_init__(self) -> None:
        if len(self.records) == 0:
            raise PrivateDataError(f"{self.name}: no records are left; give at least one")
        if self.records.dtype != torch.float32 or not bool(torch.isfinite(self.records).all()):
            raise PrivateDataError(
                f"{self.name}: records are {self.records.dtype} or not finite; give finite float32"
            )
        if self.sensitive_classes < 2:
            raise PrivateDataError(
                f"{self.name}: sensitive_classes={self.sensitive_classes}, so there is "
                "nothing to hide: choose a sensitive attribute with at least 2 classes"
            )
        _check_labels(self.name, "utility", self.utility, len(self), self.utility_classes)
        _check_labels(self.name, "sensitive", self.sensitive, len(self), self.sensitive_classes)
        for name, column in (("side", self.side), ("owners", self.owners)):
            if column is not None and len(column) != len(self):
                raise PrivateDataError(
                    f"{self.name}: {name} has {len(column)} rows for {len(self)} records; "
                    "give one a record"
                )

    def __len__(self) -> int:
        return len(self.records)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one record."""
        return tuple(self.records.shape[1:])

    def digest(self) -> str:
        """SHA-256, hex, of records, utility and sensitive attribute: equal data, equal digest."""
        digest = hashlib.sha256()
        for column in (self.records, self.utility, self.sensitive):
            digest.update(f"{column.dtype}{tuple(column.shape)}".encode())
            digest.update(column.contiguous().numpy().data)
        return digest.hexdigest()

    def take(self, rows: Rows) -> PrivateData:
        """The records in ``rows``, in that order.

        Raises:
            PrivateDataError: when none is left.
        """
        chosen = _index(rows)
        return replace(
            self,
            records=self.records[chosen],
            utility=self.utility[chosen],
            sensitive=self.sensitive[chosen],
            side=None if self.side is None else self.side[chosen],
            owners=None if self.owners is None else self.owners[chosen],
        )

    def batch(self, rows: Rows, choice: Tensor | None = None) -> Batch:
        """What a privatizer's step takes of the records in ``rows``.

        Args:
            rows: as for :meth:`take`.
            choice: float32 [len(rows), 1], 1 where an owner wants the sensitive attribute hidden;
                None where everybody does.
        """
        chosen = _index(rows)
        return Batch(
            records=self.records[chosen],
            utility=self.utility[chosen],
            sensitive=self.sensitive[chosen],
            side=None if self.side is None else self.side[chosen],
            choice=choice,
        )


@dataclass(frozen=True, eq=False)
class Split:
    """The three parts of a source, with no record in two of them.

    Attributes:
        train: what a filter and its adversaries are trained on.
        attack: what fresh attackers are trained on, once filtered.
        test: what everything is scored on; nothing is tuned on it.
        notes: what people should know of how the data were read, a line each.

    Raises:
        PrivateDataError: when a part has one sensitive class only, or parts differ in shape.
    """

    train: PrivateData
    attack: PrivateData
    test: PrivateData
    notes: tuple[str, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        for part, data in (("train", self.train), ("attack", self.attack), ("test", self.test)):
            if int(data.sensitive.min()) == int(data.sensitive.max()):
                raise PrivateDataError(
                    f"{data.name}: every record of the {part} part has sensitive value "
                    f"{int(data.sensitive.flatten()[0])}; there is nothing to hide: choose another "
                    "attribute or give records of both kinds"
                )
            if data.shape != self.train.shape:
                raise PrivateDataError(
                    f"{data.name}: records of the {part} part are {data.shape}, those of the train "
                    f"part {self.train.shape}; bring all to one shape"
                )


def split_in_two(data: PrivateData, share: float, seed: int) -> tuple[PrivateData, PrivateData]:
    """Deal ``data`` into two parts at random: about ``share`` of it and the rest.

    Raises:
        PrivateDataError: when a part would be empty.
    """
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
    cut = round(share * len(data))
    return data.take(order[:cut]), data.take(order[cut:])


def _index(rows: Rows) -> Tensor | slice:
    return rows if isinstance(rows, Tensor | slice) else torch.tensor(rows, dtype=torch.int64)


def _check_labels(where: str, name: str, labels: Tensor, records: int, classes: int) -> None:
    if labels.dtype != torch.int64 or len(labels) != records or labels.ndim not in (1, 2):
        raise PrivateDataError(
            f"{where}: {name} is {labels.dtype} {tuple(labels.shape)} for {records} records; "
            "give int64 [n], or [n, T] for series"
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise PrivateDataError(
            f"{where}: {name} runs from {low} to {high}; with {classes} classes it must lie in "
            f"0..{classes - 1}"
        )
