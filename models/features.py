"""A critic with frozen features: what users release is one class-mean embedding, once.

With the features fixed and public, the best critic linear on them depends on the real data only
through the mean feature vector of each class. That mean is released once, clipped and noised;
training the generator towards it (a kernel two-sample distance, i.e. a Wasserstein critic cut
down to its last layer) is post-processing.

Random cosines approximate a Gaussian kernel: Rahimi & Recht, "Random Features for Large-Scale
Kernel Machines" (NeurIPS 2007), algorithm 1. Here one bank sees the whole image and two see
square patches at every position of a grid, which keeps strokes and their places apart. Of pictures
of 56 pixels or more the first sees a smaller copy, and grids are as much coarser.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.shapes import FixedFeatures, ImageShape, check_shape, smaller

MOST_VALUES = 8_000_000
"""Values of rows that are computed at once, so that large images take no more memory than small."""
ROUNDING_SLACK = 1e-6
"""Rows are shortened by this share, so that float32 rounding never lifts one over norm 1."""


class PatchFeatures(FixedFeatures):
    """Frozen random features at three scales; every row has L2 norm at most 1.

    ``dim`` is 6,433 for 28 x 28 and 7,873 for 32 x 32 images by default: 2 x ``global_waves``
    + ``small_waves`` x places of a 9 x 9 window (stride 3) + ``large_waves`` x places of a
    15 x 15 window (stride 4) + 1. With images that are seen n times smaller (`shrinking`) strides
    are n times as long; where n is 4, windows lie on a copy of half the size. There are no trained
    parameters.

    Formal guarantees: each output row has L2 norm at most 1 (clamped, with a margin above
    float32 rounding); its last coordinate is exactly ``mass``, so class masses are released
    inside the same clipped vector; two instances with the same arguments are equal. The norm
    bound is what makes the sensitivity of a sum of rows 1 per record.

    Args:
        shape: (channels, height, width) of an image.
        seed: public integer that fixes the random waves; client and server must agree on it.
        global_waves: frequencies over the whole image (a cosine and a sine each).
        small_waves: cosines per place of the 9 x 9 window.
        large_waves: cosines per place of the 15 x 15 window.
        mass: the constant coordinate, in (0, 1).
        chunk: images held in memory at once, at most; fewer where they are large.

    Raises:
        ShapeError: on an image shape that is not supported.
        ValueError: when ``mass`` is not in (0, 1) or a count is below 1.
    """

    global_weight: Tensor
    small_weight: Tensor
    small_phase: Tensor
    large_weight: Tensor
    large_phase: Tensor

    def __init__(
        self,
        shape: ImageShape,
        seed: int,
        *,
        global_waves: int = 768,
        small_waves: int = 32,
        large_waves: int = 64,
        mass: float = 0.3,
        chunk: int = 1000,
    ) -> None:
        super().__init__()
        self.shape = check_shape(shape)
        if not 0.0 < mass < 1.0:
            raise ValueError(f"mass={mass} must lie strictly between 0 and 1")
        if min(global_waves, small_waves, large_waves, chunk) < 1:
            raise ValueError("global_waves, small_waves, large_waves and chunk must be at least 1")
        self.mass = mass
        source = torch.Generator().manual_seed(seed)
        channels, height, width = self.shape
        pixels = channels * (height // self.shrink) * (width // self.shrink)
        self._buffer("global_weight", (pixels, global_waves), 5.0, source)
        self._buffer("small_weight", (small_waves, channels, 9, 9), 2.5, source)
        self._buffer("large_weight", (large_waves, channels, 15, 15), 3.5, source)
        for name, waves in (("small_phase", small_waves), ("large_phase", large_waves)):
            self.register_buffer(name, 2 * math.pi * torch.rand(waves, generator=source))
        self.halved = 2 if self.shrink == 4 else 1
        side, self.coarser = height // self.halved, self.shrink // self.halved
        places = ((side - 3) // (3 * self.coarser) + 1) ** 2 * small_waves
        places += ((side - 7) // (4 * self.coarser) + 1) ** 2 * large_waves
        self.dim = 2 * global_waves + places + 1
        self.chunk = max(1, min(chunk, MOST_VALUES // self.dim))

    def _buffer(
        self, name: str, size: tuple[int, ...], scale: float, source: torch.Generator
    ) -> None:
        """Register normal frequencies; the kernel's width is ``scale``, whatever the channels."""
        waves = torch.randn(size, generator=source) / (scale * math.sqrt(self.shape[0]))
        self.register_buffer(name, waves)

    def _rows(self, images: Tensor) -> Tensor:
        pixels = (images + 1) / 2
        whole = smaller(pixels, self.shrink).flatten(1) @ self.global_weight
        near, far = 3 * self.coarser, 4 * self.coarser
        pixels = smaller(pixels, self.halved)
        small = _angles(pixels, self.small_weight, self.small_phase, stride=near, padding=3)
        large = _angles(pixels, self.large_weight, self.large_phase, stride=far, padding=4)
        longest = math.sqrt(1 - self.mass**2) * (1 - ROUNDING_SLACK)
        # products may be less precise than what they are made of
        banks = (angles.to(images.dtype) for angles in (whole, small, large))
        rows: Tensor = _BoundedCosines.apply(*banks, longest, self.mass)  # type: ignore[no-untyped-call]
        return rows


class _BoundedCosines(torch.autograd.Function):
    """Rows of cosines, cut to a norm and with a constant after them, from arguments of three banks.

    The gradient is written out: autograd's own writes and reads a batch's rows, megabytes each,
    about three times as often.
    """

    @staticmethod
    def forward(
        ctx: Any, whole: Tensor, small: Tensor, large: Tensor, longest: float, mass: float
    ) -> Tensor:
        """[n, 2 x whole + small + large + 1] of arguments [n, whole], [n, small], [n, large]."""
        sizes = [whole.shape[1], whole.shape[1], small.shape[1], large.shape[1]]
        rows = whole.new_empty(len(whole), sum(sizes) + 1)
        waves = rows[:, :-1]
        cosines, sines, near, wide = torch.split(waves, sizes, 1)
        # each bank's norm is about 1 in expectation; the sines are the first bank a quarter on
        for wave, angle, part, count in (
            (torch.cos, whole, cosines, 2 * sizes[0]),
            (torch.sin, whole, sines, 2 * sizes[0]),
            (torch.cos, small, near, sizes[2]),
            (torch.cos, large, wide, sizes[3]),
        ):
            wave(angle, out=part)
            part.mul_(_scale(count))
        norms = waves.norm(dim=1, keepdim=True)
        factors = longest / norms.clamp(min=1.0)
        waves.mul_(factors)
        rows[:, -1] = mass
        ctx.save_for_backward(small, large, rows, norms, factors)
        ctx.sizes, ctx.longest = sizes, longest
        return rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        small, large, rows, norms, factors = ctx.saved_tensors
        waves, along = rows[:, :-1], gradients[0][:, :-1]
        # what lengthens a row that is cut changes nothing
        inward = torch.bmm(along[:, None], waves[:, :, None])[:, 0] / ctx.longest**2
        inward.masked_fill_(norms < 1, 0.0)
        across = torch.addcmul(along, waves, inward, value=-1)
        cosines, sines, _, _ = torch.split(waves, ctx.sizes, 1)
        to_cosines, to_sines, to_near, to_wide = torch.split(across, ctx.sizes, 1)
        to_whole = (to_sines * cosines).addcmul_(to_cosines, sines, value=-1)
        to_angles = [
            angle.sin().mul_(towards).mul_(factors * -_scale(angle.shape[1]))
            for angle, towards in ((small, to_near), (large, to_wide))
        ]
        return to_whole, *to_angles, None, None


def _scale(count: int) -> float:
    """Of a bank of ``count`` waves: its mean square is then a third."""
    return math.sqrt(2 / (3 * count))


def _angles(pixels: Tensor, weight: Tensor, phase: Tensor, *, stride: int, padding: int) -> Tensor:
    """Arguments of every patch's random cosines, [n, waves x places].

    A strided convolution, computed as one of stride 1 on blocks of pixels turned into channels:
    on a CPU the gradient of the former, with one input channel, takes several times as long.
    """
    side, height = weight.shape[-1], pixels.shape[-1]
    whole = -(-side // stride) * stride
    places = (height + 2 * padding - side) // stride + 1
    after = stride * (places - 1) + whole - height - padding
    image = F.pad(pixels, (padding, after, padding, after))
    window = F.pad(weight, (0, whole - side, 0, whole - side))
    blocks, waves = F.pixel_unshuffle(image, stride), F.pixel_unshuffle(window, stride)
    return F.conv2d(blocks, waves, phase).flatten(1)
