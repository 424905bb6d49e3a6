"""The settings of each kind of task, and the registry of kinds.

A task is one thing that a federation learns in rounds. Its table names its ``kind``, has the
mechanism of its rounds, and what its kind needs besides. A kind of another package is found through
the entry points ``fedlens.tasks`` (here, on the server) and ``fedlens.client_tasks`` (on nodes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fedlens.foundation.registry import Registry
from fedlens.models.precision import Precision
from fedlens.server.config import needs
from fedlens.server.config.section import (
    Count,
    NoiseMultiplier,
    NotNegative,
    Positive,
    Probability,
    Section,
    Share,
    require_valid,
)

TRAINING = "training round"
"""Purpose of ledger entries, where a kind says no other."""


class TaskConfig(Section):
    """What every task has: its rounds and the mechanism of each."""

    requires: ClassVar[frozenset[str]] = frozenset()
    """What tasks before it must provide, in words such as those of
    `fedlens.server.config.needs`.
    """
    provides: ClassVar[frozenset[str]] = frozenset()
    """What tasks after it, and the run's samples, may build on."""
    trains_filter_by: ClassVar[str] = ""
    """Which ``privatizer.trained_by`` it has a part in; empty for a task that trains no filter."""
    of_labels: ClassVar[bool] = False
    """Whether it learns nothing of records without labels, whatever its settings."""
    of_all_users: ClassVar[bool] = False
    """Whether its release is a mean over all users, as no trimmed sum is."""
    weights_stepped: ClassVar[bool] = False
    """Whether nodes step weights in record mode: ``local_steps`` of ``local_rate`` each, within
    ``weight_limit``."""

    kind: str
    """Which kind of task it is."""
    rounds: Count = 1
    """Rounds, each with one release. Those of all tasks together, T, are declared beforehand: the
    Bayesian accountant needs it."""
    sampling_rate: Probability = 1.0
    """q: probability with which each user takes part in a round (Poisson sampling); in record mode
    that of each record in a step on its node."""
    noise_multiplier: NoiseMultiplier = 4.0
    """z: noise standard deviation over the clipping norm, on the *sum* of clipped contributions
    (sensitivity C, one user or record added or removed). 0 gives no privacy at all."""
    clipping_norm: Positive = 0.3
    """C: L2 bound of one user's update (user mode) or one record's gradient (record mode)."""

    @property
    def reads_labels(self) -> bool:
        """Whether it learns nothing of records without labels."""
        return self.of_labels

    @property
    def steps_on_nodes(self) -> int:
        """Record mode: mechanisms that a round is made of on each node."""
        return 1

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return f"{self.kind} update"

    @property
    def purpose(self) -> str:
        """What the ledger says that a round is for."""
        return TRAINING

    @property
    def positive(self) -> bool:
        """Whether no sound update has a number below 0."""
        return False

    @property
    def framed_components(self) -> int:
        """Principal components that it takes from synthetic images before its first round."""
        return 0

    @property
    def asked(self) -> str:
        """The probe that users are asked, as it is written; empty for none."""
        return ""

    @property
    def asked_run(self) -> str:
        """Folder of another run whose released network travels with the question; empty: none."""
        return ""

    @property
    def unbounded_by(self) -> str:
        """Which setting leaves a node's reply without a bound in record mode; empty for none."""
        return ""

    def steps_after(self, number: int) -> int:
        """Steps that the generator is planned to take after the task's round, from 1."""
        return 0

    def filter_is_trained(self, rounds: int, applied: int) -> bool:
        """Whether the filter that it provides has learned what it was to learn.

        Args:
            rounds: of the task, that are behind.
            applied: releases that the filter's task took in.
        """
        return True


class CriticConfig(TaskConfig):
    """A task whose release the generator learns from in each of its rounds."""

    provides = frozenset({needs.GENERATOR_LOSS})
    releases_class_means: ClassVar[bool] = False
    """Whether what it releases are the classes' mean features, whose signal can be told."""

    generator_steps: Count = 100
    """Generator steps a round."""
    generator_rate: Positive = 0.008
    """Learning rate of the generator's Adam at the task's start; it falls to a twentieth."""
    faithful_steps: Annotated[int, Field(ge=0)] = 0
    """Where an annotator guides the generator: steps that the generator of faithful samples takes
    instead, on the losses of all critics that have any such steps; the last one's number holds. 0:
    none on this critic."""
    later_weight: NotNegative = 1.0
    """Weight of this critic's loss beside those of later tasks; 0 lets go of it."""

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return f"{self.kind} critic update"

    def steps_after(self, number: int) -> int:
        """Steps that the generator is planned to take after the task's round, from 1."""
        return self.generator_steps


class FrozenConfig(CriticConfig):
    """A critic that is linear in fixed random patch features."""

    provides = frozenset({needs.GENERATOR_LOSS, needs.FEATURES})
    releases_class_means = True

    kind: Literal["frozen"] = "frozen"
    faithful_steps: Annotated[int, Field(ge=0)] = 150
    feature_seed: int = 123
    """Public seed of the random features."""


class FocusedConfig(CriticConfig):
    """The frozen critic once more, along the directions that a first generator's samples span.

    It measures from their class means. A ``frozen`` task must come before it.
    """

    requires = frozenset({needs.FEATURES})
    releases_class_means = True

    kind: Literal["focused"] = "focused"
    faithful_steps: Annotated[int, Field(ge=0)] = 150
    components: Count = 400
    """Directions that it keeps."""

    @property
    def framed_components(self) -> int:
        """Principal components that it takes from synthetic images before its first round."""
        return self.components


class WganConfig(CriticConfig):
    """The convolutional WGAN critic: users send the change of its weights after local steps."""

    weights_stepped = True

    kind: Literal["wgan"] = "wgan"
    loss: Literal["wasserstein", "hinge"] = "wasserstein"
    """What the critic minimises: ``wasserstein`` or ``hinge``."""
    width: Count = 8
    """Channels of the first convolution."""
    hidden: Count = 32
    """Units before the head."""
    local_steps: Count = 1
    """SGD steps of a user (or of a node in record mode) a round."""
    local_batch: Count = 10
    """Real and as many generated images a local step; record mode draws by ``sampling_rate``."""
    local_rate: Positive = 0.05
    """Learning rate of the local steps."""
    weight_limit: NotNegative = 2.0
    """Weights are kept within ±limit/√fan-in, which bounds the critic's slope; 0 for no limit."""
    engine: Literal["auto", "loop", "vmap", "columns"] = "auto"
    """User mode: how nodes compute several local steps of many users. ``loop``: one user after the
    other. ``vmap``: together, in the framework's batched operations. ``columns``: together, as
    batched products on patches. ``auto``: ``columns`` for critics of 60,000 parameters or more."""
    precision: Precision = "float32"
    """Of the products of the pass back in the engine ``columns``: ``float32``, ``bfloat16``, or
    ``auto``, which is bfloat16 where the server's processor is faster so. All else is float32."""
    optimiser: Literal["sgd", "momentum", "adam"] = "adam"
    """Server's step on the noisy mean update: ``sgd``, ``momentum`` or ``adam``."""
    rate: Positive = 0.002
    """Learning rate of that step."""
    last_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of ``rate`` that the last round has; it falls to that along a cosine."""

    @property
    def steps_on_nodes(self) -> int:
        """Record mode: mechanisms that a round is made of on each node."""
        return self.local_steps

    @property
    def unbounded_by(self) -> str:
        """Which setting leaves a node's reply without a bound in record mode; empty for none."""
        return "" if self.weight_limit else "weight_limit"


class AnnotatorConfig(TaskConfig):
    """The private annotator: softmax regression on fixed features, trained by the federation.

    Synthetic samples alone frame its features. It guides the generator's last steps, filters
    samples and labels images for students.
    """

    provides = frozenset({needs.LABELS})
    of_labels = True

    kind: Literal["annotator"] = "annotator"
    rounds: Count = 20
    noise_multiplier: NoiseMultiplier = 30.0
    clipping_norm: Positive = 1.0
    features: Literal["scattering", "orientations"] = "scattering"
    """``scattering``: two orders of wavelet moduli. ``orientations``: histograms of edge
    directions, in a third of the time."""
    components: Count = 400
    """Principal components of the features that are kept."""
    decorrelation: NotNegative = 0.75
    """p: component i is divided by (its eigenvalue + a ridge)^(p/2); 0 keeps its spread."""
    rate: NotNegative = 60.0
    """Learning rate of the server's step on the noisy mean gradient. 0: the rate that suits the
    noise, whatever the number of users and the guarantee: with it the noise of all rounds moves a
    logit by 0.9 (standard deviation). No step is longer than 200 clipping norms."""
    momentum: Share = 0.0
    """Momentum of that step."""
    weight: NotNegative = 0.15
    """Weight of the annotator's cross-entropy in the generator's guided loss."""
    sharpness: Positive = 2.0
    """The annotator's logits are multiplied by this where it guides."""
    guided_steps: Annotated[int, Field(ge=0)] = 300
    """Generator steps after the last round, on the critics' losses and the annotator's."""
    guided_rate: Positive = 0.002
    """Learning rate of the generator's Adam at the start of these steps."""
    judged_every: Count = 2
    """In these steps the annotator judges one image of this many of a batch. 4 makes such a step a
    fifth shorter, and its gradient noisier by a third."""

    @property
    def framed_components(self) -> int:
        """Principal components that it takes from synthetic images before its first round."""
        return self.components

    def steps_after(self, number: int) -> int:
        """Steps that the generator is planned to take after the task's round, from 1."""
        return self.guided_steps if number == self.rounds else 0


ORDERS = {"information": (0.0, 1.0), "alpha": (1e-3, math.inf)}
"""Least and largest ``alpha`` of our methods; another package's say so themselves."""


class PrivatizerTaskConfig(TaskConfig):
    """Rounds in which users train the filter of ``privatizer.trained_by = "rounds"``.

    They come first. In all later tasks nodes filter their images before anything else is made of
    them.
    """

    provides = frozenset({needs.PRIVATIZER})
    trains_filter_by = "rounds"
    of_labels = True

    kind: Literal["privatizer"] = "privatizer"
    rounds: Count = 10
    noise_multiplier: NoiseMultiplier = 8.0
    clipping_norm: Positive = 0.1
    """C: L2 bound of a user's whole update. Its blocks (each network's gradient, the shared
    scalars, the shares of the sensitive attribute's classes) are clipped to fixed shares of it."""
    method: str = "information"
    """A privatizer's method: ``information`` weighs lost utility against leakage, in nats;
    ``alpha`` takes Arimoto's order-α uncertainty of an adversary."""
    alpha: NotNegative = 0.5
    """``information``: from 0 (keep the utility at any price) to 1 (hide the sensitive attribute at
    any price). ``alpha``: the order, above 0; 1 is Shannon's."""
    weight: NotNegative = 1.0
    """``alpha``: weight of the adversary's uncertainty beside distortion and utility."""
    adversary_width: Count = 4
    """Channels of the first convolution of the adversary and of the utility classifiers, or their
    hidden units."""
    batch: Count = 10
    """Records of a user that enter a round, drawn with repetition where there are fewer."""
    rate: Positive = 0.001
    """Learning rate of the server's step on the filter."""
    adversary_rate: Positive = 0.001
    """Learning rate of the server's step on the adversary and the utility classifiers."""
    optimiser: Literal["adam", "sgd"] = "adam"
    """Those steps, on noisy mean gradients: ``adam`` or ``sgd``."""
    lead: Annotated[int, Field(ge=0)] = 0
    """First rounds in which the filter rests while the other networks learn."""
    filter_share: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """Share of C² that bounds the filter's block; the other networks have the rest, less what the
    scalars and the shares of the sensitive attribute's classes take."""
    smoothing: Share = 0.8
    """Decay of the moving averages of these scalars and shares."""

    @model_validator(mode="after")
    def _a_method_and_its_settings(self) -> PrivatizerTaskConfig:
        if self.method not in ORDERS:
            from fedlens.privatizers.methods import (
                METHODS,  # brings PyTorch; our own can do without
            )

            require_valid(self.method in METHODS, f"method: {METHODS.unknown(self.method)}")
        least, most = ORDERS.get(self.method, (0.0, math.inf))
        require_valid(least <= self.alpha <= most, f"alpha: give a number in [{least:g}, {most:g}]")
        heeded = self.method != "information" or self.weight == 1
        require_valid(heeded, "weight: the method 'information' has none, leave it at 1")
        require_valid(self.lead < self.rounds, "lead: the filter needs rounds too, give fewer")
        return self

    def filter_is_trained(self, rounds: int, applied: int) -> bool:
        """Whether its rounds are over and the filter has learned in one of them."""
        return rounds >= self.rounds and applied > self.lead


@dataclass(frozen=True)
class TaskKind:
    """A kind of task, as configurations and the server know it."""

    config: type[TaskConfig]
    server: str
    """Its class on the server, ``"module:Class"``; imported when a run begins."""


FROZEN = TaskKind(FrozenConfig, "fedlens.server.tasks.frozen:FrozenTask")
FOCUSED = TaskKind(FocusedConfig, "fedlens.server.tasks.focused:FocusedTask")
WGAN = TaskKind(WganConfig, "fedlens.server.tasks.wgan:WganTask")
ANNOTATOR = TaskKind(AnnotatorConfig, "fedlens.server.tasks.annotator:AnnotatorTask")
PRIVATIZER = TaskKind(PrivatizerTaskConfig, "fedlens.server.tasks.privatizer:PrivatizerTask")

TASK_KINDS: Registry[TaskKind] = Registry(
    "kind of task",
    "fedlens.tasks",
    {
        name: f"fedlens.server.config.tasks:{name.upper()}"
        for name in ("frozen", "focused", "wgan", "annotator", "privatizer")
    }
    | {
        "frequencies": "fedlens.server.config.tasks:FREQUENCIES",
        "moments": "fedlens.server.config.tasks:MOMENTS",
        "probe": "fedlens.server.config.probe:PROBING",
        "card": "fedlens.server.config.card:CARD",
    },
)


def task_config(table: Any) -> TaskConfig:
    """A task's table as its kind's settings.

    Raises:
        ValueError: it is no table, or names no kind that there is.
    """
    if isinstance(table, TaskConfig):
        return table
    require_valid(isinstance(table, dict), "give a table of settings")
    kind = table.get("kind")
    require_valid(isinstance(kind, str), f"give a kind: one of {', '.join(TASK_KINDS)}")
    return TASK_KINDS[kind].config.model_validate(table)


# Settings of the tasks whose noised sums a privatizer is fitted on.


class FrequenciesConfig(TaskConfig):
    """Sums that say where images' low frequencies lie; for ``privatizer.trained_by = "sums"``.

    It comes first. Each user sends the mean of the own images' lowest frequencies and of their
    squares.
    """

    provides = frozenset({needs.SCALES})
    trains_filter_by = "sums"

    kind: Literal["frequencies"] = "frequencies"
    noise_multiplier: NoiseMultiplier = 5.0
    clipping_norm: Positive = 2.0
    """C: L2 bound of a user's update; √10 is the longest that there is."""

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return "frequencies of images"


class MomentsConfig(TaskConfig):
    """Sums that say what images of each pair of class and attribute are like.

    For ``privatizer.trained_by = "sums"``; it comes right after a task of kind ``frequencies``.
    Each user sends, for each pair, the number of own images, the sum of their features and that of
    the features' products. The filter is fitted on the release of its last round, or on the mean of
    several rounds' releases, which costs nothing; all later tasks look through it.
    """

    requires = frozenset({needs.SCALES})
    provides = frozenset({needs.PRIVATIZER})
    trains_filter_by = "sums"
    of_labels = True

    kind: Literal["moments"] = "moments"
    noise_multiplier: NoiseMultiplier = 2.0
    clipping_norm: Positive = 3.0
    """C: L2 bound of a user's update. One image adds 1.44 at most, ten of several classes about
    3."""

    @property
    def released(self) -> str:
        """What the ledger says that a round releases."""
        return "moments of images"


FREQUENCIES = TaskKind(FrequenciesConfig, "fedlens.server.tasks.frequencies:FrequenciesTask")
MOMENTS = TaskKind(MomentsConfig, "fedlens.server.tasks.moments:MomentsTask")
