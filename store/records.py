"""What goes into the store and comes out of it: frozen, typed records, checked when made.

No record has a place for a real example, a user's identity or anything computed on one user's
data. Every ε may be ``inf`` (no finite bound, or none computed); it is never NaN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedlens.foundation.dates import today
from fedlens.foundation.names import call_class
from fedlens.store.checks import (
    MAX_LONG,
    check_choice,
    check_date,
    check_json,
    check_percentiles,
    check_spending,
    check_text,
    check_whole,
    require,
)
from fedlens.store.pngs import encode, pixel_digest
from fedlens.store.worth import RECOGNISED, Worth, worth_of

RunStatus = Literal["running", "finished", "stopped-by-budget", "interrupted", "failed"]
ReleaseStatus = Literal["applied", "lost"]
Purpose = Literal["strip", "curated", "faithful"]
SampleOrder = Literal["stored", "least agreed", "most agreed"]
LabelKind = Literal["class", "unknown", "artefact"]
QueueOrder = Literal["stored", "random", "uncertainty", "disagreement"]


def utc_now() -> datetime:
    """The present moment, timezone-aware, in UTC."""
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """One training run. Key: ``run_id``."""

    run_id: str
    name: str
    status: RunStatus = "running"
    stop_reason: str | None = None
    """Why it ended, in words; ``None`` while it runs."""
    config: Mapping[str, Any]
    """The whole configuration, as JSON."""
    config_sha256: str
    """Digest of the configuration's canonical JSON, hexadecimal."""
    data_name: str
    """Name of the data set that the users hold, never its contents."""
    unit: str
    """Privacy unit: ``user`` or ``record``."""
    users: int
    """Enrolled users, N (known beforehand; not the number that took part in a round)."""
    nodes: int
    rounds_planned: int
    private: bool
    """False where no noise, or noise from a fixed seed, was added: no guarantee at all."""
    guarantee: str
    """What is guaranteed, to whom, in words."""
    created_at: date = field(default_factory=today)
    """The day on which it began, UTC."""
    class_names: tuple[str, ...] = ()
    """What people call the classes, in their order; empty where they have numbers alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "class_names", tuple(self.class_names))
        check_text(self, "run_id", "name", "config_sha256")
        check_choice("status", self.status, RunStatus)
        check_whole(self, "nodes", "rounds_planned")
        check_whole(self, "users", most=MAX_LONG)
        check_json("config", self.config)
        check_date("created_at", self.created_at)

    def name_of_class(self, number: int) -> str:
        """What a class is called: its name, or ``class N`` where it has none."""
        return call_class(number, self.class_names)

    def class_of_name(self, name: str) -> int | None:
        """The class that is called so, by its own name or as ``class N``; None for none."""
        if name in self.class_names:
            return self.class_names.index(name)
        found = re.fullmatch(r"class ([0-9]{1,9})", name)
        return None if found is None else int(found[1])

    @property
    def is_probe(self) -> bool:
        """Whether all that it did was to ask the users of another run one question."""
        return self.config.get("schedule") == "probe"


@dataclass(frozen=True, kw_only=True)
class RoundRecord:
    """What one round left behind. Key: ``(run_id, round)``; recording it again replaces it."""

    run_id: str
    round: int
    metrics: Mapping[str, float]
    """Losses of post-processing only, by name; NaN and infinities are kept."""
    dp_epsilon: float
    """Differential privacy spent by the run up to and with this round, at ``delta_dp``."""
    delta_dp: float
    dp_method: str
    """Which of the differential privacy accountants gave the figure, in a word."""
    bdp_as_published: float
    """Bayesian DP, by the published formulas, at ``delta_bdp``."""
    bdp_corrected: float
    """Bayesian DP, with its corrections, at ``delta_bdp``."""
    bdp_sound: float
    """Bayesian DP, with distribution-free confidence bounds, at ``delta_bdp``."""
    delta_bdp: float
    percentiles: Mapping[str, float] = field(default_factory=dict)
    """ε at ``delta_bdp`` (sound) that holds for a share of users at least; keyed by that share."""
    percentiles_corrected: Mapping[str, float] = field(default_factory=dict)
    """The same, corrected: an estimate."""

    def __post_init__(self) -> None:
        check_whole(self, "round")
        check_spending(self)
        check_text(self, "dp_method")
        check_percentiles(self.percentiles)
        check_percentiles(self.percentiles_corrected)
        for name, value in self.metrics.items():
            require(isinstance(value, int | float), f"metrics[{name!r}]", value, "give a float")


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """Mirror of one entry of the run's ledger file. Key: ``(run_id, index)``; never changes."""

    run_id: str
    index: int
    """Place of the entry in the ledger file."""
    round: int
    event: Mapping[str, Any]
    """The accountant's description of the mechanism, as JSON."""
    purpose: str
    entry_hash: str
    """SHA-256 of the entry in the file's chain, hexadecimal."""
    created_at: date = field(default_factory=today)
    """The entry's own date: the day on which the process that wrote it began, UTC."""

    def __post_init__(self) -> None:
        check_whole(self, "index", "round")
        check_text(self, "entry_hash")
        check_json("event", self.event)
        check_date("created_at", self.created_at)


@dataclass(frozen=True, kw_only=True)
class ReleaseRow:
    """What became of a ledgered release. Key: ``(run_id, ledger_index)``; the last status holds."""

    run_id: str
    ledger_index: int
    round: int
    status: ReleaseStatus
    """``lost``: paid for in the ledger, but never applied (the process ended in between)."""

    def __post_init__(self) -> None:
        check_whole(self, "ledger_index", "round")
        check_choice("status", self.status, ReleaseStatus)


@dataclass(frozen=True, kw_only=True)
class CheckpointRow:
    """A saved state of the models. Key: ``(run_id, round)``; recording it again replaces it."""

    run_id: str
    round: int
    sha256: str
    path: str
    """Where it lies, relative to the run's directory."""

    def __post_init__(self) -> None:
        check_whole(self, "round")
        check_text(self, "sha256", "path")


@dataclass(frozen=True, kw_only=True)
class BatchRecord:
    """Samples drawn at once from one checkpoint, with what they cost and where they come from.

    Key: ``(run_id, round, purpose, seed)``.
    """

    run_id: str
    round: int
    ledger_index: int
    """The last ledger entry that the generator has seen anything of."""
    purpose: Purpose
    """What the samples are for, which decides how they were made.

    ``strip``: a few from the same noise each round. ``curated``: guided and filtered by the
    annotator where there is one, to label and to teach students with. ``faithful``: from the
    critics alone, neither guided nor filtered, to look for faults in."""
    checkpoint_sha256: str
    seed: int
    """Seed of the generator's noise, 0 to 2^63 - 1."""
    count: int
    """Number of samples in it."""
    dp_epsilon: float
    delta_dp: float
    bdp_as_published: float
    bdp_corrected: float
    bdp_sound: float
    delta_bdp: float
    private: bool
    """False where the run guarantees nothing."""
    rejected: Mapping[str, float] = field(default_factory=dict)
    """Share of all candidates of a class that the filter turned down, by the class's number as a
    text; empty where nothing was filtered."""
    fidelity: Mapping[str, float] = field(default_factory=dict)
    """By the class's number as a text: which share of what the run learned of it is no noise; under
    `RECOGNISED`, how far an annotator recognises such samples. Told by the run's releases alone;
    empty where nothing could tell."""
    provenance: str
    """The label shown beside every sample, in words."""

    @property
    def worth(self) -> Worth:
        """What samples of the run are good for, in a word."""
        return worth_of(self.fidelity)

    def __post_init__(self) -> None:
        check_whole(self, "round", "ledger_index", "count")
        check_whole(self, "seed", most=MAX_LONG)
        check_choice("purpose", self.purpose, Purpose)
        check_text(self, "checkpoint_sha256", "provenance")
        check_spending(self)
        _check_shares("rejected", self.rejected)
        _check_shares("fidelity", self.fidelity, RECOGNISED)


def _check_shares(field_name: str, shares: Mapping[str, float], *others: str) -> None:
    for name, share in shares.items():
        require(name.isdigit() or name in others, field_name, name, "name classes by their numbers")
        require(0 <= share <= 1, f"{field_name}[{name!r}]", share, "give a share from 0 to 1")


@dataclass(frozen=True, kw_only=True)
class StoredBatch(BatchRecord):
    """A batch as it lies in the store."""

    batch_id: int
    created_at: date
    """The date of the ledger entry that pays for it: a time would tell who was drawn."""


@dataclass(frozen=True, kw_only=True)
class SampleRecord:
    """One generated image, on its way into the store. Make it with :meth:`from_pixels`."""

    position: int
    """Place in the batch, from 0."""
    requested_class: int | None
    """Class the generator was asked for; None where the data have no labels."""
    png: bytes
    """Grey or RGB PNG of 8 bits a channel, with nothing but pixels in it."""
    sha256: str
    """SHA-256 of the uint8 pixels in [channels, height, width] order, hexadecimal."""
    agreement: float | None = None
    """Probability of the requested class by the run's annotator; None where it has none that may
    judge the image."""

    def __post_init__(self) -> None:
        check_whole(self, "position")
        if self.requested_class is not None:
            check_whole(self, "requested_class")
        agreed = self.agreement
        if agreed is not None:
            require(0 <= agreed <= 1, "agreement", agreed, "give a probability, or None")

    @classmethod
    def from_pixels(
        cls,
        *,
        position: int,
        requested_class: int | None,
        pixels: NDArray[np.uint8],
        agreement: float | None = None,
    ) -> Self:
        """The record of one generated image.

        Args:
            position: place in the batch, from 0.
            requested_class: class the generator was asked for; None where there are none.
            pixels: uint8 [channels, height, width], 1 or 3 channels, 0 to 255.
            agreement: the annotator's probability of that class, where there is one.

        Raises:
            StoreError: on another dtype or shape, or an agreement outside [0, 1].
        """
        return cls(
            position=position,
            requested_class=requested_class,
            png=encode(pixels),
            sha256=pixel_digest(pixels),
            agreement=agreement,
        )


@dataclass(frozen=True, kw_only=True)
class StoredSample(SampleRecord):
    """A sample as it lies in the store, with its way there."""

    sample_id: int
    batch_id: int
    run_id: str
    round: int
    purpose: Purpose


@dataclass(frozen=True, kw_only=True)
class SampleFilter:
    """Which samples are meant; ``None`` leaves a field open."""

    run_id: str | None = None
    round: int | None = None
    purpose: Purpose | None = None
    batch_id: int | None = None
    requested_class: int | None = None
    least_agreement: float | None = None
    """Samples whose agreement is at least this; none of those without one."""
    most_agreement: float | None = None
    """Samples whose agreement is at most this; none of those without one."""
    label_id: int | None = None
    """Samples to which someone's label in force is this one."""
    sha256: str | None = None
    """Samples with exactly these pixels."""
    tag: str | None = None
    """Samples that somebody gave this tag."""
