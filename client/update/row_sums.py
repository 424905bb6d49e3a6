"""Sums of clipped rows, a few rows at a time, so that what is in the making stays in the cache."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedlens.accountant.noise.lattice import SUM_BITS, pitch

AT_ONCE_CPU, AT_ONCE_GPU = 1 << 18, 1 << 26
"""Values of rows that are made together: a megabyte in float32 stays in a core's cache."""
_SMALLEST_CLIP_FLOAT32 = 2.0**-90
"""Below it the pitches in one unit pass what float32 holds."""
_TOWARD_ZERO = 1 - 2.0**-22
"""Makes up for what float32 rounds in a factor and in its product with a value, 2^-24 each."""

Fill = Callable[[int, int, Tensor], object]
"""Writes rows [first, end) into a tensor [end - first, P]."""


def clip_and_sum_rows(
    shape: tuple[int, int], fill: Fill, like: Tensor, clipping_norm: float
) -> tuple[Tensor, Tensor]:
    """Clip rows to the L2 norm C = ``clipping_norm`` and add them up on the sum's lattice.

    Guarantees: those of `fedlens.client.update.clipping.clip_and_sum`. Rows in float32 are scaled
        and cut in
    float32, by a factor so little smaller (2^-22) that no rounding takes a contribution past C;
    they are added up as whole numbers of pitches, which rounds nothing. Norms are of float64.

    Args:
        shape: how many rows, and P.
        fill: makes some of them.
        like: a tensor of their dtype and device.
        clipping_norm: C > 0.

    Returns:
        The sum, float64 [P], and the clipped norms, float64 [rows].
    """
    count, size = shape
    at_once = AT_ONCE_GPU if like.is_cuda else AT_ONCE_CPU
    step = max(1, at_once // max(1, size))
    held = _Held(like.new_zeros(step, size), clipping_norm)
    total, norms = torch.zeros(size, dtype=torch.float64, device=like.device), []
    for first in range(0, count, step):
        end = min(count, first + step)
        held.rows[end - first :] = 0.0  # as many rows are computed every time
        fill(first, end, held.rows[: end - first])
        added, clipped = held.clipped_sum()
        total += added
        norms.append(clipped[: end - first])
    return total * pitch(clipping_norm, SUM_BITS), torch.cat([total[:0], *norms])


class _Held:
    """Memory for some rows, written again and again: new memory costs more than what fills it."""

    def __init__(self, rows: Tensor, clipping_norm: float) -> None:
        self.rows, self._clip = rows, clipping_norm
        self._wide = torch.empty_like(rows, dtype=torch.float64)
        fits = rows.dtype == torch.float32 and clipping_norm >= _SMALLEST_CLIP_FLOAT32
        self._whole = torch.empty_like(rows, dtype=torch.int32) if fits else None

    def clipped_sum(self) -> tuple[Tensor, Tensor]:
        """The sum in pitches, [P], and the clipped norms; the rows are spoilt."""
        norms = self._wide.copy_(self.rows).norm(dim=1)
        scale, clipped, sound = shrunk(norms, self._clip)
        if self._whole is None:
            factors = scale / pitch(self._clip, SUM_BITS)
            finite = torch.where(sound[:, None], self.rows, 0.0)  # 0 x infinity would be NaN
            self._wide.copy_(finite).mul_(factors[:, None]).trunc_()
        else:
            self._make_whole(self._whole, scale, sound)
            self._wide.copy_(self._whole)
        return self._wide.sum(0), clipped

    def _make_whole(self, whole: Tensor, scale: Tensor, sound: Tensor) -> None:
        """Rows cut to whole numbers of pitches, int32: C and so each value is below 2^31."""
        # what is not scaled needs no margin: times a power of two nothing is rounded
        less = torch.where(scale < 1, scale * _TOWARD_ZERO, scale)
        factors = (less / pitch(self._clip, SUM_BITS)).float()
        # a NaN is some whole number here, until it is multiplied by zero
        whole.copy_(self.rows.mul_(factors[:, None])).mul_(sound.int()[:, None])


def shrunk(norms: Tensor, clipping_norm: float) -> tuple[Tensor, Tensor, Tensor]:
    """Factors that bring rows of these norms within the clip, the norms then, and what is sound.

    A row's norm is finite only if each of its values is; the factor of another one is 0.
    """
    sound = torch.isfinite(norms)
    scale = torch.where(sound, (clipping_norm / norms.clamp(min=1e-300)).clamp(max=1.0), 0.0)
    return scale, torch.where(sound, norms.clamp(max=clipping_norm), 0.0), sound
