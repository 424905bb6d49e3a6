"""What was released, as data: the accountants price these events and the ledger stores them.

An event's meaning never changes once a ledger has held it. A new kind of event is a new class with
another ``mechanism`` tag, and what an accountant does not know it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, Self, get_args

from fedlens.foundation.errors import WrongUse

Unit = Literal["user", "record"]
Sampler = Literal["poisson", "none"]
Adjacency = Literal["add-remove"]
Kind = Literal["gaussian", "poisson"]

LEAST_NOISE = 1e-6
_LARGEST = 1e300
_TEXT_LIMIT = 200
_MOST = 10**15


class EventError(WrongUse):
    """An event that describes no mechanism we can account for; the message says why."""


@dataclass(frozen=True, order=True)
class PricedMechanism:
    """All that decides an event's cost: the pair of distributions that is hardest to tell apart.

    ``gaussian``
        N(0, z²) against N(1, z²): all units take part, and one of them moves the release by at
        most its sensitivity, 1 here.
    ``poisson``
        N(0, z²) against (1−q)·N(0, z²) + q·N(1, z²), in both directions: one unit is added or
        removed, and takes part with probability q. Mironov, Talwar, Zhang, arXiv:1908.10530.
    """

    kind: Kind
    sampling_rate: float
    """q in (0, 1]; 1 for ``gaussian``."""
    noise: float
    """z ≥ 0: noise standard deviation over the L2 sensitivity."""


def _require(holds: bool, name: str, value: object, fix: str) -> None:
    if not holds:
        raise EventError(f"{name} = {value!r} cannot be used: {fix}")


def _one_of(name: str, value: object, choices: object) -> None:
    allowed = get_args(choices)
    _require(value in allowed, name, value, "choose one of " + ", ".join(map(repr, allowed)))


def _positive_real(name: str, value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    _require(number and abs(value) <= _LARGEST, name, value, "give a finite number")  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Noised:
    """What all events with Gaussian noise share."""

    mechanism_tag: ClassVar[str]
    _numbers: ClassVar[tuple[str, ...]]

    def __post_init__(self) -> None:
        values = self.__dict__
        _one_of("unit", values["unit"], Unit)
        _one_of("adjacency", values["adjacency"], Adjacency)
        for name in self._numbers:
            _positive_real(name, values[name])
            object.__setattr__(self, name, float(values[name]))
        z, count, released = (values[k] for k in ("noise_multiplier", "count", "released"))
        held = z == 0 or z >= LEAST_NOISE
        _require(held, "noise_multiplier", z, f"give {LEAST_NOISE:g} at least, or 0 for no privacy")
        whole = isinstance(count, int) and not isinstance(count, bool)
        _require(whole and 1 <= count <= _MOST, "count", count, f"give 1 to {_MOST:.0e}")
        text = isinstance(released, str) and len(released) <= _TEXT_LIMIT
        _require(text, "released", released, f"give at most {_TEXT_LIMIT} characters")

    @property
    def private(self) -> bool:
        """Whether the noise protects anyone at all."""
        return bool(self.__dict__["noise_multiplier"] > 0)

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `event_from_json` gives an equal event back."""
        return {"mechanism": self.mechanism_tag, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The event that `to_json` described.

        Raises:
            EventError: another mechanism, a missing or unknown key, or a value out of range.
        """
        tag = data.get("mechanism")
        _require(tag == cls.mechanism_tag, "mechanism", tag, f"{cls.mechanism_tag!r} was expected")
        names = {field.name for field in fields(cls)}
        given = set(data) - {"mechanism"}
        _require(given == names, "keys", sorted(given), f"needs exactly {sorted(names)}")
        return cls(**{name: data[name] for name in names})


@dataclass(frozen=True)
class SubsampledGaussian(_Noised):
    """Sums of clipped contributions of a random cohort, each with Gaussian noise added once.

    Every unit takes part with probability ``sampling_rate``; its contribution has L2 norm at most
    ``clipping_norm`` = C; noise of standard deviation ``noise_multiplier · C`` is added to the
    *sum*. Adding or removing one unit moves the sum by at most C.
    Whatever is computed from the noised sum alone costs nothing more.
    """

    mechanism_tag: ClassVar[str] = "subsampled-gaussian"
    _numbers: ClassVar[tuple[str, ...]] = ("sampling_rate", "noise_multiplier", "clipping_norm")

    unit: Unit
    """Whose presence is hidden: a whole user, or one record."""
    sampler: Sampler
    """``poisson``: each unit decided by itself. ``none``: all units take part."""
    adjacency: Adjacency
    """Neighbouring data sets differ by one unit added or removed."""
    sampling_rate: float
    """q in (0, 1]; 1 where the sampler is ``none``."""
    noise_multiplier: float
    """z ≥ 1e-6: noise standard deviation over the clipping norm C.
    0: no one is protected, ε = ∞."""
    clipping_norm: float
    """C > 0: L2 bound of one unit's contribution."""
    count: int = 1
    """How many such releases the event stands for."""
    released: str = "critic update"
    """What was released, in words."""

    def __post_init__(self) -> None:
        _one_of("sampler", self.sampler, Sampler)
        super().__post_init__()
        q, bound = self.sampling_rate, self.clipping_norm
        _require(0 < q <= 1, "sampling_rate", q, "give a probability in (0, 1]")
        full = self.sampler != "none" or q == 1
        _require(full, "sampling_rate", q, "must be 1 when sampler is 'none'")
        _require(bound > 0, "clipping_norm", bound, "give a number above 0")

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of the sum: C."""
        return self.clipping_norm

    @property
    def mechanism(self) -> PricedMechanism:
        """The mechanism in the accountants' terms."""
        kind: Kind = "gaussian" if self.sampling_rate == 1.0 else "poisson"
        return PricedMechanism(kind, self.sampling_rate, self.noise_multiplier)


@dataclass(frozen=True)
class GaussianRelease(_Noised):
    """One vector computed from all units' data, released with Gaussian noise: the plain mechanism.

    Warm starts, histograms, class counts, normalisation constants: whatever is released besides
    the rounds. Noise of standard deviation ``noise_multiplier · sensitivity`` is added to it once.
    """

    mechanism_tag: ClassVar[str] = "gaussian"
    _numbers: ClassVar[tuple[str, ...]] = ("sensitivity", "noise_multiplier")

    unit: Unit
    """Whose presence is hidden: a whole user, or one record."""
    adjacency: Adjacency
    """What ``sensitivity`` is the sensitivity to: a unit added or removed."""
    sensitivity: float
    """> 0: most by which the vector changes in L2 norm between neighbouring data sets."""
    noise_multiplier: float
    """z ≥ 1e-6: noise standard deviation over ``sensitivity``. 0: no one is protected, ε = ∞."""
    count: int = 1
    """How many such releases the event stands for."""
    released: str = "statistic"
    """What was released, in words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _require(self.sensitivity > 0, "sensitivity", self.sensitivity, "give a number above 0")

    @property
    def mechanism(self) -> PricedMechanism:
        """The mechanism in the accountants' terms."""
        return PricedMechanism("gaussian", 1.0, self.noise_multiplier)


Event = SubsampledGaussian | GaussianRelease
"""Any event that the accountants know."""


def event_from_json(data: Mapping[str, Any]) -> Event:
    """The event that some event's ``to_json`` described.

    Raises:
        EventError: a mechanism that is not known, or fields that do not fit it.
    """
    tag = data.get("mechanism")
    for kind in (SubsampledGaussian, GaussianRelease):
        if kind.mechanism_tag == tag:
            return kind.from_json(data)
    known = ", ".join(repr(kind.mechanism_tag) for kind in (SubsampledGaussian, GaussianRelease))
    raise EventError(f"mechanism = {tag!r} cannot be used: only {known} are known")
