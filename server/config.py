"""Everything that decides a run's result, in one frozen tree that is checked when it is made.

The same tree is read from a TOML file, from ``--set section.key=value`` and from Flower's flat
run config; its canonical JSON digest names the run.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import tomli_w

from accountant.noise import TEST_MODE_VARIABLE, test_mode

RUN_KEYS = ("run.out", "run.store")
"""Keys of Flower's run config that say where a run goes, not what it is."""
LEAST_NOISE = 1e-6
LEAST_DELTA = 1e-30
RECORD_DELTA = 1e-5
"""Largest δ in record mode, where silos do not tell how many records they hold."""
UNITS = ("user", "record")
SCHEMES = ("iid", "dirichlet", "classes", "column")
SIZES = ("equal", "power-law")
FAMILIES = ("frozen", "wgan")
POPULATION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}|/.+")
LOSSES = ("wasserstein", "hinge")
OPTIMISERS = ("sgd", "momentum", "adam")


class ConfigError(ValueError):
    """A setting that cannot be used; the message names it, its value and the mend."""


def _require(holds: bool, name: str, value: object, mend: str) -> None:
    if not holds:
        raise ConfigError(f"{name} = {value!r} cannot be used: {mend}")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    _require(value in allowed, name, value, f"choose one of {', '.join(allowed)}")


def _positive(section: object, prefix: str, *names: str) -> None:
    for name in names:
        value = getattr(section, name)
        _require(
            math.isfinite(value) and value > 0, f"{prefix}.{name}", value, "give a number above 0"
        )


@dataclass(frozen=True)
class DataConfig:
    """Which data the simulated users hold, and how it is dealt out to them."""

    name: str = "embedded"
    """``embedded``, ``mnist``, ``fashion-mnist``, ``image-folder:PATH`` or ``npz:PATH``."""
    dir: str = ""
    """Folder of the data set's files; empty for the usual places."""
    users: int = 1000
    """Enrolled users, N."""
    nodes: int = 2
    """SuperNodes that host them; users are dealt out to nodes in equal blocks."""
    scheme: str = "iid"
    """``iid``, ``dirichlet`` (label skew), ``classes`` (k a user) or ``column`` (user ids)."""
    sizes: str = "equal"
    """Records a user holds: ``equal`` or ``power-law``."""
    alpha: float = 0.3
    """Concentration of the Dirichlet label skew; smaller is more skewed."""
    classes_per_user: int = 2
    """k of the ``classes`` scheme."""
    samples_per_user: int = 0
    """Records a user holds at most; 0 for all there are."""

    def __post_init__(self) -> None:
        _one_of("data.scheme", self.scheme, SCHEMES)
        _one_of("data.sizes", self.sizes, SIZES)
        _positive(self, "data", "users", "nodes", "alpha", "classes_per_user")
        _require(self.samples_per_user >= 0, "data.samples_per_user", self.samples_per_user, "≥ 0")
        _require(
            self.nodes <= self.users, "data.nodes", self.nodes, f"at most data.users = {self.users}"
        )


@dataclass(frozen=True)
class PrivacyConfig:
    """The mechanism and what its guarantee is stated for."""

    unit: str = "user"
    """``user``: a whole user's update is clipped and the server adds the noise. ``record``: each
    record's gradient is clipped and noised on its node."""
    sampling_rate: float = 1.0
    """q: probability with which each user takes part in a round (Poisson sampling); in record
    mode that of each record in a local step."""
    noise_multiplier: float = 4.0
    """z: noise standard deviation over the clipping norm, on the *sum* of clipped contributions
    (sensitivity C, one user or record added or removed). 0 gives no privacy at all."""
    clipping_norm: float = 0.3
    """C: L2 bound of one user's update (user mode) or one record's gradient (record mode)."""
    delta: float = 1e-5
    """δ at which differential privacy is stated; below 1/N."""
    bayesian_delta: float = 1e-10
    """δ at which Bayesian differential privacy is stated."""
    epsilon_budget: float = 0.0
    """Stop before a round that would take DP ε(δ) above this; 0 for no budget."""
    population: str = ""
    """Population whose budget, over all its runs, this run spends from too: a name that `fedlens
    population create` made, or its folder's absolute path. Empty: the run is alone."""
    fixed_seed: int = -1
    """Tests only: draw cohorts and noise from this seed. It voids every guarantee, says so in the
    ledger, and works only where the environment has FEDLENS_TEST_MODE=1. -1: operating system."""

    def __post_init__(self) -> None:
        _one_of("privacy.unit", self.unit, UNITS)
        q, z = self.sampling_rate, self.noise_multiplier
        _require(0 < q <= 1, "privacy.sampling_rate", q, "give a probability in (0, 1]")
        _require(
            z == 0 or LEAST_NOISE <= z < math.inf,
            "privacy.noise_multiplier",
            z,
            f"give a number ≥ {LEAST_NOISE:g}, or 0 (not private)",
        )
        _positive(self, "privacy", "clipping_norm")
        for name in ("delta", "bayesian_delta"):
            value = getattr(self, name)
            _require(
                LEAST_DELTA <= value < 1,
                f"privacy.{name}",
                value,
                f"give a probability in (0, 1), at least {LEAST_DELTA:g}",
            )
        budget = self.epsilon_budget
        _require(
            math.isfinite(budget) and budget >= 0,
            "privacy.epsilon_budget",
            budget,
            "≥ 0 (0: no budget)",
        )
        _require(
            not self.population or POPULATION_NAME.fullmatch(self.population) is not None,
            "privacy.population",
            self.population,
            "give a name of letters, digits, '.', '_' and '-', or an absolute path",
        )
        _require(
            self.fixed_seed < 0 or test_mode(),
            "privacy.fixed_seed",
            self.fixed_seed,
            f"leave it at -1: fixed noise protects nobody (tests set {TEST_MODE_VARIABLE}=1)",
        )


@dataclass(frozen=True)
class RoundsConfig:
    """How many rounds, and how long to wait for a node."""

    count: int = 4
    """T: rounds, each with one release. Declared beforehand: the Bayesian accountant needs it."""
    deadline: float = 600.0
    """Seconds to wait for the replies of a round; a node that has not answered is left out."""

    def __post_init__(self) -> None:
        _positive(self, "rounds", "count", "deadline")


@dataclass(frozen=True)
class CriticConfig:
    """The critic that users train together."""

    family: str = "frozen"
    """``frozen``: linear in fixed random patch features. ``wgan``: the convolutional critic."""
    loss: str = "wasserstein"
    """Loss of the ``wgan`` family: ``wasserstein`` or ``hinge``."""
    width: int = 8
    """Channels of the first convolution (``wgan``)."""
    hidden: int = 32
    """Units before the head (``wgan``)."""
    local_steps: int = 1
    """SGD steps of a user (or of a node in record mode) a round (``wgan``)."""
    local_batch: int = 10
    """Real and as many generated images a local step (``wgan``). In record mode the fixed number
    that a step's sum is divided by: about q times the records of a silo."""
    local_rate: float = 0.05
    """Learning rate of the local steps (``wgan``)."""
    weight_limit: float = 2.0
    """Weights are kept within ±limit/√fan-in, which bounds the critic's slope; 0 for no limit."""
    optimiser: str = "adam"
    """Server's step on the noisy mean update: ``sgd``, ``momentum`` or ``adam`` (``wgan``)."""
    rate: float = 0.002
    """Learning rate of that step."""
    feature_seed: int = 123
    """Public seed of the random features (``frozen``)."""

    def __post_init__(self) -> None:
        _one_of("critic.family", self.family, FAMILIES)
        _one_of("critic.loss", self.loss, LOSSES)
        _one_of("critic.optimiser", self.optimiser, OPTIMISERS)
        _positive(self, "critic", "width", "hidden", "local_steps", "local_batch", "local_rate")
        _positive(self, "critic", "rate")
        _require(self.weight_limit >= 0, "critic.weight_limit", self.weight_limit, "≥ 0")


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator, trained on the server as post-processing of the noisy releases."""

    width: int = 48
    """Channels of the first feature map."""
    latent: int = 64
    """Dimensions of the Gaussian input."""
    steps: int = 100
    """Training steps a round."""
    batch: int = 200
    """Images a step."""
    rate: float = 0.008
    """Learning rate of Adam at the start; it falls to a twentieth along a cosine."""
    averaging: float = 0.99
    """Decay of the moving average of the weights that samples are drawn from."""
    threads: int = 1
    """CPU threads of the server's training. More help on an idle machine and hurt on a busy one."""

    def __post_init__(self) -> None:
        _positive(self, "generator", "width", "latent", "steps", "batch", "rate", "threads")
        _require(
            0 <= self.averaging < 1, "generator.averaging", self.averaging, "give a decay in [0, 1)"
        )


@dataclass(frozen=True)
class ReleaseConfig:
    """What is drawn from the generator into the store."""

    strip: int = 8
    """Images a class in a strip: small batches of always the same noise, to compare rounds by."""
    every: int = 1
    """Rounds from one strip (and kept checkpoint) to the next; the last round always has one."""
    samples: int = 1000
    """Images of the batch that the last round stores for people to inspect and label."""

    def __post_init__(self) -> None:
        _positive(self, "release", "strip", "every", "samples")


@dataclass(frozen=True)
class Config:
    """A whole run."""

    seed: int = 0
    """Seed of everything that is not private: initial weights, partition, generator noise."""
    data: DataConfig = field(default_factory=DataConfig)
    privacy: PrivacyConfig = field(default_factory=PrivacyConfig)
    rounds: RoundsConfig = field(default_factory=RoundsConfig)
    critic: CriticConfig = field(default_factory=CriticConfig)
    generator: GeneratorConfig = field(default_factory=GeneratorConfig)
    release: ReleaseConfig = field(default_factory=ReleaseConfig)

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 2**62, "seed", self.seed, "give an integer ≥ 0, below 2^62")
        _require(
            not (self.privacy.unit == "record" and self.critic.family != "wgan"),
            "privacy.unit",
            self.privacy.unit,
            "record mode trains the wgan critic: set critic.family = 'wgan'",
        )
        record = self.privacy.unit == "record"
        _require(
            not (record and self.critic.weight_limit == 0),
            "critic.weight_limit",
            self.critic.weight_limit,
            "record mode needs a limit above 0: it bounds what a node's reply may hold",
        )
        largest = RECORD_DELTA if record else 1 / self.data.users
        unit = "record mode" if record else "1/N"
        _require(
            self.privacy.noise_multiplier == 0 or self.privacy.delta <= largest,
            "privacy.delta",
            self.privacy.delta,
            f"make it at most {largest:g} ({unit}): a larger δ protects nobody",
        )

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
        change of its settings. It is left out where there is none, as in runs of before there were
        any.
        """
        tree = asdict(self)
        if not self.privacy.population:
            del tree["privacy"]["population"]
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
