"""The recipe of arXiv:2003.00997 as its authors ran it, for comparison. It protects nobody.

Triastcyn & Faltings, "Generating Higher-Fidelity Synthetic Datasets with Privacy Guarantees". Their
MNIST notebook trains one critic centrally: batches of 1,024, the gradient of the *whole batch's
mean* clipped to C = 1, noise of 0.1 C, learning rate 0.02, a random tenth of the coordinates a
step, 32 epochs. Its Bayesian accountant is given the distances between eight leave-one-out mean
gradients of each batch, 28 pairs, and orders 2 to 32.

Clipping a mean instead of each record bounds the mean and no record's part in it. In a batch whose
gradient lies at the clip one record may turn it round, so what differential privacy can say rests
on a sensitivity of 2C, twenty times the noise. The distances that are measured are those of common
records, thousands of times smaller. Both figures are reported as they are.

The networks are this project's own, of the form that the paper describes; batches and noise are
those of the notebook. Simulation only.
"""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from accountant.bayesian import BayesianAccountant
from accountant.differential import DifferentialAccountant
from accountant.events import SubsampledGaussian
from accountant.noise import gaussian, private_source
from models.critics import WganCritic
from models.generators import Generator
from models.limits import clamp_weights, weight_limits
from models.vectors import load_vector, to_vector
from server.config import Config
from server.curation import Sampler
from server.files import write_durably
from server.generator import GeneratorTrainer, as_pixels
from simulations.apps import simulated_federation
from simulations.datasets import Dataset
from simulations.engine import STUDENT_IMAGES, STUDENT_SEED
from simulations.pictures import contact_sheet
from simulations.reading import fresh_samples
from simulations.students import train_student
from simulations.study.errors import CellFailed
from simulations.study.providers import Report, Trained

ORDERS = tuple(range(2, 33))
"""The notebook's λ. With none above 32 no figure at δ = 1e-10 can be below 0.72."""
GAMMA = 1e-16
"""Failure of one confidence bound, as the notebook has it."""
LEFT_OUT = 8
"""Records of a batch that are left out in turn; their means make 28 pairs, not independent."""
KEPT = 0.1
"""Share of the coordinates that a step moves, drawn anew each step whatever the data is."""
_FAKES = 25
_WEIGHTS, _FIGURES = "published.npy", "published.json"


@dataclass(frozen=True)
class Figures:
    """What was spent, by each way of counting."""

    steps: int
    distances: dict[str, float]
    """Median and largest of all measured distances, over C."""
    clipped: float
    """Share of steps whose mean gradient was longer than C."""
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


def published(
    config: Config,
    folder: Path,
    report: Report = lambda _: None,
    *,
    student: bool = True,
) -> dict[str, Any]:
    """Train the recipe centrally; returns its figures as a plain dict.

    Args:
        config: ``rounds.count`` steps of batches of ``critic.local_batch``; C and the noise are
            ``privacy.clipping_norm`` and ``privacy.noise_multiplier``; the preset
            ``mnist-record-paper003`` has the notebook's. ``critic`` and ``generator`` say the rest.
        folder: keeps the generator, the figures and a contact sheet.
        report: told in words how far it is.
        student: whether to train a student on the samples and test it on real images.

    Returns:
        `Figures` as keys, ``student_accuracy`` in [0, 1] or None, and ``contact_sheet``'s path.

    Raises:
        CellFailed: fewer records than a batch.
    """
    dataset, _ = simulated_federation(config.data, config.seed)
    folder.mkdir(parents=True, exist_ok=True)
    training = _Training(config, dataset)
    for step in training.run():
        if step % 100 == 0:
            report(f"step {step} of {config.rounds.count}")
    figures = asdict(training.figures())
    write_durably(folder / _WEIGHTS, _npy(to_vector(training.trainer.average)))
    known = {"config": config.flat(), "shape": dataset.shape, "classes": dataset.classes}
    write_durably(folder / _FIGURES, json.dumps({**known, "figures": figures}).encode())
    sampler = source(folder)
    accuracy = _student_accuracy(sampler, dataset, config.seed) if student else None
    sheet = folder / "contact-sheet.png"
    _draw_sheet(sampler, figures, sheet)
    return {**figures, "student_accuracy": accuracy, "contact_sheet": str(sheet)}


def train(config: Config, folder: Path, report: Report) -> Trained:
    """The provider's training: `published` without its student; what is there is not trained anew.

    The figures of differential privacy are the least valid ones, as for every other row.
    """
    if not (folder / _FIGURES).is_file():
        published(config, folder, report, student=False)
    found = json.loads((folder / _FIGURES).read_text())["figures"]
    return Trained(
        epsilon_dp=found["epsilon_dp"],
        delta_dp=found["delta_dp"],
        epsilon_dp_at_bdp_delta=found["epsilon_dp_at_bdp_delta"],
        bdp_as_published=found["epsilon_bdp_as_published"],
        bdp_corrected=found["epsilon_bdp_corrected"],
        bdp_sound=found["epsilon_dp_at_bdp_delta"],  # no bound that is sound takes the distances
        delta_bdp=found["delta_bdp"],
        rounds=found["steps"],
        statement=_statement(found),
    )


def source(folder: Path) -> Sampler:
    """The generator that was trained in ``folder``."""
    known = json.loads((folder / _FIGURES).read_text())
    config, shape = Config().updated(known["config"]), tuple(known["shape"])
    settings = config.generator
    generator = Generator(shape, known["classes"], settings.width, settings.latent)
    load_vector(generator, np.load(folder / _WEIGHTS))
    return Sampler(generator.eval())


class _Training:
    """The recipe, step by step, and what is measured on the way."""

    def __init__(self, config: Config, dataset: Dataset) -> None:
        settings = config.critic
        self._config, self._batch = config, settings.local_batch
        self._images = torch.from_numpy(dataset.train_images.copy())
        self._labels = torch.from_numpy(dataset.train_labels.copy())
        if len(self._labels) < self._batch:
            raise CellFailed(
                f"critic.local_batch = {self._batch}: there are {len(self._labels)} records only"
            )
        start = torch.Generator().manual_seed(config.seed)
        self._critic = WganCritic(
            dataset.shape, dataset.classes, settings.width, settings.hidden, generator=start
        )
        self._limits = weight_limits(self._critic, settings.weight_limit)
        clamp_weights(self._critic, self._limits)
        self.trainer = GeneratorTrainer(config, dataset.shape, dataset.classes)
        self._masks = torch.Generator().manual_seed(config.seed + 2)
        privacy = config.privacy
        self._event = SubsampledGaussian(
            "record",
            "poisson",
            "add-remove",
            self._batch / len(self._labels),
            privacy.noise_multiplier,
            privacy.clipping_norm,
        )
        self._bayesian = BayesianAccountant(
            config.rounds.count,
            privacy.bayesian_delta,
            lambdas=ORDERS,
            gamma=GAMMA,
            charge_doubtful=False,
        )
        self._distances: list[NDArray[np.float64]] = []
        self._clipped = 0

    def run(self) -> Iterator[int]:
        """Take all steps; tells the number of each when it is done."""
        batches = self._batches()
        for step in range(1, self._config.rounds.count + 1):
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
                    yield self._images[chosen].float() / 127.5 - 1, self._labels[chosen]

    def _critic_step(self, images: Tensor, labels: Tensor, step: int) -> None:
        """Clip the mean gradient, measure what a record moves it by, add noise, descend."""
        settings, privacy = self._config.critic, self._config.privacy
        bound = privacy.clipping_norm
        mask = self._mask()
        fakes = self._fake_slope() * mask
        mean = self._slopes(images, labels).mean(0) * mask
        alone = self._slopes(images[:LEFT_OUT], labels[:LEFT_OUT], each=True) * mask
        others = (mean * self._batch - alone) / (self._batch - 1)
        self._book(_clip(others + fakes, bound))
        whole = mean + fakes
        self._clipped += bool(whole.norm() > bound)
        noise = gaussian(
            len(whole),
            noise_multiplier=privacy.noise_multiplier,
            sensitivity=bound,
            source=private_source(privacy.fixed_seed, step),
        )
        moved = _clip(whole[None], bound)[0] + torch.from_numpy(noise).float() * mask
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
        settings, rounds = self._config.generator, self._config.rounds.count
        self._critic.requires_grad_(False)
        self.trainer.train(
            lambda images, labels: -self._critic(images, labels).mean(),
            steps=settings.steps,
            rate=settings.rate,
            done=settings.steps * (step - 1),
            planned=settings.steps * rounds,
        )

    def figures(self) -> Figures:
        """What the steps so far have spent."""
        privacy, steps = self._config.privacy, len(self._distances)
        apart = np.concatenate(self._distances) / privacy.clipping_norm
        return Figures(
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
        event = replace(self._event, sampler="none", adjacency="replace-one", sampling_rate=1.0)
        account = DifferentialAccountant()
        account.compose(event, epochs)
        return account.epsilon(delta).epsilon

    def _moments(self, delta: float) -> float:
        """ε for a record replaced, as if each step drew its batch anew: what others are charged."""
        account = DifferentialAccountant()
        event = replace(self._event, sampler="without-replacement", adjacency="replace-one")
        account.compose(event, len(self._distances))
        return account.rdp(delta).epsilon


def _clip(rows: Tensor, bound: float) -> Tensor:
    """Rows [n, P], each brought within the bound as a whole."""
    clipped: Tensor = rows * (bound / rows.norm(dim=1, keepdim=True).clamp(min=bound))
    return clipped


def _npy(vector: NDArray[np.float32]) -> bytes:
    content = io.BytesIO()
    np.save(content, vector)
    return content.getvalue()


def _student_accuracy(sampler: Sampler, dataset: Dataset, seed: int) -> float:
    """Of a student on samples with their requested classes; it uses real test images."""
    images, labels = fresh_samples(sampler, STUDENT_IMAGES, seed + STUDENT_SEED)
    real = torch.from_numpy(dataset.test_images.copy()).float() / 127.5 - 1
    truth = torch.from_numpy(dataset.test_labels.copy())
    return train_student(images, labels, real, truth, classes=dataset.classes, seed=seed).accuracy


def _draw_sheet(sampler: Sampler, figures: dict[str, Any], path: Path) -> None:
    images, labels = fresh_samples(sampler, 8 * sampler.classes, STUDENT_SEED)
    contact_sheet(
        as_pixels(images),
        labels.numpy(),
        rows=8,
        caption=f"SYNTHETIC · {_statement(figures)}",
        path=path,
    )


def _statement(figures: dict[str, Any]) -> str:
    """What may be said of it, in words."""
    return (
        f"as published: Bayesian ε={figures['epsilon_bdp_as_published']:.3g} "
        f"(δ={figures['delta_bdp']:g}); what protects a record: DP "
        f"ε={figures['epsilon_dp']:.3g} (δ={figures['delta_dp']:g}), for the clip bounds the "
        "batch's mean and no record's part in it"
    )
