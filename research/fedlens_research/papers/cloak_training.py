"""What study ``cloak`` trains: provider, substitute, noise maps along a path, constants."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from fedlens.models.classifiers import ConvClassifier, check_image
from fedlens.models.students import build_student
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.networks.masks import Fill, MaskFilter, NoiseMap, masked
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import FILTER
from fedlens.privatizers.training import Stage, train_privatizer
from fedlens.simulations.students.students import fit_classifier
from fedlens_research.filters.black_box import Explorer, Follower, ask, train_substitute
from fedlens_research.filters.cloak import CloakObjective, CloakPrivatizer
from fedlens_research.filters.variations import Variations
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.settings import check_names
from fedlens_research.framework.trials import Report
from fedlens_research.lenet import SIDES, LeNet5


@dataclass(frozen=True)
class CloakSettings:
    """Of the study; see `cloak.toml`.

    Raises:
        StudyError: on a path that does not rise, or a reported ratio that is not on it.
    """

    source: str  # private data with the utility "above 5" and the digit as sensitive attribute
    protected: str  # source of the same images whose sensitive attribute is the protected attribute
    provider_epochs: int  # passes of the provider's training
    most: float  # M, greatest σ, in the records' units ([-1, 1])
    gamma: float  # weight of the privacy term
    rate: float  # Adam's for the noise map
    batch: int  # records a step
    ratios: tuple[float, ...]  # the path of suppression ratios, from 0 up
    steps: tuple[int, ...]  # of the noise map at each, on the provider
    # share of these steps that a map takes on a substitute, in (0, 1]; the provider is asked all
    # along
    black_share: float
    reported: tuple[float, ...]  # those of ``ratios`` that are judged
    settle_steps: int  # of a reported map, before its mask is taken; the path goes on without them
    settle_gamma: float  # weight of the privacy term in these: what is kept is worth little noise
    value_steps: int  # of the trained constants
    value_rate: float  # Adam's for these
    black_box: bool  # also do it with a substitute
    substitute_steps: int  # of the substitute's training
    # steps of a filter after which the provider is asked about what it releases and the substitute
    # learns from the answers
    follow_every: int
    follow_queries: int  # records that it is asked about each time
    follow_steps: int  # of the substitute each time
    attackers: tuple[str, ...]  # names; see `fedlens.privatizers.attacks.attackers`
    attack_records: int  # that they are fitted on
    code_steps: int  # batches of the network that reads what a mask keeps
    repeats: int  # draws of noise over which accuracies are averaged
    index_records: int  # of the ITE-style index, which depends on their number

    def __post_init__(self) -> None:
        if len(self.ratios) != len(self.steps) or list(self.ratios) != sorted(set(self.ratios)):
            raise StudyError(
                f"ratios={self.ratios}, steps={self.steps}: give rising ratios, steps for each"
            )
        if not 0 < self.black_share <= 1:
            raise StudyError(f"black_share={self.black_share} must lie in (0, 1]")
        if not all(0 <= ratio < 1 for ratio in self.ratios):
            raise StudyError(f"ratios={self.ratios} must lie in [0, 1): something has to be sent")
        if not self.reported:
            raise StudyError("reported must name at least one of the ratios")
        check_names("attackers", self.attackers, ATTACKERS)
        NoiseMap((1, 1, 1), self.most)  # refuses noise that is none
        if self.follow_every < 1 or self.follow_queries < 1 or self.follow_steps < 1:
            raise StudyError(
                f"follow_every={self.follow_every}, follow_queries={self.follow_queries}, "
                f"follow_steps={self.follow_steps}: each must be at least 1"
            )
        if strange := set(self.reported) - set(self.ratios):
            raise StudyError(f"reported: {sorted(strange)} are not among the ratios")


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
    """A LeNet that answers the utility from raw images; it ends frozen.

    Images of other sizes than the LeNet's get a network of the same kind.
    """
    generator, data = training.generator(1), training.data
    shape = check_image(data.shape)
    net: nn.Module
    if shape[1] == shape[2] and shape[1] in SIDES:
        net = LeNet5(shape, data.utility_classes, border=data.low, generator=generator)
    else:
        net = ConvClassifier(shape, data.utility_classes, generator=generator)
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
    settings, noise = training.settings, first_map(training, cautious=follower is not None)
    for ratio in settings.ratios:
        train_ratio(training, noise, ratio, network, follower)
        yield ratio, copy.deepcopy(noise)


def first_map(training: CloakTraining, *, cautious: bool) -> NoiseMap:
    """Where a path starts; a cautious map's shift moves slowly."""
    unit = CAUTIOUS if cautious else 1.0
    shape, most = training.data.shape, training.settings.most
    return NoiseMap(shape, most, rho=FIRST_RHO, shift_unit=unit)


def train_ratio(
    training: CloakTraining,
    noise: NoiseMap,
    ratio: float,
    network: nn.Module,
    follower: Follower | None = None,
) -> None:
    """Bring a map, in place, from one ratio of the path to the next."""
    settings = training.settings
    if ratio > 0:
        noise.give_up(ratio, training.mean)
    steps = settings.steps[settings.ratios.index(ratio)]
    share = 1.0 if follower is None else settings.black_share
    last_rate = 0.1 if ratio in settings.reported else 0.5
    method = CloakPrivatizer(noise, network, CloakObjective(settings.gamma))
    training.train(method, settings.rate, max(1, round(share * steps)), last_rate, follower)


def settled(
    training: CloakTraining, noise: NoiseMap, network: nn.Module, follower: Follower | None = None
) -> NoiseMap:
    """A copy of a path's map that has learned on, at less privacy: what is given up stays so.

    Along the path the privacy term says which entries are needed least. Of those that are kept it
    takes accuracy and hides next to nothing.
    """
    settings, found = training.settings, copy.deepcopy(noise)
    method = CloakPrivatizer(found, network, CloakObjective(settings.settle_gamma))
    training.train(method, settings.rate / 3, settings.settle_steps, 0.1, follower)
    return found


def train_values(
    training: CloakTraining, mask: MaskFilter, network: nn.Module, follower: Follower | None = None
) -> None:
    """The constants that stand for what is suppressed, by cross-entropy alone, in place."""
    settings = training.settings
    method = CloakPrivatizer(mask, network)
    training.train(method, settings.value_rate, settings.value_steps, 0.05, follower)
    mask.requires_grad_(False)
