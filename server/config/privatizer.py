"""The section of the privatizer: a filter that hides a sensitive attribute of every record."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from fedlens.server.config.section import (
    Count,
    NotNegative,
    Positive,
    Section,
    Share,
    require,
    require_valid,
)

MOST_OUTPUT_NOISE_STD = 2.0
MOST_CAPACITY = 40.0
MOST_FREQUENCY = 30


class PrivatizerConfig(Section):
    """No filter: images are as they are."""

    by_tasks: ClassVar[bool] = False
    """Whether tasks of this run train the filter; all later tasks look through it."""
    on_samples: ClassVar[bool] = False
    """Whether it is fitted on this run's samples once all tasks are done."""

    kind: str = "none"
    """Where the filter comes from. ``none``: there is none. ``trained``: this run trains it, as
    ``trained_by`` says. ``pretrained``: it is another run's."""

    @property
    def active(self) -> bool:
        """Whether the run hides anything."""
        return False

    @property
    def training(self) -> str:
        """``trained_by``; empty where this run trains no filter."""
        return ""

    @property
    def asked_run(self) -> str:
        """Folder of the run whose filter is taken; empty where it is no other run's."""
        return ""

    @property
    def hidden_attribute(self) -> str:
        """The attribute that nodes must know of their records; empty for none."""
        return ""

    @property
    def consenting_share(self) -> float:
        """Simulated share of users who do not mind; 0 where the filter is not told of them."""
        return 0.0

    @property
    def nats_to_leave(self) -> float:
        """What of the attribute the filter was to leave at most, in nats; infinite where unsaid."""
        return math.inf

    @property
    def conditioned(self) -> bool:
        """Whether samples are shown as such pairs, which no real image's label is."""
        return False

    @property
    def pairs(self) -> bool:
        """Whether the generator's classes are pairs of class and sensitive attribute."""
        return self.conditioned


class NoPrivatizer(PrivatizerConfig):
    """No filter: images are as they are."""

    kind: Literal["none"] = "none"


class FilterConfig(PrivatizerConfig):
    """What all filters have."""

    sensitive_attribute: Annotated[str, Field(min_length=1)] = "thickness"
    """Attribute to be hidden. Simulated: ``thickness`` (of a digit's strokes, against the median of
    its class) or ``column`` (the arrays train_sensitive and test_sensitive of ``npz:PATH``)."""
    network: str = "unet"
    """``unet``: a U-Net, read by small convolutional networks. ``dense``: one hidden layer over all
    pixels, read by the like: about five times as fast, for small aligned images. ``code``: all that
    is released passes a few noisy numbers; trained by ``samples``. ``spectral``: such a code of an
    image's lowest frequencies; trained by ``sums``."""
    width: Count = 4
    """Channels of the U-Net at full size or at half size before and after the code, or units of the
    dense filter or of the spectral one's second layer."""
    consenting: Share = 0.0
    """Simulated share of users who do not mind: the filter is told so of each record and hides
    nothing of theirs (``code``, ``spectral``: lets their images pass as they are). 0 leaves that
    input out."""

    @property
    def active(self) -> bool:
        """Whether the run hides anything."""
        return True

    @property
    def hidden_attribute(self) -> str:
        """The attribute that nodes must know of their records; empty for none."""
        return self.sensitive_attribute

    @property
    def consenting_share(self) -> float:
        """Simulated share of users who do not mind; 0 where the filter is not told of them."""
        return self.consenting

    @model_validator(mode="after")
    def _can_be_told(self) -> FilterConfig:
        fix = "privatizer.network = 'dense' cannot be told of each record; leave it at 0"
        told = self.consenting == 0 or self.network != "dense"
        require(told, "privatizer.consenting", self.consenting, fix)
        return self


class ConditionedConfig(FilterConfig):
    """A filter that nodes run, so that the generator meets filtered images only."""

    condition: bool = False
    """Whether the generator's classes are pairs of class and sensitive attribute (class x values +
    value), for the strongest test: an attacker trained on samples of requested values."""

    @property
    def conditioned(self) -> bool:
        """Whether samples are shown as such pairs, which no real image's label is."""
        return self.condition


class TrainedConfig(FilterConfig):
    """A filter that this run trains."""

    kind: Literal["trained"] = "trained"
    trained_by: str
    """How this run trains the filter. ``rounds``: users do, in a task of kind ``privatizer``.
    ``sums``: it is fitted on noised sums that users release in tasks of kinds ``frequencies`` and
    ``moments``. ``samples``: it is fitted on the run's own samples, which costs no privacy."""

    @property
    def training(self) -> str:
        """``trained_by``; empty where this run trains no filter."""
        return self.trained_by


class RoundsPrivatizer(TrainedConfig, ConditionedConfig):
    """A filter that the run's task of kind ``privatizer`` trains; all later tasks look through it.

    Users are protected in that task by the same mechanism and ledger as in the others.
    """

    by_tasks = True

    trained_by: Literal["rounds"] = "rounds"
    network: Literal["unet", "dense"] = "unet"


OutputNoise = Annotated[float, Field(ge=0, le=MOST_OUTPUT_NOISE_STD)]
Capacity = Annotated[float, Field(gt=0, le=MOST_CAPACITY)]
Frequency = Annotated[int, Field(gt=0, le=MOST_FREQUENCY)]


class FittedConfig(TrainedConfig):
    """A filter that the server fits on what was released: post-processing at no cost."""

    network: Literal["code", "spectral"]
    capacity: Capacity = 6.0
    """``code``, ``spectral``: nats that a released image can tell at most, of anything, to any
    reader: the code's length is limited to that. Ten classes need 2.3; less costs utility, more
    leaves room for what is not hidden."""
    budget: NotNegative = 0.003
    """Nats of the sensitive attribute that an adversary may read before the filter is pressed. A
    fresh one that reads no more of what was drawn to fit on ends the training."""
    distortion: NotNegative = 0.0
    """Weight of the mean squared change of a pixel (their range is 2) beside the nats of utility
    that are lost. At 0 released images need not look like anything to people."""
    steps: Count = 800
    """Steps of the filter against its first adversary, each after three of it; half as many, each
    after four, against each of the fresh ones that still read the sensitive attribute."""
    rate: Positive = 0.001
    """Learning rate of the filter."""
    adversary_rate: Positive = 0.001
    """Learning rate of the adversary."""

    @property
    def nats_to_leave(self) -> float:
        """What of the attribute the filter was to leave at most, in nats."""
        return self.budget


class SamplesPrivatizer(FittedConfig):
    """A filter that is fitted on samples of pairs of class and attribute, after all tasks.

    That is post-processing and costs no privacy. Every sample that is stored went through it.
    """

    on_samples = True

    trained_by: Literal["samples"] = "samples"
    network: Literal["code"] = "code"
    output_noise_std: OutputNoise = 0.1
    """``code``: standard deviation of fresh noise on each released pixel (their range is 2). The
    filter is fitted with .1 of it at most; more drowns what it lets through of single real images,
    which it has never met."""

    @property
    def pairs(self) -> bool:
        """Whether the generator's classes are pairs of class and sensitive attribute."""
        return True


class SumsPrivatizer(FittedConfig, ConditionedConfig):
    """A filter that is fitted on two noised sums over users; all later tasks look through it.

    A task of kind ``frequencies`` and one of kind ``moments`` ask for the sums, before all others.
    The fit is post-processing: as many steps and fresh adversaries as it takes, at no cost.
    """

    by_tasks = True

    trained_by: Literal["sums"] = "sums"
    network: Literal["spectral"] = "spectral"
    width: Count = 128
    highest_frequency: Frequency = 10
    """``spectral``: the filter sees an image's frequencies (i, j) with i + j up to this, 66 numbers
    for 10, and nothing else. Sums grow with the fourth power of it."""
    capacity: Capacity = 8.0
    budget: NotNegative = 0.01
    distortion: NotNegative = 0.5
    steps: Count = 1000
    rate: Positive = 0.002
    adversary_rate: Positive = 0.002


class PretrainedPrivatizer(ConditionedConfig):
    """Another run's filter: nodes run it from the first round on.

    What that run spent is part of this one's guarantee, and is booked to its population.
    """

    kind: Literal["pretrained"] = "pretrained"
    network: Literal["unet", "dense", "code", "spectral"] = "unet"
    output_noise_std: OutputNoise = 0.1
    """``code``: standard deviation of fresh noise on each released pixel, as that run released."""
    capacity: Capacity = 6.0
    """``code``, ``spectral``: nats that a released image can tell at most, as that run has it."""
    highest_frequency: Frequency = 10
    """``spectral``: of what the filter sees, as that run has it."""
    path: Annotated[str, Field(min_length=1)]
    """The folder of the finished run whose filter is taken, an absolute path on the server's
    machine (`fedlens simulate` makes it one). Its ``sensitive_attribute``, ``network``, ``width``,
    ``output_noise_std``, ``capacity``, ``highest_frequency`` and whether there is ``consenting``
    must be the same here."""
    other_people: bool = False
    """Declare that no user of this run was a user of that one. Only then is what that run spent no
    part of this one's guarantee and of its population's budget; the ledger and the guarantee say
    that it was declared."""

    @property
    def asked_run(self) -> str:
        """Folder of the run whose filter is taken."""
        return self.path

    @property
    def hidden_attribute(self) -> str:
        """Nodes need not know the attribute but for pairs: the filter hides it as it is."""
        return self.sensitive_attribute if self.condition else ""

    @model_validator(mode="after")
    def _noise_has_a_place(self) -> PretrainedPrivatizer:
        changed = self.network != "code" and self.output_noise_std != 0.1
        fix = f"network {self.network!r} releases no such noise: leave it at 0.1"
        require(not changed, "privatizer.output_noise_std", self.output_noise_std, fix)
        fix = f"network {self.network!r} has no code: leave it at 6"
        limited = self.network in ("code", "spectral") or self.capacity == 6.0
        require(limited, "privatizer.capacity", self.capacity, fix)
        fix = f"network {self.network!r} sees whole images: leave it at 10"
        seen = self.network == "spectral" or self.highest_frequency == 10
        require(seen, "privatizer.highest_frequency", self.highest_frequency, fix)
        return self


TRAINED_BY: dict[str, type[TrainedConfig]] = {
    "rounds": RoundsPrivatizer,
    "sums": SumsPrivatizer,
    "samples": SamplesPrivatizer,
}
KINDS = ("none", "trained", "pretrained")


def privatizer_tables() -> dict[str, type[PrivatizerConfig]]:
    """Every form of the section, by what a TOML file says for it."""
    trained = {f'kind = "trained", trained_by = "{by}"': one for by, one in TRAINED_BY.items()}
    ends = 'kind = "none"', 'kind = "pretrained"'
    return {ends[0]: NoPrivatizer, **trained, ends[1]: PretrainedPrivatizer}


def _of_kind(table: Any) -> PrivatizerConfig:
    if isinstance(table, PrivatizerConfig):
        return table
    require_valid(isinstance(table, dict), "give a table of settings")
    kind, trained_by = table.get("kind", "none"), table.get("trained_by")
    require_valid(kind in KINDS, f"kind = {kind!r}: choose one of {', '.join(KINDS)}")
    if kind != "trained":
        fix = f"trained_by = {trained_by!r}: a filter that the run trains is of kind 'trained'"
        require_valid(trained_by is None, fix)
        found = NoPrivatizer if kind == "none" else PretrainedPrivatizer
        return found.model_validate(table)
    known = isinstance(trained_by, str) and trained_by in TRAINED_BY
    fix = f"trained_by = {trained_by!r}: choose one of {', '.join(TRAINED_BY)}"
    require_valid(known, fix)
    return TRAINED_BY[str(trained_by)].model_validate(table)


PrivatizerSection = Annotated[SerializeAsAny[PrivatizerConfig], BeforeValidator(_of_kind)]
