"""Everything that decides a run's result, in one frozen tree that is checked when it is made.

The same tree is read from a TOML file, from ``--set section.key=value`` and from Flower's flat
run config; its canonical JSON digest names the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import tomli_w

from server.config.privatizer import PrivatizerConfig
from server.config.sections import (
    POPULATION_NAME,
    AnnotatorConfig,
    ConfigError,
    CriticConfig,
    DataConfig,
    GeneratorConfig,
    PrivacyConfig,
    ReleaseConfig,
    RoundsConfig,
    WarmupConfig,
    require,
)

__all__ = ["POPULATION_NAME", "RUN_KEYS", "Config", "ConfigError", "DataConfig"]

RUN_KEYS = ("run.out", "run.store")
"""Keys of Flower's run config that say where a run goes, not what it is."""
RECORD_DELTA = 1e-5
"""Largest δ in record mode, where silos do not tell how many records they hold."""
_LATER = (
    "privacy.population",
    "critic.components",
    "critic.last_rate",
    "privatizer.",
    "warmup.",
    "annotator.",
    "generator.guided_rate",
    "release.agreement",
    "release.attempts",
)
"""Keys (and sections) that runs of before had not: where they have their defaults they are left out
of the digest, so that such runs keep theirs."""


@dataclass(frozen=True)
class Config:
    """A whole run."""

    seed: int = 0
    """Seed of everything that is not private: initial weights, partition, generator noise."""
    data: DataConfig = field(default_factory=DataConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    rounds: RoundsConfig = field(default_factory=RoundsConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    privatizer: PrivatizerConfig = field(default_factory=PrivatizerConfig)
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    annotator: AnnotatorConfig = field(default_factory=AnnotatorConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    release: ReleaseConfig = field(default_factory=ReleaseConfig)

    def __post_init__(self) -> None:
        require(0 <= self.seed < 2**62, "seed", self.seed, "give an integer ≥ 0, below 2^62")
        wgan = self.critic.family == "wgan"
        require(
            self.critic.family != "frozen" or self.warmup.rounds == 0,
            "warmup.rounds",
            self.warmup.rounds,
            "it comes before another critic: set critic.family = 'focused' or 'wgan', or leave it "
            "at 0",
        )
        require(
            self.critic.family != "focused" or self.warmup.rounds > 0,
            "warmup.rounds",
            self.warmup.rounds,
            "the focused critic looks at the warm-up's samples: give 1 at least",
        )
        record = self.privacy.unit == "record"
        require(
            not (record and self.privatizer.active),
            "privatizer.method",
            self.privatizer.method,
            "privatizers are for users, not records: set privacy.unit = 'user', or leave it out",
        )
        require(
            not (record and wgan and self.critic.weight_limit == 0),
            "critic.weight_limit",
            self.critic.weight_limit,
            "record mode needs a limit above 0: it bounds what a node's reply may hold",
        )
        largest = RECORD_DELTA if record else 1 / self.data.users
        unit = "record mode" if record else "1/N"
        require(
            not self.noised or self.privacy.delta <= largest,
            "privacy.delta",
            self.privacy.delta,
            f"make it at most {largest:g} ({unit}): a larger δ protects nobody",
        )
        require(
            self.release.agreement == 0 or self.annotator.rounds > 0,
            "release.agreement",
            self.release.agreement,
            "the annotator is the filter: set annotator.rounds, or leave it at 0",
        )

    @property
    def noised(self) -> bool:
        """Whether every part of the run adds noise; without it nobody is protected."""
        others = [part for part in self._other_parts if part.rounds]
        return all(part.noise_multiplier > 0 for part in (self.privacy, *others))

    @property
    def _other_parts(self) -> tuple[PrivatizerConfig | WarmupConfig | AnnotatorConfig, ...]:
        return self.privatizer, self.warmup, self.annotator

    def flat(self) -> dict[str, bool | int | float | str]:
        """The tree as ``{"section.key": value}``, the form of Flower's run config."""
        tree = asdict(self)
        flat = {
            f"{s}.{k}": v
            for s, part in tree.items()
            if isinstance(part, dict)
            for k, v in part.items()
        }
        return {"seed": self.seed, **flat}

    def updated(self, settings: Mapping[str, object]) -> Config:
        """A copy with ``settings`` (flat keys) in place of its own.

        Raises:
            ConfigError: an unknown key, a value of the wrong type, or one out of range.
        """
        sections: dict[str, dict[str, Any]] = {}
        known = self.flat()
        for key, value in settings.items():
            if key not in known:
                raise ConfigError(f"unknown setting {key!r}{_nearest(key, known)}")
            section, _, name = key.rpartition(".")
            sections.setdefault(section, {})[name] = _coerce(key, value, type(known[key]))
        parts: dict[str, Any] = {
            section: replace(getattr(self, section), **values)
            for section, values in sections.items()
            if section
        }
        return replace(self, **parts, **sections.get("", {}))

    def to_toml(self) -> str:
        """The tree as TOML that `read_config` reads back equal."""
        return tomli_w.dumps(asdict(self))

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of the tree.

        The population is part of it: a run cannot leave its population, or join another, by a
        change of its settings. What runs of before had not is left out where it has its default.
        """
        flat, defaults = self.flat(), Config().flat()
        tree: dict[str, Any] = {"seed": flat.pop("seed")}
        for key, value in flat.items():
            if not (key.startswith(_LATER) and value == defaults[key]):
                section, _, name = key.partition(".")
                tree.setdefault(section, {})[name] = value
        text = json.dumps(tree, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


def _coerce(key: str, value: object, kind: type) -> object:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise ConfigError(f"{key} = {value!r} cannot be used: give a value of type {kind.__name__}")
    return value


def _nearest(key: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(key, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else "; see `fedlens simulate --help`"
