"""The work that all of them do: critics, users' records, generated images, a user's plain steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from fedlens.client.tasks.wgan_networks import FAKES_PER_CLASS, draw_fakes
from fedlens.client.users.protocol import ArrayUsers
from fedlens.data.embedded import load_embedded
from fedlens.models.critics import WganCritic
from fedlens.models.generators import Generator
from fedlens.models.limits import clamp_weights, weight_limits

SHAPE, CLASSES, RECORDS = (1, 28, 28), 10, 20
BATCH, STEPS, RATE, LIMIT, CLIP, NOISE = 10, 4, 0.05, 2.0, 0.3, 4.0
GENERATOR_WIDTH, LATENT = 8, 64
"""Of the generator: small, since drawing what the steps are taken against is not what is timed."""


@dataclass(frozen=True)
class Size:
    """Of a critic."""

    width: int
    hidden: int

    def critic(self) -> WganCritic:
        """At its first weights, within their limits."""
        critic = WganCritic(SHAPE, CLASSES, self.width, self.hidden)
        clamp_weights(critic, weight_limits(critic, LIMIT))
        return critic

    @property
    def parameters(self) -> int:
        """How many."""
        return len(parameters_to_vector(self.critic().parameters()))


SIZES = {"small": Size(8, 32), "large": Size(20, 64)}


def generator() -> Generator:
    """What the generated images are of."""
    return Generator(SHAPE, CLASSES, GENERATOR_WIDTH, LATENT)


@lru_cache(maxsize=1)
def pool() -> Tensor:
    """Generated images [classes, per class, ...], drawn once by peers: ours draws in each round."""
    return draw_fakes(generator().eval(), FAKES_PER_CLASS, 1)


@lru_cache(maxsize=2)
def people(count: int) -> ArrayUsers:
    """Users of `RECORDS` digits each, as many as wanted: they share 10,000 images."""
    data = load_embedded()
    source = np.random.default_rng(1)
    indices = source.integers(len(data.train_labels), size=count * RECORDS)
    offsets = np.arange(count + 1) * RECORDS
    return ArrayUsers(
        data.train_images, data.train_labels, indices, offsets, SHAPE, CLASSES, partition=0
    )


def plain_steps(critic: WganCritic, images: Tensor, labels: Tensor, seed: int) -> None:
    """A user's local steps as anyone would write them, in place."""
    source = np.random.default_rng(seed)
    optimiser = torch.optim.SGD(critic.parameters(), lr=RATE)
    limits = weight_limits(critic, LIMIT)
    for _ in range(STEPS * BATCH // len(labels)):
        for batch in torch.split(torch.from_numpy(source.permutation(len(labels))), BATCH):
            optimiser.zero_grad()
            critic_loss(critic, images[batch], labels[batch], source).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            clamp_weights(critic, limits)


def critic_loss(
    critic: WganCritic, real: Tensor, labels: Tensor, source: np.random.Generator
) -> Tensor:
    """The Wasserstein loss of real images against generated ones of the same classes."""
    places = torch.from_numpy(source.integers(FAKES_PER_CLASS, size=len(labels)))
    fakes = pool().to(real.device)[labels, places.to(labels.device)]
    scores: Tensor = critic(torch.cat([real, fakes]), torch.cat([labels, labels]))
    return scores[len(labels) :].mean() - scores[: len(labels)].mean()
