"""The store: metrics, ledger rows, generated samples and labels, in SQLite or PostgreSQL.

    with open_store("runs/store.db", create=True) as store:
        store.create_run(RunRecord(run_id="demo", ...))

There is no column and no code path for a real example, and nothing derived from data is stored
before the ledger row that pays for it.
"""

from accountant.audit.finding import AuditKind, AuditVerdict
from server.store.accounts import PERMISSIONS, ROLES, LogEntry, Member, Permission, Role
from server.store.audits import AuditRecord
from server.store.errors import StoreError, StoreVersionError
from server.store.exporters import EXPORTERS, Exporter, LabelledSample
from server.store.exporters.label_studio import labelling_interface
from server.store.findings import (
    FindingEntry,
    FindingRecord,
    FindingStatus,
    StoredFinding,
)
from server.store.imports import ImportedLabel, read_labels_file
from server.store.labelling import (
    Annotation,
    LabellingProgress,
    LabelRecord,
    ProjectRecord,
    StoredAnnotation,
    StoredLabel,
    StoredProject,
)
from server.store.members import NodeRoster, RegisteredNode, RegisteredUser
from server.store.pngs import decode as decode_png
from server.store.pngs import pixel_digest
from server.store.presence import Coverage, PresenceRow
from server.store.privatizers import (
    PrivatizerAttack,
    PrivatizerCurve,
    PrivatizerPoint,
    StoredPrivatizerCurve,
)
from server.store.queues import Desk
from server.store.records import (
    BatchRecord,
    CheckpointRow,
    LabelKind,
    LedgerRow,
    Purpose,
    QueueOrder,
    ReleaseRow,
    ReleaseStatus,
    RoundRecord,
    RunRecord,
    RunStatus,
    SampleFilter,
    SampleOrder,
    SampleRecord,
    StoredBatch,
    StoredSample,
)
from server.store.reviews import Adjudication, AnnotatorRecord, FinalLabel, GivenAnswer
from server.store.store import Store, open_store
from server.store.tags import TagEntry
from server.store.upgrades import StoreStatus, check, upgrade
