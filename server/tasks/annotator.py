"""The private annotator on the server: federated softmax regression, then post-processing.

Its frame is taken from synthetic images before its first round, so that only its weight meets
gradients of real records. After its rounds it guides the generator, filters samples and labels
images.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from models.annotators import Annotator
from models.shapes import ImageShape
from models.vectors import load_vector, to_vector
from server.config.tree import Config
from server.tensors import Arrays


class AnnotatorTrainer:
    """An annotator's weight over its rounds, and the mean of its last iterates.

    A release has shape [classes x (components + 1)], flattened row by row: the noised mean of the
    users' (or records') updates, each minus the gradient of a mean cross-entropy with respect to
    the weight. The server adds ``rate`` x the release, smoothed by momentum.

    Raises:
        ValueError: ``annotator.components`` is above the number of features of such images.
    """

    def __init__(self, config: Config, shape: ImageShape, classes: int) -> None:
        self._settings = config.annotator
        components, features = config.annotator.components, config.annotator.features
        self._iterate = Annotator(shape, classes, components, features)
        self._mean = Annotator(shape, classes, components, features)
        self.size = self._iterate.weight.numel()
        self._velocity = torch.zeros_like(self._iterate.weight)
        self._begun = False
        self._applied = 0

    @property
    def begun(self) -> bool:
        """Whether there is a frame."""
        return self._begun

    @property
    def ready(self) -> bool:
        """Whether the annotator has learned from at least one release."""
        return self._applied > 0

    @property
    def network(self) -> Annotator:
        """The annotator with the mean weight of the last quarter of the planned rounds.

        Where fewer releases came, the last iterate stands in. It shares no state with `weights`.
        """
        return self._mean

    def begin(self, images: Tensor) -> None:
        """Take the frame from *synthetic* images [n, c, h, w]; once in a run.

        Raises:
            ValueError: there is a frame already, or fewer than two images.
        """
        if self._begun:
            raise ValueError("the annotator's frame is taken once, before its first round")
        self._iterate.fit_frame(images, self._settings.decorrelation)
        load_vector(self._mean, to_vector(self._iterate))
        self._begun = True

    def weights(self) -> NDArray[np.float32]:
        """The whole annotator, frame and present iterate, float32 [n]: what nodes start from."""
        return to_vector(self._iterate)

    def apply_release(self, release: NDArray[np.float64]) -> None:
        """Step along a noised mean update, float64 [size].

        Raises:
            ValueError: there is no frame yet, or the release has another shape.
        """
        if not self._begun:
            raise ValueError("the annotator has no frame yet: call begin(images) first")
        if release.shape != (self.size,):
            raise ValueError(f"a release of shape {release.shape}, expected ({self.size},)")
        update = torch.from_numpy(release.astype(np.float32)).view_as(self._velocity)
        self._velocity.mul_(self._settings.momentum).add_(update)
        self._iterate.weight.add_(self._velocity, alpha=self._settings.rate)
        self._applied += 1
        self._follow()

    def _follow(self) -> None:
        """Count an iterate of the last quarter in; before that, the mean is the last iterate."""
        counted = max(1, self._applied - 3 * self._settings.rounds // 4)
        self._mean.weight.lerp_(self._iterate.weight, 1 / counted)

    def loss(self, images: Tensor, labels: Tensor) -> Tensor:
        """Cross-entropy of requested classes, by sharpened logits; differentiable in the images."""
        return F.cross_entropy(self._mean(images) * self._settings.sharpness, labels)

    def state(self) -> Arrays:
        """All that `restore` needs to go on bit for bit."""
        return {
            "iterate": to_vector(self._iterate),
            "mean": self._mean.weight.numpy().copy(),
            "velocity": self._velocity.numpy().copy(),
            "begun": np.array(self._begun),
            "applied": np.array(self._applied),
        }

    def restore(self, state: Arrays) -> None:
        """Take up a state."""
        vector = state["iterate"].astype(np.float32)
        load_vector(self._iterate, vector)
        load_vector(self._mean, vector)
        self._mean.weight.copy_(torch.from_numpy(state["mean"].astype(np.float32)))
        self._velocity.copy_(torch.from_numpy(state["velocity"].astype(np.float32)))
        self._begun = bool(state["begun"])
        self._applied = int(state["applied"])
