"""The sections of a configuration that hold for the whole run."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field, model_validator

from fedlens.accountant.noise import TEST_MODE_VARIABLE, test_mode
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.unlabelled import NONE, OWN, OWN_OR, PARTLY, label_model_in
from fedlens.models.precision import Precision
from fedlens.server.config.section import (
    Count,
    NotNegative,
    NotNegativeCount,
    Positive,
    Probability,
    Section,
    Share,
    require,
    require_valid,
)
from fedlens.server.config.slices import a_slice, declared_slices, parse_slices

# The section of the private split: users on one side of how well a fixed model does on them.

MOST_SCORED = 256


class SplitConfig(Section):
    """A private split: each device finds out on which side its user is; no release says who."""

    side: Literal["none", "below", "from"] = "none"
    """Which users the run learns from: those whose score lies ``below`` the threshold, or those
    whose score lies at it or above, ``from`` it on. All others contribute zeros, as users without
    records do. ``none``: everyone."""
    model: str = ""
    """Absolute path of the run whose released annotator scores each user's records. It travels in
    every request, and what that run cost is in this run's figures."""
    rule: Literal["recognised", "confidence"] = "recognised"
    """A user's score: the share of records whose label the model finds likeliest (``recognised``),
    or the mean probability that it gives their labels (``confidence``)."""
    threshold: Annotated[float, Field(gt=0, le=1)] = 0.7
    """Score at which the sides meet: fixed beforehand, public."""
    records: Annotated[int, Field(gt=0, le=MOST_SCORED)] = 16
    """Records of a user that are scored at most. The split's own key draws them, so that they are
    the same in every run on it."""
    share: Probability = 1.0
    """Share of the users that is expected on the side. It is part of the fixed number that sums are
    divided by, and a guess: the true share is private. 1 makes releases small, never less
    private."""
    other_people: bool = False
    """Declare that no user of this run was one of the model's: its cost is then left out."""

    @property
    def active(self) -> bool:
        """Whether the run is about one side."""
        return self.side != "none"

    @property
    def expected(self) -> float:
        """Share of the enrolled users that sums are reckoned to be of."""
        return self.share if self.active else 1.0

    @model_validator(mode="after")
    def _names_a_model(self) -> SplitConfig:
        fix = "name a run with a released annotator in split.model too"
        require(not self.active or bool(self.model), "split.side", self.side, fix)
        return self


# The section of membership: how many of the declared nodes and users a run goes on with.


class MembershipConfig(Section):
    """Which part of the federation has to be there; nodes may come late, leave, return and grow.

    ``data.nodes`` and ``data.users`` are public bounds. All that sums are divided by comes from
    them, never from who is there.
    """

    least_nodes: Probability = 0.5
    """Share of ``data.nodes`` that a round needs: fewer, and the run waits."""
    least_users: Probability = 0.8
    """Share of ``data.users`` that have to be enrolled on the nodes that are there."""
    largest_node: Probability = 1.0
    """Share of ``data.users`` that one node may enrol; its further users take part in nothing."""
    patience: NotNegative = 600.0
    """Seconds that a run waits: at its beginning for all declared nodes, later for as many as a
    round needs. Then it stops and says why; `fedlens resume`, or for a deployed run the same
    `fedlens deploy run`, goes on once they are back."""


LEAST_DELTA = 1e-30
POPULATION_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}|/.+")

MOST_RECORDS = 65_536
"""Records of a user beyond which one chunk of users would not fit in memory."""

Delta = Annotated[float, Field(ge=LEAST_DELTA, lt=1)]


def _where_from(value: str) -> str:
    fix = (
        "give 'own', 'none', 'own-or-none', or 'model:FILE' or 'own-or-model:FILE' with a file "
        "that `fedlens student --out` wrote"
    )
    require_valid(value in (OWN, NONE, PARTLY) or bool(label_model_in(value)), fix)
    return value


def _planted(value: str) -> str:
    if not value:
        return value
    # faults are written with torch, which settings must not take the time to load
    from fedlens.models.faults.planting import parse_faults

    try:
        parse_faults(value)
    except WrongUse as error:
        raise ValueError(str(error)) from None
    return value


class DataConfig(Section):
    """Which data the simulated users hold, and how it is dealt out to them."""

    name: str = "embedded"
    """A data set's name, or one with a path, such as ``npz:PATH``, ``hf:PATH`` or
    ``folder:PATH,utility=COLUMN,sensitive=COLUMN`` (pictures with a manifest). For nodes with data
    of their own: ``federation``, which goes by the contract ``federation.toml`` in the SuperLink's
    folder, or ``federation:PATH``."""
    dir: str = ""
    """Folder of the data set's files; empty for the usual places."""
    labels: Annotated[str, AfterValidator(_where_from)] = OWN
    """What records are labelled by. ``own``: as they are. ``none``: by nothing, whatever labels the
    data have; tasks that need labels are left out of a preset. ``model:FILE``: each device names
    its records by a label model, a file of ``fedlens student --out``, and tells nobody which.
    ``own-or-none`` and ``own-or-model:FILE``: records that have a label keep it, and this is for
    the others. With ``own-or-none`` all records teach what pictures look like, those with labels
    teach the annotator, and samples are unlabelled."""
    labelled_users: Probability = 1.0
    """Simulation only, with ``own-or-none`` or ``own-or-model:FILE``: share of the users whose
    records keep their labels. Those of the others have none."""
    least_confidence: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """With a label model in ``labels``: least probability, by that model, of the name that it
    gives a record. Records that it is less sure of take no part. 0: all take part."""
    users: Count = 1000
    """Enrolled users, N."""
    nodes: Count = 2
    """SuperNodes that host them; users are dealt out to nodes in equal blocks."""
    scheme: Literal["iid", "dirichlet", "classes", "column"] = "iid"
    """``iid``, ``dirichlet`` (label skew), ``classes`` (k a user) or ``column`` (user ids)."""
    sizes: Literal["equal", "power-law"] = "equal"
    """Records a user holds: ``equal`` or ``power-law``."""
    alpha: Positive = 0.3
    """Concentration of the Dirichlet label skew; smaller is more skewed."""
    classes_per_user: Count = 2
    """k of the ``classes`` scheme."""
    samples_per_user: Annotated[int, Field(ge=0)] = 0
    """Records a user holds at most; 0 for all there are."""
    records_per_user: Annotated[int, Field(ge=0, le=MOST_RECORDS)] = 0
    """User mode: records that a user contributes at most, K. A node draws them by the run's key
    before it reads any, and computes every user as if having K, so that neither its time nor its
    memory tells how much a user holds. Seconds grow with it; a node can set less for itself. 0
    leaves it to the nodes: those of made-up users take the records of the user with most, up to
    four equal shares of the data set; others 32, or ``samples_per_user`` under ``column``."""
    records_per_node: Count = 5000
    """Record mode: how many records are declared of each node. A node divides its sums by this
    number times the task's sampling rate, whatever it holds: its true number is private."""

    fault: Annotated[str, AfterValidator(_planted)] = ""
    """Simulation only: faults that are planted in a share of the users, such as ``rotate90:0.3`` or
    ``swap_labels:0.1:classes=1,7``, several with a space between. It stays in the run's
    configuration, so that its samples are never taken for those of real data."""

    slice: Annotated[str, AfterValidator(a_slice)] = ""
    """The users that the run is about, by a declared public attribute: ``ATTRIBUTE=VALUE``, such as
    ``app_version=2.0``. Nodes leave all others out; ``data.users`` counts those alone. Empty: all
    users."""
    slices: Annotated[str, AfterValidator(declared_slices)] = ""
    """Simulation only: how many users have each value of a declared attribute, such as
    ``app_version=1.0:700,2.0:300``. Deployed nodes declare it of their own users."""

    @model_validator(mode="after")
    def _enough_users(self) -> DataConfig:
        fix = f"at most data.users = {self.users}"
        require(self.nodes <= self.users, "data.nodes", self.nodes, fix)
        return self

    @model_validator(mode="after")
    def _the_slice_has_its_users(self) -> DataConfig:
        found = parse_slices(self.slices)
        if found is None:
            return self
        if not self.slice:
            fix = f"data.slices declares {found.total} users: give that many"
            require(self.users == found.total, "data.users", self.users, fix)
            return self
        count = found.count(self.slice)
        fix = f"data.slices has no such slice, only {found.attribute}={'|'.join(found.users)}"
        require(count is not None, "data.slice", self.slice, fix)
        fix = f"the slice {self.slice} has {count} users by data.slices: give that many"
        require(self.users == count, "data.users", self.users, fix)
        return self

    @model_validator(mode="after")
    def _confidence_is_of_a_model(self) -> DataConfig:
        fix = "it is of data.labels = 'model:FILE' alone: leave it at 0"
        holds = not self.least_confidence or bool(self.label_model)
        require(holds, "data.least_confidence", self.least_confidence, fix)
        fix = "it is of data.labels = 'own-or-none' or 'own-or-model:FILE' alone: leave it at 1"
        holds = self.labelled_users == 1 or self.labels.startswith(OWN_OR)
        require(holds, "data.labelled_users", self.labelled_users, fix)
        return self

    @property
    def unlabelled(self) -> bool:
        """Whether samples have no class: no record has a label, or not each."""
        return self.labels in (NONE, PARTLY)

    @property
    def partly_labelled(self) -> bool:
        """Whether some records have a label and the others count without one."""
        return self.labels == PARTLY

    @property
    def label_model(self) -> str:
        """The file of the model by which devices name their records; empty for none."""
        return label_model_in(self.labels)

    @property
    def everyone(self) -> int:
        """Simulated users of all slices together."""
        found = parse_slices(self.slices)
        return self.users if found is None else found.total


def _a_population(value: str) -> str:
    holds = not value or POPULATION_NAME.fullmatch(value) is not None
    require_valid(holds, "give a name of letters, digits, '.', '_' and '-', or an absolute path")
    return value


def _a_fixed_seed(value: int) -> int:
    fix = f"leave it at -1: fixed noise protects no user (tests set {TEST_MODE_VARIABLE}=1)"
    require_valid(value < 0 or test_mode(), fix)
    return value


class PrivacyConfig(Section):
    """What is protected, at which δ, and what the whole run may cost."""

    unit: Literal["user", "record"] = "user"
    """``user``: a whole user's update is clipped and the server adds the noise. ``record``: each
    record's gradient is clipped and noised on its node."""
    delta: Delta = 1e-5
    """δ at which differential privacy is stated; below 1/N."""
    bayesian_delta: Delta = 1e-10
    """δ at which Bayesian differential privacy is stated."""
    epsilon_budget: NotNegative = 0.0
    """Stop before a round that would take DP ε(δ) above this; 0 for no budget. A run of several
    tasks that would pass it is refused before it starts."""
    norms_share: Share = 0.02
    """User mode: share of each round's privacy (of 1/z²) that goes to a noised histogram of users'
    norms, of which the Bayesian figures are made; the noise on updates is 1/√(1 − share) times as
    large for it. 0: no norms are released, and there are no Bayesian figures."""
    bayesian_epsilon_budget: NotNegative = 0.0
    """Stop before a round with which Bayesian ε(bayesian_delta) could pass this, by a privacy
    filter whose order is fixed beforehand; 0 for no filter. It presumes that norms do not single
    people out."""
    population: Annotated[str, AfterValidator(_a_population)] = ""
    """Population whose budget, over all its runs, this run spends from too: a name that `fedlens
    population create` made, or its folder's absolute path. Empty: the run is alone."""
    fixed_seed: Annotated[int, AfterValidator(_a_fixed_seed)] = -1
    """Tests only: draw cohorts and noise from this seed. It voids every guarantee, says so in the
    ledger, and works only where the environment has FEDLENS_TEST_MODE=1. -1: operating system."""


class RoundsConfig(Section):
    """How long a round waits."""

    deadline: Positive = 600.0
    """Seconds to wait for the replies of a round; a node that has not answered is left out."""
    slot: NotNegative = 0.0
    """Seconds of a fixed clock; 0 for none. Each round's release comes at a whole multiple, so who
    watches a run live learns nothing of how long nodes took. A node that has not answered in .9 of
    a slot is left out."""

    SHARE_OF_SLOT: ClassVar[float] = 0.9
    """For nodes; the rest is for adding up what they sent."""

    @property
    def wait(self) -> float:
        """Seconds that nodes are waited for."""
        return min(self.deadline, self.SHARE_OF_SLOT * self.slot) if self.slot else self.deadline


class GeneratorConfig(Section):
    """The generator, trained on the server as post-processing of the noisy releases."""

    width: Count = 48
    """Channels of the first feature map."""
    latent: Count = 64
    """Dimensions of the Gaussian input."""
    batch: Count = 200
    """Images a step."""
    averaging: Share = 0.99
    """Decay of the moving average of the weights that samples are drawn from."""
    threads: NotNegativeCount = 1
    """CPU threads of the server's training, and of students; 0 for as many as are idle when the
    process begins to train, 4 at most. More help on an idle machine and hurt on a busy one."""
    precision: Precision = "float32"
    """Of products in its training: ``float32``, ``bfloat16``, or ``auto``, which is bfloat16 on a
    processor that is faster so (AVX-512 BF16, AMX). Weights and sums are float32 always.
    A fixed seed of noise, which is for tests, makes ``auto`` float32, and threads of 0 one."""


class ReleaseConfig(Section):
    """What is drawn from the generator into the store."""

    strip: Count = 8
    """Images a class in a strip: small batches of always the same noise, to compare rounds by. Ten
    times as many of data without labels."""
    every: Count = 1
    """Rounds from one strip (and kept checkpoint) to the next; the last round always has one."""
    samples: Count = 1000
    """Images of the batch that the last round stores for people to inspect and label."""
    agreement: Share = 0.0
    """Least probability of the requested class, by the annotator, that a released sample has; 0 for
    no filter."""
    attempts: Count = 8
    """Candidates that are drawn for a sample before the best of them is taken."""
