"""Guarantees as the table names them, and a run's configuration for each.

A guarantee is one number for everything that a run releases: all parts' noise is scaled by one
factor until the planned total meets it, and the run stops rather than pass it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from fedlens.server.config.loading import read_config
from fedlens.server.config.schedule import scaled
from fedlens.server.config.sections import LEAST_DELTA
from fedlens.server.config.tree import Config
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.settings import ONE_WAY
from fedlens_research.table1.rows import OPEN, PRESET, TableRow

_WRITTEN = re.compile(r"(?P<epsilon>[0-9.eE+-]+)@(?P<delta>[0-9.eE+-]+)")


@dataclass(frozen=True)
class Guarantee:
    """(ε, δ)-differential privacy in total, none at all, or whatever a preset's noise gives."""

    epsilon: float = math.inf
    delta: float = 1.0
    named: str = ""  # ``none`` or ``preset`` where no ε and δ are asked for

    @property
    def private(self) -> bool:
        """Whether (ε, δ) are asked for."""
        return not self.named

    def __str__(self) -> str:
        """As `parse_guarantee` reads it."""
        return self.named or f"{self.epsilon:g}@{_plain(self.delta)}"

    @property
    def words(self) -> str:
        """For people to read."""
        if self.private:
            return f"({self.epsilon:g}, {_plain(self.delta)})-DP"
        return "no privacy" if self.named == OPEN else "its preset's noise"


def _plain(delta: float) -> str:
    """1e-5 rather than 1e-05 or 0.00001."""
    digits, _, exponent = f"{delta:.12e}".partition("e")
    return f"{float(digits):g}e{int(exponent)}"


def parse_guarantee(text: str) -> Guarantee:
    """Read ``EPSILON@DELTA``, ``none`` or ``preset``.

    Raises:
        StudyError: it is neither, or a number is out of range.
    """
    if text in (OPEN, PRESET):
        return Guarantee(named=text)
    found = _WRITTEN.fullmatch(text)
    try:
        epsilon, delta = (float(found[name]) for name in ("epsilon", "delta")) if found else (0, 0)
    except ValueError:
        epsilon = delta = 0.0
    if not (0 < epsilon < math.inf and LEAST_DELTA <= delta < 1):
        raise StudyError(
            f"--guarantee {text!r}: write EPSILON@DELTA, as in 1@1e-10 (ε above 0, δ in (0, 1)), "
            f"or {OPEN!r}, or {PRESET!r}"
        )
    return Guarantee(epsilon, delta)


def configuration(row: TableRow, guarantee: Guarantee, seed: int, data_dir: str = "") -> Config:
    """The configuration of a trial: the preset, the row's settings, noise for the guarantee.

    It leaves nothing to the machine, which presets do: trials are computed in one way everywhere.

    Raises:
        ConfigError: a setting cannot be used, or no noise meets the guarantee.
    """
    top = {**ONE_WAY, **row.all_settings, **row.settings_at.get(str(guarantee), {})}
    config = read_config(row.preset_path).updated(
        {**top, "seed": seed, "data.dir": data_dir, "privacy.epsilon_budget": 0.0}
    )
    if guarantee.named == PRESET:
        return config
    if guarantee.named == OPEN:
        return config.updated({key: 0.0 for key in config.flat() if _is_noise(key)})
    config = config.updated({"privacy.delta": guarantee.delta})
    quiet = scaled(config, epsilon=guarantee.epsilon, delta=guarantee.delta)
    return quiet.updated({"privacy.epsilon_budget": guarantee.epsilon})


def _is_noise(key: str) -> bool:
    return key.endswith(".noise_multiplier")
