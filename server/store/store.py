"""The store's face: everything that server and dashboard do with the database.

Each method is one transaction, and safe to call from several threads and processes at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from server.store import answers, audits, privatizers, projects, runs, samples, summaries
from server.store.audits import AuditRecord
from server.store.engine import clear_errors, locate, make_engine, prepare_file
from server.store.exporters import LabelledSample
from server.store.labelling import (
    Annotation,
    LabellingProgress,
    ProjectRecord,
    StoredAnnotation,
    StoredLabel,
    StoredProject,
)
from server.store.privatizers import PrivatizerCurve, StoredPrivatizerCurve
from server.store.records import (
    BatchRecord,
    CheckpointRow,
    LedgerRow,
    ReleaseRow,
    RoundRecord,
    RunRecord,
    RunStatus,
    SampleFilter,
    SampleRecord,
    StoredBatch,
    StoredSample,
)
from server.store.transactions import Transactions
from server.store.upgrades import require_current, upgrade


def open_store(url: str | Path, *, create: bool = False) -> Store:
    """Open a store at this version's schema.

    Args:
        url: ``sqlite:///path``, a bare path, or ``postgresql://user:password@host:port/database``.
        create: make or upgrade the tables (and SQLite's file and folder) first. Without it
            nothing is made: neither a file nor a table.

    Raises:
        StoreVersionError: if the store is at another revision; the message says what to run.
        StoreError: if there is no store, it cannot be reached, or it is something else.
    """
    if create:
        upgrade(url)
    location = locate(url)
    prepare_file(location, create=False)
    engine = make_engine(location)
    try:
        with clear_errors(location), engine.connect() as connection:
            require_current(connection, location)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, location)


class Store(Transactions):
    """Runs, releases, generated samples and labels. Made by :func:`open_store`.

    What is derived from data is refused with ``StoreError`` until the ledger row that pays for it
    is there. Every method raises ``StoreError`` where the database cannot be reached or is busy,
    and for an id or key that is not there.
    """

    # Runs

    def create_run(self, record: RunRecord) -> None:
        """Store a run. The same ``run_id`` with the same configuration again changes nothing.

        Raises:
            StoreError: if the run is there with another configuration.
        """
        with self._writing() as session:
            runs.create_run(session, record)

    def set_run_status(
        self,
        run_id: str,
        status: RunStatus,
        stop_reason: str | None = None,
        guarantee: str | None = None,
    ) -> None:
        """Set a run's status; ``stop_reason``, and ``guarantee`` if given, replace those there."""
        with self._writing() as session:
            runs.set_run_status(session, run_id, status, stop_reason, guarantee)

    def runs(self) -> list[RunRecord]:
        """All runs, the newest first."""
        with self._reading() as session:
            return runs.runs(session)

    def run(self, run_id: str) -> RunRecord:
        """One run."""
        with self._reading() as session:
            return runs.run(session, run_id)

    # Ledger, rounds, releases, checkpoints

    def record_progress(
        self,
        ledger: Iterable[LedgerRow] = (),
        releases: Iterable[ReleaseRow] = (),
        rounds: Iterable[RoundRecord] = (),
    ) -> None:
        """Store what rounds left behind, in one transaction: a run waits for the disk once a round.

        Args:
            ledger: entries of the ledger file. The same entry again changes nothing.
            releases: what became of entries, in place of what is there.
            rounds: their metrics, in place of those there.

        Raises:
            StoreError: another entry has an index, a release or a round has no ledger entry, or
                a release is of another round than its entry; nothing is stored then.
        """
        with self._writing() as session:
            for entry in ledger:
                runs.record_ledger(session, entry)
            for release in releases:
                runs.record_release(session, release)
            for record in rounds:
                runs.record_round(session, record)

    def ledger(self, run_id: str) -> list[LedgerRow]:
        """A run's mirrored ledger entries, by index."""
        with self._reading() as session:
            return runs.ledger(session, run_id)

    def rounds(self, run_id: str) -> list[RoundRecord]:
        """A run's rounds, in order."""
        with self._reading() as session:
            return runs.rounds(session, run_id)

    def releases(self, run_id: str) -> list[ReleaseRow]:
        """A run's releases, by ledger index."""
        with self._reading() as session:
            return runs.releases(session, run_id)

    def record_checkpoint(self, row: CheckpointRow) -> None:
        """Store where a round's checkpoint lies, in place of what is there.

        Raises:
            StoreError: if the ledger has no row of this round.
        """
        with self._writing() as session:
            runs.record_checkpoint(session, row)

    def checkpoints(self, run_id: str) -> list[CheckpointRow]:
        """A run's checkpoints, by round."""
        with self._reading() as session:
            return runs.checkpoints(session, run_id)

    # Audits

    def record_audit(self, record: AuditRecord) -> None:
        """Add what an audit found; what others found before stays."""
        with self._writing() as session:
            audits.record_audit(session, record)

    def audits(self, run_id: str) -> list[AuditRecord]:
        """A run's audits, in the order stored."""
        with self._reading() as session:
            return audits.audits(session, run_id)

    # Privatizers

    def record_privatizer_curve(self, record: PrivatizerCurve) -> int:
        """Add a curve with its points, all or nothing; give back its id."""
        with self._writing() as session:
            return privatizers.record_curve(session, record)

    def privatizer_curves(self) -> list[StoredPrivatizerCurve]:
        """All curves with their points, the newest first."""
        with self._reading() as session:
            return privatizers.curves(session)

    # Samples

    def add_batch(self, record: BatchRecord, batch: Iterable[SampleRecord]) -> int:
        """Store generated samples, all or none; give back the batch's id.

        The same key (run, round, purpose, seed) again changes nothing and gives the id there.

        Raises:
            StoreError: if the ledger has no row with ``ledger_index``, or one of an earlier round;
                if the key is there with another checkpoint, count or ledger index; if a sample is
                not a plain PNG with the digest given.
        """
        rows = samples.checked_samples(record, batch)
        with self._writing() as session:
            return samples.add_batch(session, record, rows)

    def batches(self, run_id: str) -> list[StoredBatch]:
        """A run's batches, by round."""
        with self._reading() as session:
            return samples.batches(session, run_id)

    def batch(self, batch_id: int) -> StoredBatch:
        """One batch."""
        with self._reading() as session:
            return samples.batch(session, batch_id)

    def samples(
        self, wanted: SampleFilter, offset: int = 0, limit: int = 1000
    ) -> list[StoredSample]:
        """A page of the samples that match, PNG bytes included, in the order stored."""
        with self._reading() as session:
            return samples.samples(session, wanted, offset, limit)

    def count_samples(self, wanted: SampleFilter) -> int:
        """How many samples match."""
        with self._reading() as session:
            return samples.count_samples(session, wanted)

    def sample(self, sample_id: int) -> StoredSample:
        """One sample."""
        with self._reading() as session:
            return samples.sample(session, sample_id)

    def requested_classes(self, run_id: str) -> list[int]:
        """The classes that a run's samples were requested for, in order."""
        with self._reading() as session:
            return summaries.requested_classes(session, run_id)

    # Annotation

    def ensure_user(self, name: str) -> int:
        """The id of the annotator of this name, made at first use."""
        with self._writing() as session:
            return projects.ensure_user(session, name)

    def create_project(self, record: ProjectRecord) -> int:
        """Store a project with its labels; give back its id. The same again changes nothing.

        Raises:
            StoreError: if another project has this name.
        """
        with self._writing() as session:
            return projects.create_project(session, record)

    def projects(self) -> list[StoredProject]:
        """All projects, in the order made."""
        with self._reading() as session:
            return projects.projects(session)

    def project(self, project_id: int) -> StoredProject:
        """One project."""
        with self._reading() as session:
            return projects.project(session, project_id)

    def labels(self, project_id: int) -> list[StoredLabel]:
        """A project's labels, in the order given."""
        with self._reading() as session:
            return list(projects.labels_of(session, project_id))

    def queue(self, project_id: int, user_id: int, limit: int = 1) -> list[StoredSample]:
        """The next samples this annotator has neither labelled nor skipped.

        The order is stable and the same for all; an undone sample comes back to its place.
        """
        with self._reading() as session:
            return answers.queue(session, project_id, user_id, limit)

    def annotate(self, answer: Annotation) -> StoredAnnotation:
        """Append an answer and give back its row; the same ``client_uuid`` again changes nothing.

        It supersedes what this annotator said about this sample before.

        Raises:
            StoreError: if the label is not the project's, the sample not of the project's run,
                or the ``client_uuid`` another answer's.
        """
        return self._appending(lambda session: answers.annotate(session, answer))

    def undo(
        self, project_id: int, user_id: int, client_uuid: str | None = None
    ) -> StoredAnnotation | None:
        """Take back this annotator's latest answer in force, and give it back; ``None`` if none is.

        The sample then has no answer, even where an earlier one was superseded. With a
        ``client_uuid``, sending the same undo again takes back nothing more.
        """
        return self._appending(
            lambda session: answers.undo(session, project_id, user_id, client_uuid)
        )

    def progress(self, project_id: int, user_id: int) -> LabellingProgress:
        """How far this annotator is, in samples of the project's queue."""
        with self._reading() as session:
            return answers.progress(session, project_id, user_id)

    def annotations(self, project_id: int) -> list[StoredAnnotation]:
        """The answers in force, one at most for each annotator and sample."""
        with self._reading() as session:
            return answers.effective(session, project_id)

    def labelled_samples(self, project_id: int) -> list[LabelledSample]:
        """The answers in force with their samples, for an exporter; in the order given."""
        with self._reading() as session:
            return answers.labelled(session, project_id)

    def annotation_history(self, project_id: int) -> list[StoredAnnotation]:
        """Every row ever appended, superseded answers and undos too."""
        with self._reading() as session:
            return answers.history(session, project_id)
