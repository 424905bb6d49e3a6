"""Networks that judge samples: trained on real images, for measuring in simulations alone.

None of them takes part in training a generator, an annotator or a student. They are trained once
for a data set, on its training images, and kept in the study's folder.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.data.registry import Dataset
from fedlens.foundation.files import write_durably
from fedlens.models.shapes import ImageShape, from_pixels
from fedlens.models.weights import initialise, unset_weights
from fedlens.simulations.students.students import EVALUATION_CHUNK, fit_classifier

SEED = 77


class JudgeNet(nn.Module):
    """Two convolutions with max pooling, then 120 and 84 units (after LeCun et al. 1998)."""

    features = 84  # Units of the penultimate layer

    def __init__(self, shape: ImageShape, classes: int, generator: torch.Generator) -> None:
        super().__init__()
        side = (shape[1] // 2 - 4) // 2
        with unset_weights():
            self.conv1 = nn.Conv2d(shape[0], 6, 5, padding=2)
            self.conv2 = nn.Conv2d(6, 16, 5)
            self.dense1 = nn.Linear(16 * side * side, 120)
            self.dense2 = nn.Linear(120, self.features)
            self.head = nn.Linear(self.features, classes)
        initialise(self, generator, "relu")

    def penultimate(self, images: Tensor) -> Tensor:
        """Features float32 [n, 84] of images [n, c, h, w] in [-1, 1]."""
        maps = F.max_pool2d(F.relu(self.conv1(images)), 2)
        maps = F.max_pool2d(F.relu(self.conv2(maps)), 2)
        return F.relu(self.dense2(F.relu(self.dense1(maps.flatten(1)))))

    def forward(self, images: Tensor) -> Tensor:
        """Logits float32 [n, classes]."""
        logits: Tensor = self.head(self.penultimate(images))
        return logits


@torch.no_grad()
def features_of(network: JudgeNet, images: Tensor) -> Tensor:
    """Penultimate features float32 [n, 84], computed in parts."""
    return torch.cat([network.penultimate(part) for part in torch.split(images, EVALUATION_CHUNK)])


def recogniser(dataset: Dataset, folder: Path, epochs: int) -> JudgeNet:
    """The network that says which class an image shows, trained on the real training images."""

    def train(network: JudgeNet, generator: torch.Generator) -> None:
        images, labels = training_tensors(dataset)
        fit_classifier(network, images, labels, epochs=epochs, generator=generator)

    return _kept(folder, f"recogniser-{epochs}", dataset, dataset.classes, train)


def orientation_judge(dataset: Dataset, folder: Path, epochs: int) -> JudgeNet:
    """The network that says whether an image is upright (0) or rotated by 90 degrees (1)."""

    def train(network: JudgeNet, generator: torch.Generator) -> None:
        images, _ = training_tensors(dataset)
        turned = torch.rand(len(images), generator=generator) < 0.5
        images[turned] = rotated(images[turned])
        fit_classifier(network, images, turned.long(), epochs=epochs, generator=generator)

    return _kept(folder, f"orientation-{epochs}", dataset, 2, train)


def rotated(images: Tensor) -> Tensor:
    """Images [n, c, h, w] turned by 90 degrees, counter-clockwise."""
    return torch.rot90(images, 1, (2, 3))


def training_tensors(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """The real training images, float32 in [-1, 1], and their labels."""
    return from_pixels(dataset.train_images), torch.from_numpy(dataset.train_labels.copy())


def test_tensors(dataset: Dataset) -> tuple[Tensor, Tensor]:
    """The real test images, float32 in [-1, 1], and their labels. For measuring only."""
    return from_pixels(dataset.test_images), torch.from_numpy(dataset.test_labels.copy())


def _kept(
    folder: Path,
    kind: str,
    dataset: Dataset,
    classes: int,
    train: Callable[[JudgeNet, torch.Generator], None],
) -> JudgeNet:
    """A network from its file, or trained and written there; one process at a time."""
    generator = torch.Generator().manual_seed(SEED)
    network = JudgeNet(dataset.shape, classes, generator)
    path = folder / f"{dataset.name.replace(':', '-')}-{dataset.digest[:12]}-{kind}.safetensors"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(path.with_suffix(".lock")):
        if not path.is_file():
            train(network, generator)
            state = {name: value.contiguous() for name, value in network.state_dict().items()}
            write_durably(path, save(state))
    network.load_state_dict(load_file(path))
    return network.eval()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
