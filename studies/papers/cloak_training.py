"""What study ``cloak`` trains: provider, substitute, noise maps along a path, constants."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from client.datasets.attributes.data import PrivateData
from models.classifiers import check_image
from models.lenet import LeNet5
from models.students import build_student
from privatizers.black_box import Explorer, Follower, ask, train_substitute
from privatizers.cloak import CloakObjective, CloakPrivatizer
from privatizers.networks.masks import Fill, MaskFilter, NoiseMap, masked
from privatizers.protocol import FILTER
from privatizers.training import Stage, train_privatizer
from privatizers.variations import Variations
from simulations.students.students import fit_classifier
from studies.framework.trials import Report
from studies.papers.cloak_settings import CloakSettings

FIRST_RHO = -2.0
"""Where maps start: σ of 2 % of the greatest, whence noise that matters is some 50 steps away."""
SUBSTITUTE_RATE = 2e-3
CAUTIOUS = 0.1  # How fast the shift of a map moves on a substitute, against one on the provider


@dataclass(frozen=True, eq=False)
class CloakTraining:
    """What everything is trained on, and how."""

    settings: CloakSettings  # the study's
    data: PrivateData  # records that provider and filters may see
    seed: int  # of everything that is drawn

    @cached_property
    def mean(self) -> Tensor:
        """The mean record."""
        return self.data.records.mean(0)

    def mask(self, noise: NoiseMap, threshold: float, fill: Fill = "trained") -> MaskFilter:
        """What a noise map becomes where more than ``threshold`` of noise is suppressed."""
        low = self.data.low
        return masked(noise, threshold, fill, mean=self.mean, blank=low, shifted=True)

    def generator(self, purpose: int) -> torch.Generator:
        """A generator of its own for each purpose."""
        return torch.Generator().manual_seed(1000 * self.seed + purpose)

    def train(
        self,
        method: CloakPrivatizer,
        rate: float,
        steps: int,
        last_rate: float,
        follower: Follower | None = None,
    ) -> None:
        """Train the method's filter; a substitute follows it."""
        stage = Stage("cloak", {FILTER: rate}, steps, last_rate=last_rate)

        def follow(step: int, _: Tensor | None = None) -> None:
            if follower is not None and step % self.settings.follow_every == 0:
                follower(method.networks[FILTER])

        follow(0)
        train_privatizer(
            method, self.data, [stage], batch=self.settings.batch, seed=self.seed, on_step=follow
        )


def train_provider(training: CloakTraining) -> nn.Module:
    """A LeNet that answers the utility from raw images; it ends frozen."""
    generator, data = training.generator(1), training.data
    shape = check_image(data.shape)
    net = LeNet5(shape, data.utility_classes, border=data.low, generator=generator)
    epochs = training.settings.provider_epochs
    fit_classifier(net, data.records, data.utility, epochs=epochs, generator=generator)
    return net.requires_grad_(False)


def train_substitute_of(
    training: CloakTraining, provider: nn.Module, report: Report
) -> tuple[nn.Module, Follower]:
    """A strided network of two convolutions that learned the provider's answers, nothing else.

    It is asked about raw records and about records behind masks drawn at random. With the
    substitute what keeps it close to the provider while a filter learns. The provider answers with
    probabilities.
    """
    generator, settings = training.generator(2), training.settings
    records = training.data.records

    def said(some: Tensor) -> Tensor:
        answers: Tensor = provider(some).softmax(1)
        return answers

    net = build_student(
        "cnn", check_image(training.data.shape), training.data.utility_classes, generator=generator
    )
    answers = ask(said, records)
    explore = Explorer(said, records, Variations(records, settings.most), generator)
    agreed = train_substitute(
        net, records, answers, steps=settings.substitute_steps, batch=settings.batch,
        rate=SUBSTITUTE_RATE, generator=generator, explore=explore,
    )  # fmt: skip
    report(f"seed {training.seed}: the substitute agrees with the provider on {agreed:.1%}")
    follower = Follower(
        net, said, records, answers, queries=settings.follow_queries,
        steps=settings.follow_steps, generator=generator, explore=explore,
    )  # fmt: skip
    return net, follower


def train_path(
    training: CloakTraining, network: nn.Module, follower: Follower | None = None
) -> Iterator[tuple[float, NoiseMap]]:
    """A noise map at each ratio of the path, each trained on from the one before.

    What is given up at one ratio stays so; the others learn what they are worth without it. With a
    follower, that is with a substitute, the map's shift μ moves slowly: what is free to move every
    entry of every record at once finds what the substitute bears and the provider does not.
    """
    settings = training.settings
    unit, share = (1.0, 1.0) if follower is None else (CAUTIOUS, settings.black_share)
    noise = NoiseMap(training.data.shape, settings.most, rho=FIRST_RHO, shift_unit=unit)
    method = CloakPrivatizer(noise, network, CloakObjective(settings.gamma))
    for ratio, steps in zip(settings.ratios, settings.steps, strict=True):
        if ratio > 0:
            noise.give_up(ratio, training.mean)
        last_rate = 0.1 if ratio in settings.reported else 0.5
        training.train(method, settings.rate, max(1, round(share * steps)), last_rate, follower)
        yield ratio, copy.deepcopy(noise)


def train_values(
    training: CloakTraining, mask: MaskFilter, network: nn.Module, follower: Follower | None = None
) -> None:
    """The constants that stand for what is suppressed, by cross-entropy alone, in place."""
    settings = training.settings
    method = CloakPrivatizer(mask, network)
    training.train(method, settings.value_rate, settings.value_steps, 0.05, follower)
    mask.requires_grad_(False)
