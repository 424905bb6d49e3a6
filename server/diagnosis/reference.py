"""Reference users: public (or synthetic) records dealt out as users hold them, faulty or sound."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from client.data import LocalData, Rows
from foundation.errors import WrongUse
from models.faults.protocol import FaultSetting
from models.shapes import ImageShape
from server.diagnosis.hypotheses import Hypothesis

LEAST_USERS = 20
"""Reference users below which nothing is said of how users differ."""
_DEAL, _FAULT = 11, 12


@dataclass(frozen=True, eq=False)
class Reference:
    """Images of the kind that users hold, whose faults are known: none."""

    name: str
    """What people call it."""
    images: Tensor
    """float32 [n, channels, height, width] in [-1, 1]."""
    labels: Tensor
    """int64 [n] in [0, classes)."""
    classes: int

    @property
    def shape(self) -> ImageShape:
        """Channels, height, width of an image."""
        channels, height, width = (int(side) for side in self.images.shape[1:])
        return channels, height, width

    def check(self, shape: ImageShape, classes: int) -> None:
        """Refuse a reference of another schema than the run's.

        Raises:
            WrongUse: its images have another shape, or its classes another number.
        """
        if self.shape != shape or self.classes != classes:
            raise WrongUse(
                f"reference {self.name!r} has {self.classes} classes of images "
                f"{self.shape}, the run {classes} of {shape}: take data of the same kind"
            )

    def dealt(self, records: int, deal: int = 0) -> list[LocalData]:
        """Users of ``records`` records each, by a public seed; the same each time.

        Another ``deal`` mixes the same records into other users.

        Raises:
            WrongUse: there are too few images.
        """
        users = len(self.labels) // records
        if users < LEAST_USERS:
            raise WrongUse(
                f"reference {self.name!r} has {len(self.labels)} images, which make {users} users "
                f"of {records} records: give at least {LEAST_USERS * records} images"
            )
        order = np.random.default_rng([_DEAL, deal]).permutation(len(self.labels))
        rows = torch.from_numpy(order[: users * records]).view(users, records)
        return [LocalData(self.images[own], self.labels[own]) for own in rows]


@dataclass(frozen=True, eq=False)
class ReferenceUsers:
    """Reference users as a node hosts users."""

    data: list[LocalData]
    shape: ImageShape
    classes: int
    partition: int = 0

    def __len__(self) -> int:
        """Number of users."""
        return len(self.data)

    def user_id(self, position: int) -> int:
        """The user's own number."""
        return position

    def held(self, position: int) -> int:
        """How many records the user holds."""
        return len(self.data[position].labels)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The records of one user."""
        data = self.data[position]
        if rows is None:
            return data
        picked = torch.from_numpy(np.asarray(rows))
        return LocalData(data.images[picked], data.labels[picked])

    def under(self, hypothesis: Hypothesis) -> ReferenceUsers:
        """The same users, all of them with a fault."""
        made = []
        for number, own in enumerate(self.data):
            state = np.random.SeedSequence([_FAULT, number])
            seed = int(state.generate_state(1, np.uint32)[0])
            variant = hypothesis.variant
            setting = FaultSetting(self.classes, variant.chosen, variant.amount, seed)
            made.append(LocalData(*hypothesis.fault.applied(own.images, own.labels, setting)))
        return ReferenceUsers(made, self.shape, self.classes)

    def class_shares(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Share of each class among all records, float64 [classes]."""
        labels = torch.cat([own.labels for own in self.data])
        counts = torch.bincount(labels, minlength=self.classes).double()
        return (counts / counts.sum()).numpy()
