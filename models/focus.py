"""A focus: the directions in which synthetic images of a class differ, and where they stand there.

Once there is a first generator, most of what the frozen features can say is known: images lie near
a subspace of a few hundred directions, and near the generator's own class means. Rows that are cut
down to that subspace and centred on those means are several times shorter than whole ones, so that
the same noise over a smaller clip tells far more. Both are taken from synthetic images alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedlens.models.principal import principal


@dataclass(frozen=True, eq=False)
class Focus:
    """Directions and class centres, public; see `focus_on`."""

    basis: Tensor
    """Orthonormal directions, float32 [features, components]."""
    centers: Tensor
    """Each class's mean along them, float32 [classes, components]."""

    def place(self, rows: Tensor) -> Tensor:
        """Feature rows float32 [n, features] along the directions, [n, components]."""
        return rows @ self.basis

    def apart(self, rows: Tensor, labels: Tensor) -> Tensor:
        """How far rows [n, features] of classes int64 [n] are from their centres, [n, components].

        A row depends on its own image and public state alone.
        """
        return self.place(rows) - self.centers[labels]

    def centred(self, rows: Tensor, labels: Tensor) -> Focus:
        """The same directions with centres at the class means of other synthetic rows."""
        return replace(self, centers=_class_means(self.place(rows), labels, len(self.centers)))

    def on(self, device: torch.device) -> Focus:
        """The same on a device."""
        return Focus(self.basis.to(device), self.centers.to(device))

    def to_vector(self) -> NDArray[np.float32]:
        """Basis, then centres, flattened row by row: the form that travels."""
        return torch.cat([self.basis.reshape(-1), self.centers.reshape(-1)]).cpu().numpy()


def focus_from(vector: NDArray[np.float32], features: int, classes: int) -> Focus:
    """The focus that ``to_vector`` flattened.

    Raises:
        ValueError: no number of components fits the vector's length.
    """
    components, rest = divmod(len(vector), features + classes)
    if rest or components < 1:
        raise ValueError(f"a vector of {len(vector)} values is no focus of {features} features")
    values = torch.from_numpy(np.array(vector, dtype=np.float32))
    basis, centers = torch.split(values, [features * components, classes * components])
    return Focus(basis.view(features, components), centers.view(classes, components))


def focus_on(rows: Tensor, labels: Tensor, classes: int, components: int) -> Focus:
    """The focus of *synthetic* rows: their leading directions, centred on their class means.

    Args:
        rows: float32 [n, features].
        labels: int64 [n], every class at least once.
        classes: number of classes.
        components: directions to keep.

    Raises:
        ValueError: ``components`` is below 1 or above the number of features.
    """
    _, basis = principal(rows - rows.mean(0), components)
    return Focus(basis, _class_means(rows @ basis, labels, classes))


def _class_means(rows: Tensor, labels: Tensor, classes: int) -> Tensor:
    sums = rows.new_zeros(classes, rows.shape[1]).index_add_(0, labels, rows)
    return sums / torch.bincount(labels, minlength=classes).clamp(min=1)[:, None]
