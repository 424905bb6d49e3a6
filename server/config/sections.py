"""The sections of a run's configuration: frozen, typed, and checked when they are made."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from accountant.noise import TEST_MODE_VARIABLE, test_mode
from server.config.checks import (
    ConfigError,
    check_mechanism,
    not_negative,
    one_of,
    positive,
    require,
)
from server.config.privatizer import PrivatizerConfig

__all__ = ["ConfigError", "require"]

LEAST_DELTA = 1e-30
UNITS = ("user", "record")
SCHEMES = ("iid", "dirichlet", "classes", "column")
SIZES = ("equal", "power-law")
FAMILIES = ("frozen", "focused", "wgan")
FEATURE_SETS = ("scattering", "orientations")
POPULATION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}|/.+")
LOSSES = ("wasserstein", "hinge")
OPTIMISERS = ("sgd", "momentum", "adam")


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
        one_of("data.scheme", self.scheme, SCHEMES)
        one_of("data.sizes", self.sizes, SIZES)
        positive(self, "data", "users", "nodes", "alpha", "classes_per_user")
        require(self.samples_per_user >= 0, "data.samples_per_user", self.samples_per_user, "≥ 0")
        require(
            self.nodes <= self.users, "data.nodes", self.nodes, f"at most data.users = {self.users}"
        )


@dataclass(frozen=True)
class PrivacyConfig:
    """What is protected, at which δ, and the mechanism of the critic's rounds."""

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
    """Stop before a round that would take DP ε(δ) above this; 0 for no budget. A run of several
    parts that would pass it is refused before it starts."""
    population: str = ""
    """Population whose budget, over all its runs, this run spends from too: a name that `fedlens
    population create` made, or its folder's absolute path. Empty: the run is alone."""
    fixed_seed: int = -1
    """Tests only: draw cohorts and noise from this seed. It voids every guarantee, says so in the
    ledger, and works only where the environment has FEDLENS_TEST_MODE=1. -1: operating system."""

    def __post_init__(self) -> None:
        one_of("privacy.unit", self.unit, UNITS)
        check_mechanism(self, "privacy")
        for name in ("delta", "bayesian_delta"):
            value = getattr(self, name)
            require(
                LEAST_DELTA <= value < 1,
                f"privacy.{name}",
                value,
                f"give a probability in (0, 1), at least {LEAST_DELTA:g}",
            )
        budget = self.epsilon_budget
        require(
            math.isfinite(budget) and budget >= 0,
            "privacy.epsilon_budget",
            budget,
            "≥ 0 (0: no budget)",
        )
        require(
            not self.population or POPULATION_NAME.fullmatch(self.population) is not None,
            "privacy.population",
            self.population,
            "give a name of letters, digits, '.', '_' and '-', or an absolute path",
        )
        require(
            self.fixed_seed < 0 or test_mode(),
            "privacy.fixed_seed",
            self.fixed_seed,
            f"leave it at -1: fixed noise protects nobody (tests set {TEST_MODE_VARIABLE}=1)",
        )


@dataclass(frozen=True)
class RoundsConfig:
    """How many rounds the critic has, and how long to wait for a node."""

    count: int = 4
    """Rounds of the critic, each with one release. Those of all parts together, T, are declared
    beforehand: the Bayesian accountant needs it."""
    deadline: float = 600.0
    """Seconds to wait for the replies of a round; a node that has not answered is left out."""

    def __post_init__(self) -> None:
        positive(self, "rounds", "count", "deadline")


@dataclass(frozen=True)
class CriticConfig:
    """The critic that users train together."""

    family: str = "frozen"
    """``frozen``: linear in fixed random patch features. ``focused``: the same along the directions
    that the warm-up's samples span, relative to their class means. ``wgan``: the convolutional
    critic."""
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
    that a critic's sum is divided by: about q times the records of a silo. The sums of the other
    parts are divided by the same number of records times their own q."""
    local_rate: float = 0.05
    """Learning rate of the local steps (``wgan``)."""
    weight_limit: float = 2.0
    """Weights are kept within ±limit/√fan-in, which bounds the critic's slope; 0 for no limit."""
    optimiser: str = "adam"
    """Server's step on the noisy mean update: ``sgd``, ``momentum`` or ``adam`` (``wgan``)."""
    rate: float = 0.002
    """Learning rate of that step."""
    last_rate: float = 1.0
    """Share of ``rate`` that the last round has; it falls to that along a cosine (``wgan``)."""
    feature_seed: int = 123
    """Public seed of the random features (``frozen``, ``focused``)."""
    components: int = 400
    """Directions that the ``focused`` critic keeps."""

    def __post_init__(self) -> None:
        one_of("critic.family", self.family, FAMILIES)
        one_of("critic.loss", self.loss, LOSSES)
        one_of("critic.optimiser", self.optimiser, OPTIMISERS)
        positive(self, "critic", "width", "hidden", "local_steps", "local_batch", "local_rate")
        positive(self, "critic", "rate", "components")
        require(self.weight_limit >= 0, "critic.weight_limit", self.weight_limit, "≥ 0")
        last = self.last_rate
        require(0 < last <= 1, "critic.last_rate", last, "give a share in (0, 1]; 1: none falls")


@dataclass(frozen=True)
class WarmupConfig:
    """Rounds of the frozen-feature critic before those of a ``focused`` or ``wgan`` critic."""

    rounds: int = 0
    """Rounds, each with one release; 0 for no such part."""
    sampling_rate: float = 1.0
    """q of this part, as in the section ``privacy``."""
    noise_multiplier: float = 4.0
    """z of this part, relative to its own clipping norm, as in the section ``privacy``."""
    clipping_norm: float = 0.3
    """C of this part: L2 bound of a user's (or in record mode a record's) embedding."""
    steps: int = 100
    """Generator steps a round of this part."""
    rate: float = 0.008
    """Learning rate of the generator's Adam at its start; it falls to a twentieth."""
    weight: float = 1.0
    """Weight of the frozen critic's loss beside that of the critic in the rounds that follow; 0
    lets go of it."""

    def __post_init__(self) -> None:
        check_mechanism(self, "warmup")
        positive(self, "warmup", "steps", "rate")
        not_negative(self, "warmup", "rounds", "weight")


@dataclass(frozen=True)
class AnnotatorConfig:
    """The private annotator: softmax regression on fixed features, trained by the federation.

    Its features are framed by synthetic samples alone; it guides the generator's last steps,
    filters samples and labels images for students.
    """

    rounds: int = 0
    """Rounds, each with one release; 0 for no annotator."""
    sampling_rate: float = 1.0
    """q of this part, as in the section ``privacy``."""
    noise_multiplier: float = 30.0
    """z of this part, relative to its own clipping norm, as in the section ``privacy``."""
    clipping_norm: float = 1.0
    """C of this part: L2 bound of a user's mean gradient (or of a record's gradient)."""
    features: str = "scattering"
    """``scattering``: two orders of wavelet moduli. ``orientations``: histograms of edge
    directions, in a third of the time."""
    components: int = 400
    """Principal components of the features that are kept."""
    decorrelation: float = 0.75
    """p: component i is divided by (its eigenvalue + a ridge)^(p/2); 0 keeps its spread."""
    rate: float = 60.0
    """Learning rate of the server's step on the noisy mean gradient."""
    momentum: float = 0.0
    """Momentum of that step."""
    weight: float = 0.15
    """Weight of the annotator's cross-entropy in the generator's guided loss."""
    sharpness: float = 2.0
    """The annotator's logits are multiplied by this where it guides."""
    guided_steps: int = 300
    """Generator steps after the last round, on the critic's loss and the annotator's."""

    def __post_init__(self) -> None:
        check_mechanism(self, "annotator")
        one_of("annotator.features", self.features, FEATURE_SETS)
        positive(self, "annotator", "components", "rate", "sharpness")
        not_negative(self, "annotator", "rounds", "decorrelation", "weight", "guided_steps")
        require(
            0 <= self.momentum < 1, "annotator.momentum", self.momentum, "give a number in [0, 1)"
        )


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
    guided_rate: float = 0.002
    """The same for the steps that the annotator guides."""
    averaging: float = 0.99
    """Decay of the moving average of the weights that samples are drawn from."""
    threads: int = 1
    """CPU threads of the server's training. More help on an idle machine and hurt on a busy one."""

    def __post_init__(self) -> None:
        positive(self, "generator", "width", "latent", "steps", "batch", "rate", "threads")
        positive(self, "generator", "guided_rate")
        require(
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
    agreement: float = 0.0
    """Least probability of the requested class, by the annotator, that a released sample has; 0 for
    no filter."""
    attempts: int = 8
    """Candidates that are drawn for a sample before the best of them is taken."""

    def __post_init__(self) -> None:
        positive(self, "release", "strip", "every", "samples", "attempts")
        agreement = self.agreement
        require(0 <= agreement < 1, "release.agreement", agreement, "give a probability in [0, 1)")


MechanismConfig = PrivacyConfig | PrivatizerConfig | WarmupConfig | AnnotatorConfig
"""A section with a part's sampling rate, noise multiplier and clipping norm."""
