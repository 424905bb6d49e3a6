"""The section of the privatizer: a filter that hides a sensitive attribute of every record."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, model_validator

from fedlens.server.config.section import (
    Count,
    NotNegative,
    Positive,
    Section,
    Share,
    require,
    require_mend,
)

MOST_OUTPUT_NOISE_STD = 2.0
MOST_CAPACITY = 40.0
MOST_FREQUENCY = 30


class PrivatizerConfig(Section):
    """No filter: images are as they are."""

    kind: str = "none"
    """Where the filter comes from. ``none``: there is none. ``federated``: users train it in a task
    of kind ``privatizer``. ``moments``: it is fitted on noised sums that users release in tasks of
    kinds ``frequencies`` and ``moments``. ``synthetic``: it is fitted on the run's own samples,
    which costs no privacy. ``pretrained``: it is another run's."""

    @property
    def active(self) -> bool:
        """Whether the run hides anything."""
        return isinstance(self, FilterConfig)

    @property
    def reads_sensitive(self) -> bool:
        """Whether nodes must know the sensitive attribute of their records."""
        return self.active

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
    is released passes a few noisy numbers; for ``synthetic``, and a ``pretrained`` one of that
    kind. ``spectral``: such a code of an image's lowest frequencies; for ``moments``, and a
    ``pretrained`` one of that kind."""
    width: Count = 4
    """Channels of the U-Net at full size or at half size before and after the code, or units of the
    dense filter or of the spectral one's second layer."""
    consenting: Share = 0.0
    """Simulated share of users who do not mind: the filter is told so of each record and hides
    nothing of theirs (``code``, ``spectral``: lets their images pass as they are). 0 leaves that
    input out."""

    @model_validator(mode="after")
    def _can_be_told(self) -> FilterConfig:
        mend = "privatizer.network = 'dense' cannot be told of each record; leave it at 0"
        told = self.consenting == 0 or self.network != "dense"
        require(told, "privatizer.consenting", self.consenting, mend)
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


class FederatedPrivatizer(ConditionedConfig):
    """A filter that the run's task of kind ``privatizer`` trains; all later tasks look through it.

    Users are protected in that task by the same mechanism and ledger as in the others.
    """

    kind: Literal["federated"] = "federated"
    network: Literal["unet", "dense"] = "unet"


OutputNoise = Annotated[float, Field(ge=0, le=MOST_OUTPUT_NOISE_STD)]
Capacity = Annotated[float, Field(gt=0, le=MOST_CAPACITY)]
Frequency = Annotated[int, Field(gt=0, le=MOST_FREQUENCY)]


class FittedConfig(FilterConfig):
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


class SyntheticPrivatizer(FittedConfig):
    """A filter that is fitted on samples of pairs of class and attribute, after all tasks.

    That is post-processing and costs no privacy. Every sample that is stored went through it.
    """

    kind: Literal["synthetic"] = "synthetic"
    network: Literal["code"] = "code"
    output_noise_std: OutputNoise = 0.1
    """``code``: standard deviation of fresh noise on each released pixel (their range is 2). The
    filter is fitted with .1 of it at most; more drowns what it lets through of single real images,
    which it has never met."""

    @property
    def pairs(self) -> bool:
        """Whether the generator's classes are pairs of class and sensitive attribute."""
        return True


class MomentsPrivatizer(ConditionedConfig, FittedConfig):
    """A filter that is fitted on two noised sums over users; all later tasks look through it.

    A task of kind ``frequencies`` and one of kind ``moments`` ask for the sums, before all others.
    The fit is post-processing: as many steps and fresh adversaries as it takes, at no cost.
    """

    kind: Literal["moments"] = "moments"
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
    def reads_sensitive(self) -> bool:
        """Whether nodes must know the attribute: the filter hides it as it is."""
        return self.condition

    @model_validator(mode="after")
    def _noise_has_a_place(self) -> PretrainedPrivatizer:
        changed = self.network != "code" and self.output_noise_std != 0.1
        mend = f"network {self.network!r} releases no such noise: leave it at 0.1"
        require(not changed, "privatizer.output_noise_std", self.output_noise_std, mend)
        mend = f"network {self.network!r} has no code: leave it at 6"
        limited = self.network in ("code", "spectral") or self.capacity == 6.0
        require(limited, "privatizer.capacity", self.capacity, mend)
        mend = f"network {self.network!r} sees whole images: leave it at 10"
        seen = self.network == "spectral" or self.highest_frequency == 10
        require(seen, "privatizer.highest_frequency", self.highest_frequency, mend)
        return self


PRIVATIZER_KINDS: dict[str, type[PrivatizerConfig]] = {
    "none": NoPrivatizer,
    "federated": FederatedPrivatizer,
    "moments": MomentsPrivatizer,
    "synthetic": SyntheticPrivatizer,
    "pretrained": PretrainedPrivatizer,
}


def _of_kind(table: Any) -> PrivatizerConfig:
    if isinstance(table, PrivatizerConfig):
        return table
    require_mend(isinstance(table, dict), "give a table of settings")
    kind = table.get("kind", "none")
    known = isinstance(kind, str) and kind in PRIVATIZER_KINDS
    require_mend(known, f"kind = {kind!r}: choose one of {', '.join(PRIVATIZER_KINDS)}")
    return PRIVATIZER_KINDS[kind].model_validate(table)


PrivatizerSection = Annotated[SerializeAsAny[PrivatizerConfig], BeforeValidator(_of_kind)]
