"""The convolutional critic's networks, losses and generated images, as both units use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import vector_to_parameters

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.settings import WganSettings
from fedlens.client.users.protocol import LocalUsers
from fedlens.models import devices
from fedlens.models.critics import WganCritic
from fedlens.models.generators import Generator
from fedlens.models.weights import load_vector

FAKES_PER_CLASS = 25


@dataclass(frozen=True)
class CriticLoss:
    """What a critic minimises the mean of: an image's loss by its score, real and generated.

    Only the former is private.
    """

    real: Callable[[Tensor], Tensor]
    fake: Callable[[Tensor], Tensor]


LOSSES = {
    "wasserstein": CriticLoss(torch.neg, lambda fake: fake),
    "hinge": CriticLoss(lambda real: F.relu(1 - real), lambda fake: F.relu(1 + fake)),
}


def load_networks(users: LocalUsers, request: TrainRequest) -> tuple[WganCritic, Generator]:
    """The global critic and generator as the request carries them, on the node's device."""
    settings, device = WganSettings.model_validate(request.settings), devices.best_device()
    critic = WganCritic(users.shape, users.classes, settings.width, settings.hidden)
    vector_to_parameters(torch.from_numpy(request.weights["critic"].copy()), critic.parameters())
    generator = Generator(
        users.shape, users.classes, settings.generator_width, settings.generator_latent
    )
    load_vector(generator, request.weights["generator"])
    return critic.to(device), generator.to(device)


@torch.no_grad()
def draw_fakes(generator: Generator, per_class: int, seed: int) -> Tensor:
    """Generated images [classes, per_class, c, h, w] from noise of ``seed``."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.arange(generator.classes).repeat_interleave(per_class)
    noise = torch.randn(len(labels), generator.latent, generator=source)
    device = next(generator.parameters()).device
    images: Tensor = generator(noise.to(device), labels.to(device))
    return images.view(generator.classes, per_class, *images.shape[1:])


def class_slopes(critic: WganCritic, fakes: Tensor, loss: CriticLoss) -> Tensor:
    """The gradient of the loss on generated images, class by class, float32 [classes, P].

    Public: no record enters.

    Args:
        critic: at the global weights.
        fakes: [classes, per_class, c, h, w], of `draw_fakes`.
        loss: what the critic minimises.
    """
    rows = []
    for label, images in enumerate(fakes):
        scores = critic(images, torch.full((len(images),), label, device=images.device))
        slopes = torch.autograd.grad(loss.fake(scores).mean(), list(critic.parameters()))
        rows.append(torch.cat([slope.reshape(-1) for slope in slopes]))
    return torch.stack(rows)
