"""The records of a node one after the other, read only where a step draws them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from fedlens.client.users.protocol import LocalData, LocalUsers, Rows
from fedlens.client.users.records import placed_records


class NodeRecords:
    """All records of a node in the order of its users, sound or not."""

    def __init__(self, users: LocalUsers) -> None:
        self.users = users
        held = [users.held(position) for position in range(len(users))]
        self._offsets = np.concatenate([[0], np.cumsum(held)]).astype(np.int64)

    def __len__(self) -> int:
        """How many: private in record mode."""
        return int(self._offsets[-1])

    def read(self, places: Rows) -> tuple[LocalData, Tensor]:
        """The sound ones among records at ascending ``places``.

        Returns:
            Their data, and which of ``places`` they are, int64 [n].
        """
        owners = np.searchsorted(self._offsets, places, side="right") - 1
        cuts = np.flatnonzero(np.diff(owners)) + 1
        found, kept = [], []
        for first, end in pairwise([0, *cuts.tolist(), len(places)]):
            if first == end:
                continue
            owner = int(owners[first])
            rows = places[first:end] - self._offsets[owner]
            data, sound = placed_records(self.users, owner, rows)
            found.append(data)
            kept.append(sound + first)
        return _joined(self.users, found), torch.cat([torch.zeros(0, dtype=torch.int64), *kept])


def _joined(users: LocalUsers, parts: list[LocalData]) -> LocalData:
    """Images and labels: nothing in record mode reads more."""
    return LocalData(
        torch.cat([torch.zeros(0, *users.shape), *(part.images for part in parts)]),
        torch.cat([torch.zeros(0, dtype=torch.int64), *(part.labels for part in parts)]),
    )


@dataclass(frozen=True)
class DrawnRecords:
    """Some records that a step draws: few enough to be computed together."""

    node: NodeRecords
    places: Rows
    """Which records of the node, ascending, int64 [n]."""

    def read(self) -> LocalData:
        """Images and labels of those that are sound."""
        return self.node.read(self.places)[0]
