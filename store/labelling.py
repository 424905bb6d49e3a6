"""Records of annotation: projects with their labels, and what people said about samples."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from fedlens.store.checks import MAX_LONG, check_choice, check_text, check_whole, require
from fedlens.store.errors import StoreError
from fedlens.store.records import LabelKind, Purpose, QueueOrder

MOST_OVERLAP = 1000
LEAST_RANDOM_SHARE = 0.1
"""Below it, agreement and class counts of the samples that people saw say little of the others."""
LONGEST_NOTE = 2000


@dataclass(frozen=True, kw_only=True)
class LabelRecord:
    """One answer of a project. ``key`` and ``name`` are each unique in the project."""

    key: str
    """Keyboard key that gives it."""
    name: str
    kind: LabelKind = "class"

    def __post_init__(self) -> None:
        check_text(self, "key", "name")
        check_choice("kind", self.kind, LabelKind)


@dataclass(frozen=True, kw_only=True)
class StoredLabel(LabelRecord):
    """A label as it lies in the store."""

    label_id: int
    project_id: int


@dataclass(frozen=True, kw_only=True)
class ProjectRecord:
    """Labelling of one run's samples. Key: ``name``."""

    name: str
    run_id: str
    labels: tuple[LabelRecord, ...]
    instructions: str = ""
    purpose: Purpose = "curated"
    """Which of the run's batches the queue serves."""
    order: QueueOrder = "stored"
    """``stored``: as drawn. ``random``: shuffled by ``seed``, the same for all annotators.
    ``uncertainty``: what the private annotator is least sure of first. ``disagreement``: shuffled,
    and where answers differ one annotator more is asked, first of all."""
    seed: int = 0
    overlap: int = 0
    """Annotators who answer each sample; 0: each annotator answers all of them."""
    blind: bool = True
    """Whether annotators see neither the requested class nor other people's answers."""
    several: bool = False
    """Whether an answer may have several labels."""
    random_share: float = 0.1
    """Share of samples that an order of interest leaves to chance: what is learned of the
    others alone is biased."""
    lease_seconds: int = 600
    """How long a sample that was served is kept from others."""

    def __post_init__(self) -> None:
        check_text(self, "name", "run_id")
        check_choice("purpose", self.purpose, Purpose)
        check_choice("order", self.order, QueueOrder)
        check_whole(self, "seed", most=MAX_LONG)
        check_whole(self, "overlap", most=MOST_OVERLAP)
        check_whole(self, "lease_seconds")
        require(self.lease_seconds > 0, "lease_seconds", self.lease_seconds, "give at least 1")
        share = self.random_share
        least = LEAST_RANDOM_SHARE if self.order == "uncertainty" else 0.0
        require(least <= share <= 1, "random_share", share, f"give a share from {least:g} to 1")
        require(len(self.labels) > 0, "labels", self.labels, "give at least one label")
        for part in ("key", "name"):
            values = [getattr(label, part) for label in self.labels]
            require(len(set(values)) == len(values), f"labels' {part}s", values, "each only once")


@dataclass(frozen=True, kw_only=True)
class StoredProject(ProjectRecord):
    """A project as it lies in the store."""

    project_id: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class Annotation:
    """One person's answer about one sample: a label, or a reason to skip it. Key: ``client_uuid``.

    A second answer of the same person about the same sample supersedes the first.
    """

    client_uuid: str
    """Made by the client for each answer, so that sending it again changes nothing."""
    project_id: int
    sample_id: int
    user_id: int
    """The annotator (of :meth:`Store.ensure_user`), not a user of the federation."""
    label_id: int | None
    skip_reason: str | None = None
    lead_ms: int | None = None
    """Milliseconds from seeing the sample to answering, measured by the client."""
    note: str | None = None
    """What the annotator wrote beside it."""
    more_labels: list[int] | None = None
    """Further labels beside ``label_id``, where the project takes several."""

    def __post_init__(self) -> None:
        check_text(self, "client_uuid")
        if self.lead_ms is not None:
            check_whole(self, "lead_ms", most=MAX_LONG)
        long = len(self.note or "")
        require(long <= LONGEST_NOTE, "note", f"{long} characters", f"at most {LONGEST_NOTE}")
        self._check_answer()

    def _check_answer(self) -> None:
        if (self.label_id is None) == (not self.skip_reason):
            raise StoreError(
                f"label_id = {self.label_id!r} with skip_reason = {self.skip_reason!r} cannot be "
                "stored: give a label or a reason to skip, one of the two"
            )


@dataclass(frozen=True, kw_only=True)
class StoredAnnotation(Annotation):
    """A row of the history. One with neither label nor reason takes back the row it supersedes."""

    annotation_id: int
    supersedes_id: int | None
    created_at: datetime

    @property
    def is_undo(self) -> bool:
        """Whether this row only takes back an earlier one."""
        return self.label_id is None and not self.skip_reason

    def _check_answer(self) -> None:
        """Rows are checked on their way in."""


@dataclass(frozen=True, kw_only=True)
class LabellingProgress:
    """How far one annotator is in one project, in samples of the project's queue."""

    total: int
    done: int
    """Labelled."""
    skipped: int

    @property
    def left(self) -> int:
        """Neither labelled nor skipped."""
        return self.total - self.done - self.skipped
