"""The annotator: a softmax on fixed features, small enough for few noisy rounds to train.

Features of real images are only ever *framed* (centred, scaled, turned to few components) by
statistics of synthetic images, so nothing but the weight is learned from real ones. Framing moves
what tells images apart into few coordinates, where a bounded sum of gradients finds it.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.orientations import OrientationFeatures
from fedlens.models.principal import principal
from fedlens.models.scattering import ScatteringFeatures
from fedlens.models.shapes import ImageShape, check_classes, check_shape

FEATURES: dict[str, type[ScatteringFeatures] | type[OrientationFeatures]] = {
    "scattering": ScatteringFeatures,
    "orientations": OrientationFeatures,
}
"""What images are turned into: all fixed, hand-made, and told nothing by data."""
CONSTANT = 0.287
"""Last coordinate of every row; it carries the classes' offsets inside the same bounded row."""
FARTHEST = 4.0
"""Standardised features are cut off here: what is rare in synthetic images counts no more."""
RIDGE = 0.1
"""Share of the mean spread that is added to each before it is divided by."""
ROUNDING_SLACK = 1e-6
"""Rows are shortened by this share, so that float32 rounding never lifts one over norm 1."""
LEAST_SPREAD = 1e-3
"""No feature's spread is divided by that is smaller: images may all be the same."""
LEAST_NORM = 1e-6
"""Nor any row by a norm that is smaller."""


class Annotator(nn.Module):
    """Class scores of images, linear in framed features; all its state travels as one vector.

    Formal guarantees: ``rows`` have L2 norm at most 1 (with a margin above float32 rounding) and a
    constant last coordinate, whatever the images, so that a record's gradient of the cross-entropy
    with respect to ``weight`` has norm at most √2; a row depends on its own image and the frame
    alone; ``rows`` and ``forward`` are differentiable in the images.

    Args:
        shape: (channels, height, width) of an image.
        classes: number of classes.
        components: coordinates that framed features keep, at most the features' number.
        features: one of `FEATURES`.

    Raises:
        ShapeError: on a shape or number of classes that is not supported.
        ValueError: ``components`` is below 1 or above the number of features, or no such features.
    """

    center: Tensor
    scale: Tensor
    projection: Tensor
    weight: Tensor

    def __init__(
        self, shape: ImageShape, classes: int, components: int, features: str = "scattering"
    ) -> None:
        super().__init__()
        self.shape, self.classes = check_shape(shape), check_classes(classes)
        if features not in FEATURES:
            raise ValueError(f"features={features!r} must be one of {', '.join(FEATURES)}")
        self.features = FEATURES[features](self.shape)
        dim = self.features.dim
        if not 1 <= components <= dim:
            raise ValueError(f"components={components} must lie between 1 and {dim}, the features")
        self.components = components
        self.register_buffer("center", torch.zeros(dim))
        self.register_buffer("scale", torch.ones(dim))
        self.register_buffer("projection", torch.zeros(dim, components))
        self.register_buffer("weight", torch.zeros(self.classes, components + 1))

    @torch.no_grad()
    def fit_frame(self, images: Tensor, decorrelation: float) -> None:
        """Take the frame from synthetic images, at least two of them.

        Features are centred and divided by (deviation + a tenth of the overall one), then turned
        to their leading principal components; component i, of variance v_i, is divided by
        (v_i + a tenth of the kept variances' mean)^(p/2) with p = ``decorrelation``: 0 leaves
        variances as they are, 1 nearly equals them out.

        Args:
            images: float32 [n, c, h, w] in [-1, 1]. *Synthetic*: this is no private computation.
            decorrelation: p, 0 or above.

        Raises:
            ValueError: fewer than two images, or a negative or infinite p.
        """
        if len(images) < 2:
            raise ValueError(f"a frame needs 2 synthetic images or more, not {len(images)}")
        if not 0 <= decorrelation < math.inf:
            raise ValueError(f"decorrelation={decorrelation} must be a number from 0 on")
        features = self.features(images.to(self.center.device))
        deviation = features.std(0) + RIDGE * features.std()
        self.center.copy_(features.mean(0))
        self.scale.copy_(1 / deviation.clamp(min=LEAST_SPREAD))
        framed = self._standardised(features)
        kept, directions = principal(framed, self.components)
        spread = (kept + RIDGE * kept.mean()).clamp(min=LEAST_NORM)
        self.projection.copy_(directions / spread ** (decorrelation / 2))

    def rows(self, images: Tensor) -> Tensor:
        """Framed features, float32 [n, components + 1], of images [n, c, h, w] in [-1, 1]."""
        return self.framed(self.features(images))

    def framed(self, features: Tensor) -> Tensor:
        """The same of features that are there already, float32 [n, dim]."""
        turned = self._standardised(features) @ self.projection
        turned = torch.nan_to_num(turned)
        longest = math.sqrt(1 - CONSTANT**2) * (1 - ROUNDING_SLACK)
        norms = turned.norm(dim=1, keepdim=True).clamp(min=LEAST_NORM)
        return F.pad(turned * (longest / norms), (0, 1), value=CONSTANT)

    def forward(self, images: Tensor) -> Tensor:
        """Logits float32 [n, classes] of images [n, c, h, w] in [-1, 1]."""
        return self.rows(images) @ self.weight.mT

    def frame_digest(self) -> str:
        """SHA-256 (hex) of the frame: rows of equal digests and equal images are equal."""
        digest = hashlib.sha256()
        for part in (self.center, self.scale, self.projection):
            digest.update(part.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def _standardised(self, features: Tensor) -> Tensor:
        return ((features - self.center) * self.scale).clamp(-FARTHEST, FARTHEST)
