"""Changes of images that stand in no library of faults: what cameras, codecs and pipelines do."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.faults.protocol import FaultSetting

Change = Callable[[Tensor, FaultSetting], Tensor]


def _lines(images: Tensor, axis: int) -> Tensor:
    """Numbers of rows or columns, shaped to be broadcast over images."""
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    return torch.arange(images.shape[axis]).view(shape)


def _sampled(images: Tensor, field: Tensor) -> Tensor:
    """Images looked up at [h, w, 2] places in [-1, 1]; what is outside is black."""
    grid = field.expand(len(images), -1, -1, -1)
    return F.grid_sample(images + 1, grid, align_corners=False) - 1


def _places(images: Tensor) -> tuple[Tensor, Tensor]:
    """Horizontal and vertical place of each pixel in [-1, 1]."""
    size = [1, 1, *images.shape[2:]]
    field = F.affine_grid(torch.eye(2, 3)[None], size, align_corners=False)
    return field[..., 0], field[..., 1]


def _moved(images: Tensor, across: Tensor, down: Tensor) -> Tensor:
    return _sampled(images, torch.stack([across, down], -1))


def sheared_rows(images: Tensor, _: FaultSetting) -> Tensor:
    """Whole rows moved by a sine."""
    steps = torch.round(4 * torch.sin(2 * math.pi * torch.arange(images.shape[2]) / 14)).long()
    rows = [images[:, :, i].roll(int(step), -1) for i, step in enumerate(steps)]
    return torch.stack(rows, 2)


def thick(images: Tensor, _: FaultSetting) -> Tensor:
    """Bright strokes spread by a pixel."""
    return F.max_pool2d(images, 3, 1, 1)


def thin(images: Tensor, _: FaultSetting) -> Tensor:
    """Bright strokes eaten away by a pixel."""
    return -F.max_pool2d(-images, 2, 1, 1)[..., : images.shape[2], : images.shape[3]]


def mirrored_half(images: Tensor, _: FaultSetting) -> Tensor:
    """The right half shows the left one in a mirror."""
    return torch.where(_lines(images, 3) < images.shape[3] // 2, images, images.flip(3))


def third_rows(images: Tensor, _: FaultSetting) -> Tensor:
    """Every third row is dark."""
    return torch.where(_lines(images, 2) % 3 == 0, 0.3 * (images + 1) - 1, images)


def black_border(images: Tensor, _: FaultSetting) -> Tensor:
    """The left third is black."""
    return torch.where(_lines(images, 3) < images.shape[3] // 3, -1.0, images)


def moire(images: Tensor, _: FaultSetting) -> Tensor:
    """A faint pattern of slanting stripes."""
    wave = torch.sin(1.7 * _lines(images, 2) + 0.9 * _lines(images, 3))
    return images + 0.4 * wave


def half_loaded(images: Tensor, setting: FaultSetting) -> Tensor:
    """Grey from some row on, each picture its own."""
    side = images.shape[2]
    until = torch.randint(side // 3, side, (len(images), 1, 1, 1), generator=setting.generator())
    return torch.where(_lines(images, 2) < until, images, 0.0)


def smeared(images: Tensor, _: FaultSetting) -> Tensor:
    """From the middle on the last row is repeated."""
    middle = images.shape[2] // 2
    rows = torch.clamp(torch.arange(images.shape[2]), max=middle)
    return images[:, :, rows]


def mosaic(images: Tensor, _: FaultSetting) -> Tensor:
    """Squares of four by four pixels."""
    return F.interpolate(F.avg_pool2d(images, 4), size=list(images.shape[2:]))


def nearest(images: Tensor, _: FaultSetting) -> Tensor:
    """Made smaller and larger again by taking the nearest pixel."""
    small = F.interpolate(images, scale_factor=0.4)
    return F.interpolate(small, size=list(images.shape[2:]))


def _jpeg(quality: int) -> Change:
    def change(images: Tensor, _: FaultSetting) -> Tensor:
        pixels = ((images + 1) * 127.5).round().clamp(0, 255).byte().numpy()
        found = np.stack([[_coded(plane, quality) for plane in one] for one in pixels])
        return torch.from_numpy(found).float() / 127.5 - 1

    return change


def _coded(plane: NDArray[np.uint8], quality: int) -> NDArray[np.uint8]:
    buffer = io.BytesIO()
    Image.fromarray(plane).save(buffer, format="JPEG", quality=quality)
    return np.asarray(Image.open(buffer))


def dead_sensor(images: Tensor, _: FaultSetting) -> Tensor:
    """The same pixels white in every picture."""
    drawn = torch.rand(images.shape[2:], generator=torch.Generator().manual_seed(3))
    return torch.where(drawn < 0.04, 1.0, images)


def dead_quarter(images: Tensor, _: FaultSetting) -> Tensor:
    """The upper right quarter is black."""
    upper = _lines(images, 2) < images.shape[2] // 2
    right = _lines(images, 3) >= images.shape[3] // 2
    return torch.where(upper & right, -1.0, images)


def double_border(images: Tensor, _: FaultSetting) -> Tensor:
    """Two thin white frames."""
    rows, columns = _lines(images, 2), _lines(images, 3)
    height, width = images.shape[2:]
    depth = torch.minimum(torch.minimum(rows, height - 1 - rows), columns)
    depth = torch.minimum(depth, width - 1 - columns)
    return torch.where((depth == 1) | (depth == 4), 1.0, images)


def vignette(images: Tensor, _: FaultSetting) -> Tensor:
    """Darker towards the corners."""
    across, down = _places(images)
    return (images + 1) * (1 - 0.9 * (across**2 + down**2)).clamp(min=0) - 1


def ramp(images: Tensor, _: FaultSetting) -> Tensor:
    """Light from the right."""
    across, _down = _places(images)
    return images + 0.5 * (across + 1)


def barrel(images: Tensor, _: FaultSetting) -> Tensor:
    """Seen through a lens."""
    across, down = _places(images)
    radius = across**2 + down**2
    return _moved(images, across * (0.7 + 0.5 * radius), down * (0.7 + 0.5 * radius))


def swirl(images: Tensor, _: FaultSetting) -> Tensor:
    """Turned, and the more so the nearer to the middle."""
    across, down = _places(images)
    angle = 1.2 * torch.exp(-3 * (across**2 + down**2))
    sine, cosine = torch.sin(angle), torch.cos(angle)
    return _moved(images, cosine * across - sine * down, sine * across + cosine * down)


def perspective(images: Tensor, _: FaultSetting) -> Tensor:
    """Seen from below: narrow above, wide below."""
    across, down = _places(images)
    return _moved(images, across * (1.4 - 0.5 * (down + 1)), down)


def slanted(images: Tensor, _: FaultSetting) -> Tensor:
    """Sheared to the side."""
    across, down = _places(images)
    return _moved(images, across + 0.5 * down, down)


def stretched(images: Tensor, _: FaultSetting) -> Tensor:
    """Wider by half, lower by a quarter."""
    across, down = _places(images)
    return _moved(images, across / 1.5, down / 0.75)


def swapped_halves(images: Tensor, _: FaultSetting) -> Tensor:
    """The halves exchanged, as of a wrong offset."""
    return images.roll(images.shape[3] // 2, 3)


def interlaced(images: Tensor, _: FaultSetting) -> Tensor:
    """Every other row from another moment, moved aside."""
    return torch.where(_lines(images, 2) % 2 == 0, images, images.roll(4, 3))


def solarised(images: Tensor, _: FaultSetting) -> Tensor:
    """What is bright turned dark, as where a number overflows."""
    return torch.where(images > 0, -images, images)


def edges(images: Tensor, _: FaultSetting) -> Tensor:
    """Outlines alone."""
    spread = F.max_pool2d(images, 3, 1, 1) + F.max_pool2d(-images, 3, 1, 1)
    return spread - 1


def mixed(images: Tensor, _: FaultSetting) -> Tensor:
    """Two pictures of one user laid over each other."""
    return torch.maximum(images, images.roll(1, 0))


def time_stamp(images: Tensor, _: FaultSetting) -> Tensor:
    """A bright box in a corner."""
    low = _lines(images, 2) >= images.shape[2] - 6
    right = _lines(images, 3) >= images.shape[3] - 12
    return torch.where(low & right, 0.6, images)


def scratch(images: Tensor, _: FaultSetting) -> Tensor:
    """A white line across."""
    apart = (_lines(images, 2) + _lines(images, 3) - images.shape[2] + 3).abs()
    return torch.where(apart <= 1, 0.8, images)


def veil(images: Tensor, _: FaultSetting) -> Tensor:
    """Black is grey."""
    return 0.65 * images + 0.35


def motion(images: Tensor, _: FaultSetting) -> Tensor:
    """Smeared sideways."""
    return F.avg_pool2d(images + 1, (1, 7), 1, (0, 3)) - 1


def jigsaw(images: Tensor, _: FaultSetting) -> Tensor:
    """The quarters exchanged across."""
    return images.roll((images.shape[2] // 2, images.shape[3] // 2), (2, 3))


def corner(images: Tensor, _: FaultSetting) -> Tensor:
    """The upper left part made as large as the whole."""
    across, down = _places(images)
    return _moved(images, across * 0.75 - 0.25, down * 0.75 - 0.25)


def half_inverted(images: Tensor, _: FaultSetting) -> Tensor:
    """Bright and dark exchanged in the right half."""
    return torch.where(_lines(images, 3) < images.shape[3] // 2, images, -images)


def chessboard(images: Tensor, _: FaultSetting) -> Tensor:
    """Bright and dark exchanged in every other square."""
    odd = (_lines(images, 2) // 7 + _lines(images, 3) // 7) % 2
    return torch.where(odd == 1, -images, images)


def turned_and_dim(images: Tensor, _: FaultSetting) -> Tensor:
    """Two faults of the library one after the other."""
    return (torch.rot90(images, 1, (2, 3)) + 1) * 0.4 - 1


def hard_contrast(images: Tensor, _: FaultSetting) -> Tensor:
    """Contrast so strong that greys are lost, after a blur."""
    return ((F.avg_pool2d(images + 1, 3, 1, 1) - 0.6) * 6).clamp(0, 2) - 1


def drifting(images: Tensor, setting: FaultSetting) -> Tensor:
    """Each picture moved its own way."""
    source = setting.generator()
    steps = torch.randint(-5, 6, (len(images), 2), generator=source).tolist()
    moved = [
        one.roll((down, across), (1, 2)) for one, (down, across) in zip(images, steps, strict=True)
    ]
    return torch.stack(moved) if moved else images


CHANGES: Mapping[str, Change] = {
    "sheared rows": sheared_rows,
    "thick strokes": thick,
    "mirrored half": mirrored_half,
    "dark third rows": third_rows,
    "black border": black_border,
    "moire": moire,
    "thin strokes": thin,
    "half loaded": half_loaded,
    "smeared": smeared,
    "mosaic": mosaic,
    "nearest pixel": nearest,
    "JPEG 10": _jpeg(10),
    "JPEG 2": _jpeg(2),
    "dead sensor": dead_sensor,
    "dead quarter": dead_quarter,
    "double border": double_border,
    "vignette": vignette,
    "ramp of light": ramp,
    "barrel": barrel,
    "swirl": swirl,
    "perspective": perspective,
    "slant": slanted,
    "stretched": stretched,
    "swapped halves": swapped_halves,
    "interlaced": interlaced,
    "solarised": solarised,
    "edges": edges,
    "mixed pictures": mixed,
    "time stamp": time_stamp,
    "scratch": scratch,
    "grey veil": veil,
    "motion": motion,
    "jigsaw": jigsaw,
    "corner": corner,
    "half inverted": half_inverted,
    "chessboard": chessboard,
    "turned and dim": turned_and_dim,
    "hard contrast": hard_contrast,
    "drifting": drifting,
}
"""By name; of the images, in all classes."""
