"""Users of a simulation some of whom hold faulty records: planted, to learn what would be seen."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.client.users.protocol import ArrayUsers, LocalData, Rows
from fedlens.foundation.errors import WrongUse
from fedlens.models.faults.planting import SOUND, PlantedFault

_HOW = 8
"""Stream of the run's seed that what is random in a fault is drawn from."""


@dataclass(frozen=True, eq=False)
class FaultyUsers(ArrayUsers):
    """Users over arrays, those with a fault seen through it.

    A faulty user's records follow from the user's own, the run's seed and the user's number.
    """

    faults: tuple[PlantedFault, ...] = ()
    which: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    """[users], each user's fault, or `SOUND`."""
    seed: int = 0
    _made: dict[int, LocalData] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        users: ArrayUsers,
        faults: tuple[PlantedFault, ...],
        which: NDArray[np.int64],
        seed: int,
    ) -> FaultyUsers:
        """The same users, with faults.

        Raises:
            WrongUse: a fault does not go with such data.
        """
        for fault in faults:
            fault.check(users.shape, users.classes)
        moved = [fault.fault.name for fault in faults if fault.fault.kind == "label"]
        if moved and users.sensitive is not None:
            raise WrongUse(
                f"fault {moved[0]!r} changes which records there are, and these have a sensitive "
                "attribute: plant a fault of images, or train without a privatizer"
            )
        own = {one.name: getattr(users, one.name) for one in fields(ArrayUsers)}
        return cls(**own, faults=faults, which=which, seed=seed)

    def held(self, position: int) -> int:
        """How many records the user holds, under the fault."""
        if self.which[position] == SOUND:
            return super().held(position)
        return len(self._faulty(position).labels)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The records of one user, under the fault."""
        if self.which[position] == SOUND:
            return super().user(position, rows)
        data = self._faulty(position)
        return data if rows is None else _some(data, rows)

    def _faulty(self, position: int) -> LocalData:
        if position not in self._made:
            self._made[position] = self._changed(position)
        return self._made[position]

    def _changed(self, position: int) -> LocalData:
        own, fault = super().user(position), self.faults[self.which[position]]
        state = np.random.SeedSequence([self.seed, _HOW, self.user_id(position) % 2**64])
        setting = fault.setting(self.classes, int(state.generate_state(1, np.uint32)[0]))
        images, labels = fault.fault.applied(own.images, own.labels, setting)
        return LocalData(images, labels, own.sensitive, own.hides)


def _some(data: LocalData, rows: Rows) -> LocalData:
    picked = torch.from_numpy(np.asarray(rows))
    sensitive = None if data.sensitive is None else data.sensitive[picked]
    hides = None if data.hides is None else data.hides[picked]
    return LocalData(data.images[picked], data.labels[picked], sensitive, hides)
