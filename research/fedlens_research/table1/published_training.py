"""The steps of arXiv:2003.00997's published recipe, and what they spend by each way of counting.

See `fedlens_research.table1.published` for what they are and why they protect no record.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedlens.accountant.bayesian.accountant import BayesianAccountant
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.dp.renyi import DEFAULT_ORDERS, epsilons
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.noise import add_noise, private_source
from fedlens.data.registry import Dataset
from fedlens.models.critics import WganCritic
from fedlens.models.limits import clamp_weights, weight_limits
from fedlens.models.shapes import from_pixels
from fedlens.server.config.tasks import WganConfig
from fedlens.server.config.tree import Config
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens_research.framework.errors import TrialFailed
from fedlens_research.table1.replaced_record import replaced_divergences

ORDERS = tuple(range(2, 33))
"""The notebook's λ. With none above 32 no figure at δ = 1e-10 can be below 0.72."""
GAMMA = 1e-16  # Failure of one confidence bound, as the notebook has it
LEFT_OUT = 8
"""Records of a batch that are left out in turn; their means make 28 pairs, not independent."""
KEPT = 0.1  # Share of the coordinates that a step moves, drawn anew each step whatever the data is
_FAKES = 25


def recipe_of(config: Config) -> WganConfig:
    """The settings of the one critic.

    Raises:
        TrialFailed: the configuration has no task ``critic`` of kind ``wgan``.
    """
    settings = config.tasks.get("critic")
    if not isinstance(settings, WganConfig):
        raise TrialFailed("the recipe as published needs a task 'critic' of kind 'wgan'")
    return settings


@dataclass(frozen=True)
class PublishedSpending:
    """What was spent, by each way of counting."""

    steps: int
    distances: dict[str, float]  # Median and largest of all measured distances, over C
    clipped: float  # Share of steps whose mean gradient was longer than C
    epsilon_bdp_as_published: float
    epsilon_bdp_corrected: float
    """With Hölder's inequality over the steps and Student-t bounds: the notebook's later form."""
    delta_bdp: float
    epsilon_dp: float
    """Least valid bound for a record replaced by another: each is in one batch an epoch."""
    epsilon_dp_moments: float
    """By the moments accountant over sampled steps, as the paper counts for others."""
    epsilon_dp_at_bdp_delta: float
    delta_dp: float


class PublishedRecipe:
    """The recipe, step by step, and what is measured on the way.

    `fedlens_research.table1.published` says where it is from.

    Raises:
        TrialFailed: fewer records than a batch.
    """

    def __init__(self, config: Config, dataset: Dataset) -> None:
        settings = recipe_of(config)
        self._config, self._settings, self._batch = config, settings, settings.local_batch
        self._images = torch.from_numpy(dataset.train_images.copy())
        self._labels = torch.from_numpy(dataset.train_labels.copy())
        if len(self._labels) < self._batch:
            raise TrialFailed(
                f"tasks.critic.local_batch = {self._batch}: there are only {len(self._labels)} "
                "records; give at most that"
            )
        start = torch.Generator().manual_seed(config.seed)
        self._critic = WganCritic(
            dataset.shape, dataset.classes, settings.width, settings.hidden, generator=start
        )
        self._limits = weight_limits(self._critic, settings.weight_limit)
        clamp_weights(self._critic, self._limits)
        self.trainer = GeneratorTrainer(config, dataset.shape, dataset.classes)
        self._masks = torch.Generator().manual_seed(config.seed + 2)
        rate, noise = self._batch / len(self._labels), settings.noise_multiplier
        self._event = SubsampledGaussian(
            "record", "poisson", "add-remove", rate, noise, settings.clipping_norm
        )
        delta = config.privacy.bayesian_delta
        self._bayesian = BayesianAccountant(
            settings.rounds, delta, lambdas=ORDERS, gamma=GAMMA, charge_doubtful=False
        )
        self._distances: list[NDArray[np.float64]] = []
        self._clipped = 0

    def run(self) -> Iterator[int]:
        """Take all steps; tells the number of each when it is done."""
        batches = self._batches()
        for step in range(1, self._settings.rounds + 1):
            images, labels = next(batches)
            self._critic_step(images, labels, step)
            self._generator_step(step)
            yield step

    def _batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Whole batches of shuffled epochs; what is left over of an epoch is dropped."""
        order = np.random.default_rng(self._config.seed)
        while True:
            shuffled = torch.from_numpy(order.permutation(len(self._labels)))
            for chosen in torch.split(shuffled, self._batch):
                if len(chosen) == self._batch:
                    yield from_pixels(self._images[chosen].numpy()), self._labels[chosen]

    def _critic_step(self, images: Tensor, labels: Tensor, step: int) -> None:
        """Clip the mean gradient, measure what a record moves it by, add noise, descend."""
        settings = self._settings
        bound = settings.clipping_norm
        mask = self._mask()
        fakes = self._fake_slope() * mask
        mean = self._slopes(images, labels).mean(0) * mask
        alone = self._slopes(images[:LEFT_OUT], labels[:LEFT_OUT], each=True) * mask
        others = (mean * self._batch - alone) / (self._batch - 1)
        self._book(_clip(others + fakes, bound))
        whole = mean + fakes
        self._clipped += bool(whole.norm() > bound)
        clipped = _clip(whole[None], bound)[0].double().numpy()
        noised = add_noise(
            clipped,
            noise_multiplier=settings.noise_multiplier,
            sensitivity=bound,
            source=private_source(self._config.privacy.fixed_seed, step),
        )
        moved = torch.from_numpy(noised).float() * mask
        weights = parameters_to_vector(self._critic.parameters()).detach()
        vector_to_parameters(weights - settings.rate * moved, self._critic.parameters())
        clamp_weights(self._critic, self._limits)

    def _mask(self) -> Tensor:
        size = sum(p.numel() for p in self._critic.parameters())
        return (torch.rand(size, generator=self._masks) < KEPT).float()

    def _slopes(self, images: Tensor, labels: Tensor, each: bool = False) -> Tensor:
        """Gradients of minus the score: of each image [n, P], or their mean as one row [1, P]."""
        weights = {k: p.detach() for k, p in self._critic.named_parameters()}

        def loss(weights: dict[str, Tensor], images: Tensor, labels: Tensor) -> Tensor:
            score: Tensor = -functional_call(self._critic, weights, (images, labels)).mean()
            return score

        if not each:
            found = grad(loss)(weights, images, labels)
            return torch.cat([part.reshape(-1) for part in found.values()])[None]
        found = vmap(grad(loss), (None, 0, 0))(weights, images[:, None], labels[:, None])
        return torch.cat([part.flatten(1) for part in found.values()], 1)

    @torch.no_grad()
    def _fakes(self) -> tuple[Tensor, Tensor]:
        network = self.trainer.network
        labels = torch.arange(network.classes).repeat_interleave(_FAKES)
        noise = torch.randn(len(labels), network.latent, generator=self._masks)
        return network(noise, labels), labels

    def _fake_slope(self) -> Tensor:
        images, labels = self._fakes()
        return -self._slopes(images, labels)[0]

    def _book(self, others: Tensor) -> None:
        """Distances between all pairs of leave-one-out means, for the Bayesian accountant."""
        rows = others.double().numpy()
        pairs = itertools.combinations(range(len(rows)), 2)
        apart = np.array([np.linalg.norm(rows[i] - rows[j]) for i, j in pairs])
        apart = np.minimum(apart, self._event.clipping_norm)  # beyond C the accountant cannot go
        self._bayesian.compose(self._event, apart)
        self._distances.append(apart)

    def _generator_step(self, step: int) -> None:
        settings = self._settings
        self._critic.requires_grad_(False)
        self.trainer.train(
            lambda images, labels: -self._critic(images, labels).mean(),
            steps=settings.generator_steps,
            rate=settings.generator_rate,
            done=settings.generator_steps * (step - 1),
            planned=settings.generator_steps * settings.rounds,
        )

    def figures(self) -> PublishedSpending:
        """What the steps so far have spent."""
        privacy, steps = self._config.privacy, len(self._distances)
        apart = np.concatenate(self._distances) / self._settings.clipping_norm
        return PublishedSpending(
            steps=steps,
            distances={"median": float(np.median(apart)), "largest": float(apart.max())},
            clipped=self._clipped / steps,
            epsilon_bdp_as_published=self._bayesian.as_published().epsilon,
            epsilon_bdp_corrected=self._bayesian.corrected().epsilon,
            delta_bdp=privacy.bayesian_delta,
            epsilon_dp=self._differential(privacy.delta),
            epsilon_dp_moments=self._moments(privacy.delta),
            epsilon_dp_at_bdp_delta=self._differential(privacy.bayesian_delta),
            delta_dp=privacy.delta,
        )

    def _differential(self, delta: float) -> float:
        """ε for a record replaced: it is in one batch of an epoch at most, and moves that by 2C."""
        epochs = -(-len(self._distances) // (len(self._labels) // self._batch))
        noise = self._event.noise_multiplier / 2
        event = replace(self._event, sampler="none", sampling_rate=1.0, noise_multiplier=noise)
        account = DifferentialAccountant()
        account.compose(event, epochs)
        return account.epsilon(delta).epsilon

    def _moments(self, delta: float) -> float:
        """ε for a record replaced, as if each step drew its batch anew: what others are charged."""
        rate, noise = self._event.sampling_rate, self._event.noise_multiplier / 2
        spent = len(self._distances) * replaced_divergences(rate, noise, DEFAULT_ORDERS)
        return float(epsilons(spent, np.array(DEFAULT_ORDERS), delta).min())


def _clip(rows: Tensor, bound: float) -> Tensor:
    """Rows [n, P], each brought within the bound as a whole."""
    clipped: Tensor = rows * (bound / rows.norm(dim=1, keepdim=True).clamp(min=bound))
    return clipped
