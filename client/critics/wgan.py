"""The convolutional WGAN critic on a node: local steps of all drawn users at once.

Paper: Triastcyn & Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy
Guarantees" (arXiv:2003.00997), section 4.4: federated training of the critic with user-level
accounting. Each user starts from the global critic, takes local steps against generated images of
the same classes, and yields the difference of the weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from client.data import LocalData, LocalUsers
from client.records import TrainRequest
from models.critics import WganCritic
from models.generators import Generator
from models.limits import weight_limits
from models.vectors import load_vector

Parameters = dict[str, Tensor]
FAKES_PER_CLASS = 25


def _wasserstein(real: Tensor, fake: Tensor) -> Tensor:
    return fake.mean() - real.mean()


def _hinge(real: Tensor, fake: Tensor) -> Tensor:
    return F.relu(1 - real).mean() + F.relu(1 + fake).mean()


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "wasserstein": _wasserstein,
    "hinge": _hinge,
}


def load_networks(users: LocalUsers, request: TrainRequest) -> tuple[WganCritic, Generator]:
    """The global critic and generator as the request carries them, on the node's device."""
    settings, device = request.settings, node_device()
    critic = WganCritic(users.shape, users.classes, int(settings["width"]), int(settings["hidden"]))
    vector_to_parameters(torch.from_numpy(request.weights["critic"].copy()), critic.parameters())
    generator = Generator(
        users.shape,
        users.classes,
        int(settings["generator_width"]),
        int(settings["generator_latent"]),
    )
    load_vector(generator, request.weights["generator"])
    return critic.to(device), generator.to(device)


def node_device() -> torch.device:
    """The node's GPU where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@torch.no_grad()
def draw_fakes(generator: Generator, per_class: int, seed: int) -> Tensor:
    """Generated images [classes, per_class, c, h, w] from noise of ``seed``."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.arange(generator.classes).repeat_interleave(per_class)
    noise = torch.randn(len(labels), generator.latent, generator=source)
    device = next(generator.parameters()).device
    images: Tensor = generator(noise.to(device), labels.to(device))
    return images.view(generator.classes, per_class, *images.shape[1:])


class WganLocalCritic:
    """Updates are differences of the flattened critic, in the order of its parameters."""

    chunk = 16

    def __init__(self, users: LocalUsers, request: TrainRequest) -> None:
        settings = request.settings
        self._critic, generator = load_networks(users, request)
        self._fakes = draw_fakes(generator, FAKES_PER_CLASS, request.seed)
        self._batch = int(settings["local_batch"])
        self._steps = int(settings["local_steps"])
        self._rate = float(settings["local_rate"])
        self._limits = weight_limits(self._critic, float(settings["weight_limit"]))
        self._score = LOSSES[str(settings["loss"])]
        self._start = {k: p.detach() for k, p in self._critic.named_parameters()}
        self._empty = torch.zeros_like(parameters_to_vector(self._critic.parameters())).detach()

    def updates(self, cohort: Sequence[LocalData], seeds: Sequence[int]) -> Tensor:
        """Each user's update; a user without records contributes zeros."""
        rows = self._empty.repeat(len(cohort), 1)
        held = [i for i, data in enumerate(cohort) if len(data.labels)]
        if held:
            batches = [self._draw(cohort[i], seeds[i]) for i in held]
            real, labels, fake = (torch.stack(part) for part in zip(*batches, strict=True))
            rows[held] = vmap(self._train)(real, labels, fake)
        return rows.cpu()

    def _draw(self, data: LocalData, seed: int) -> tuple[Tensor, Tensor, Tensor]:
        """Every local step's real images, their labels and fakes of the same classes."""
        source = np.random.default_rng(seed)
        rows = [_shuffled(len(data.labels), self._batch, source) for _ in range(self._steps)]
        picked = torch.from_numpy(np.stack(rows))
        labels = data.labels[picked]
        places = torch.from_numpy(source.integers(FAKES_PER_CLASS, size=labels.shape))
        device = self._empty.device
        fakes = self._fakes[labels.to(device), places.to(device)]
        return data.images[picked].to(device), labels.to(device), fakes

    def _loss(self, weights: Parameters, real: Tensor, labels: Tensor, fake: Tensor) -> Tensor:
        score_real = functional_call(self._critic, weights, (real, labels))
        score_fake = functional_call(self._critic, weights, (fake, labels))
        return self._score(score_real, score_fake)

    def _train(self, real: Tensor, labels: Tensor, fake: Tensor) -> Tensor:
        """One user's local SGD over [steps, batch, ...] tensors; the flat difference."""
        weights, slope = dict(self._start), grad(self._loss)
        for step in range(self._steps):
            gradient = slope(weights, real[step], labels[step], fake[step])
            weights = {k: self._limit(k, w - self._rate * gradient[k]) for k, w in weights.items()}
        return torch.cat([(weights[k] - w).reshape(-1) for k, w in self._start.items()])

    def _limit(self, name: str, weight: Tensor) -> Tensor:
        bound = self._limits.get(name)
        return weight if bound is None else weight.clamp(-bound, bound)


def _shuffled(held: int, wanted: int, source: np.random.Generator) -> np.ndarray:
    """``wanted`` positions out of ``held``, each as often as any other (give or take one)."""
    rounds = -(-wanted // held)
    return np.concatenate([source.permutation(held) for _ in range(rounds)])[:wanted]
