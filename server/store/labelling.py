"""Records of annotation: projects with their labels, and what people said about samples."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from server.store.checks import MAX_LONG, check_choice, check_text, check_whole, require
from server.store.errors import StoreError
from server.store.records import LabelKind, Purpose, QueueOrder


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
    purpose: Purpose = "release"
    """Which of the run's batches the queue serves."""
    order: QueueOrder = "stored"
    """``stored``: as drawn. ``random``: shuffled by ``seed``, the same for all annotators."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_text(self, "name", "run_id")
        check_choice("purpose", self.purpose, Purpose)
        check_choice("order", self.order, QueueOrder)
        check_whole(self, "seed", most=MAX_LONG)
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

    def __post_init__(self) -> None:
        check_text(self, "client_uuid")
        if self.lead_ms is not None:
            check_whole(self, "lead_ms", most=MAX_LONG)
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
