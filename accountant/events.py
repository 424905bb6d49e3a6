"""What a round released, as data: the accountants price these events and the ledger stores them.

An event's meaning never changes once a ledger has held it. A new mechanism is a new class with
another ``mechanism`` tag, and what an accountant does not know it refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

Unit = Literal["user", "record"]
Sampler = Literal["poisson", "none"]
Adjacency = Literal["add-remove"]

MECHANISM = "subsampled-gaussian"
LEAST_NOISE = 1e-6
_LARGEST = 1e300
_TEXT_LIMIT = 200


class EventError(ValueError):
    """An event that describes no mechanism we can account for; the message says why."""


def _require(holds: bool, name: str, value: object, mend: str) -> None:
    if not holds:
        raise EventError(f"{name} = {value!r} cannot be used: {mend}")


def _real(name: str, value: object) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    _require(number and abs(value) <= _LARGEST, name, value, "give a finite number")  # type: ignore[arg-type]


@dataclass(frozen=True)
class SubsampledGaussian:
    """Sums of clipped contributions of a random cohort, each with Gaussian noise added once.

    Every unit takes part with probability ``sampling_rate``, independently; its contribution has
    L2 norm at most ``clipping_norm``; noise of standard deviation ``noise_multiplier *
    clipping_norm`` is added to the *sum*, whose sensitivity to one unit added or removed is
    ``clipping_norm``. Whatever is computed from the noised sum alone costs nothing more.
    """

    unit: Unit
    """Whose presence is hidden: a whole user, or one record."""
    sampler: Sampler
    """``poisson``, or ``none`` when everybody takes part (then ``sampling_rate`` is 1)."""
    adjacency: Adjacency
    """Neighbouring data sets differ by one unit added or removed."""
    sampling_rate: float
    """q in (0, 1]."""
    noise_multiplier: float
    """z ≥ 1e-6: noise standard deviation over the sensitivity C. 0: nobody is protected, ε = ∞."""
    clipping_norm: float
    """C > 0: L2 bound of one unit's contribution."""
    count: int = 1
    """How many such releases the event stands for."""
    released: str = "critic update"
    """What was released, in words."""

    def __post_init__(self) -> None:
        _require(self.unit in ("user", "record"), "unit", self.unit, "'user' or 'record'")
        _require(
            self.sampler in ("poisson", "none"), "sampler", self.sampler, "'poisson' or 'none'"
        )
        _require(self.adjacency == "add-remove", "adjacency", self.adjacency, "only 'add-remove'")
        for name in ("sampling_rate", "noise_multiplier", "clipping_norm"):
            _real(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        q, z, bound = self.sampling_rate, self.noise_multiplier, self.clipping_norm
        _require(0 < q <= 1, "sampling_rate", q, "give a probability in (0, 1]")
        _require(
            self.sampler == "poisson" or q == 1,
            "sampling_rate",
            q,
            "must be 1 when sampler is 'none'",
        )
        held = z == 0 or z >= LEAST_NOISE
        _require(held, "noise_multiplier", z, f"give {LEAST_NOISE:g} at least, or 0 for no privacy")
        _require(bound > 0, "clipping_norm", bound, "give a number above 0")
        whole = isinstance(self.count, int) and not isinstance(self.count, bool)
        _require(whole and self.count >= 1, "count", self.count, "give a whole number ≥ 1")
        text = isinstance(self.released, str) and len(self.released) <= _TEXT_LIMIT
        _require(text, "released", self.released, f"give at most {_TEXT_LIMIT} characters")

    @property
    def private(self) -> bool:
        """Whether the noise protects anybody at all."""
        return self.noise_multiplier > 0

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; `from_json` gives an equal event back."""
        return {"mechanism": MECHANISM, **asdict(self)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SubsampledGaussian:
        """The event that `to_json` described.

        Raises:
            EventError: another mechanism, a missing or unknown key, or a value out of range.
        """
        mechanism = data.get("mechanism")
        _require(mechanism == MECHANISM, "mechanism", mechanism, f"only {MECHANISM!r} is known")
        names = {field.name for field in fields(cls)}
        given = set(data) - {"mechanism"}
        _require(given == names, "keys", sorted(given), f"needs exactly {sorted(names)}")
        return cls(**{name: data[name] for name in names})
