"""What is asked of settings, and the error that refuses them."""

from __future__ import annotations

import math
from typing import Protocol

from foundation.errors import WrongUse

LEAST_NOISE = 1e-6


class Mechanism(Protocol):
    """A section with the numbers of a part's mechanism."""

    @property
    def sampling_rate(self) -> float:
        """The probability q of taking part."""

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier z, relative to C."""

    @property
    def clipping_norm(self) -> float:
        """The L2 bound C of one contribution."""


class ConfigError(WrongUse):
    """A setting that cannot be used; the message names it, its value and the mend."""


def require(holds: bool, name: str, value: object, mend: str) -> None:
    """Refuse a setting.

    Raises:
        ConfigError: ``holds`` is False.
    """
    if not holds:
        raise ConfigError(f"{name} = {value!r} cannot be used: {mend}")


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is none of ``allowed``."""
    require(value in allowed, name, value, f"choose one of {', '.join(allowed)}")


def positive(section: object, prefix: str, *names: str) -> None:
    """Refuse named settings of a section that are not above 0."""
    for name in names:
        value = getattr(section, name)
        require(
            math.isfinite(value) and value > 0, f"{prefix}.{name}", value, "give a number above 0"
        )


def not_negative(section: object, prefix: str, *names: str) -> None:
    """Refuse named settings of a section that are below 0."""
    for name in names:
        value = getattr(section, name)
        require(math.isfinite(value) and value >= 0, f"{prefix}.{name}", value, "give a number ≥ 0")


def check_mechanism(section: Mechanism, prefix: str) -> None:
    """Refuse a sampling rate, noise multiplier or clipping norm that no mechanism has."""
    q, z = section.sampling_rate, section.noise_multiplier
    require(0 < q <= 1, f"{prefix}.sampling_rate", q, "give a probability in (0, 1]")
    require(
        z == 0 or LEAST_NOISE <= z < math.inf,
        f"{prefix}.noise_multiplier",
        z,
        f"give a number ≥ {LEAST_NOISE:g}, or 0 (not private)",
    )
    positive(section, prefix, "clipping_norm")
