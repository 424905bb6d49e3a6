"""The store: metrics, ledger rows, generated samples and labels, in SQLite or PostgreSQL.

    with open_store("runs/store.db", create=True) as store:
        store.create_run(RunRecord(run_id="demo", ...))

There is no column and no code path for a real example, and nothing derived from data is stored
before the ledger row that pays for it.
"""

from fedlens.accountant.audit.finding import AuditKind, AuditVerdict
from fedlens.store.accounts import PERMISSIONS, ROLES, LogEntry, Member, Permission, Role
from fedlens.store.audits import AuditRecord
from fedlens.store.decisions import (
    Adjudication,
    ReviewCounts,
    ReviewedSample,
    ReviewState,
    StoredDecision,
)
from fedlens.store.errors import StoreError, StoreVersionError
from fedlens.store.exporters import EXPORTERS, Exporter, LabelledSample
from fedlens.store.exporters.label_studio import labelling_interface
from fedlens.store.findings import FindingEntry, FindingRecord, FindingStatus, StoredFinding
from fedlens.store.glances import RunGlance
from fedlens.store.imports import ImportedLabel, read_labels_file
from fedlens.store.labelling import (
    Annotation,
    LabellingProgress,
    LabelRecord,
    ProjectRecord,
    StoredAnnotation,
    StoredLabel,
    StoredProject,
)
from fedlens.store.members import NodeRoster, RegisteredNode, RegisteredUser
from fedlens.store.pngs import decode as decode_png
from fedlens.store.pngs import pixel_digest
from fedlens.store.presence import Coverage, PresenceRow
from fedlens.store.privatizers import (
    PrivatizerAttack,
    PrivatizerControl,
    PrivatizerCurve,
    PrivatizerPoint,
    StoredPrivatizerCurve,
)
from fedlens.store.queues import Desk
from fedlens.store.records import (
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
from fedlens.store.reviews import AnnotatorRecord, FinalLabel, GivenAnswer
from fedlens.store.sample_columns import SampleColumns
from fedlens.store.saved_views import SavedView
from fedlens.store.spending import RequestStatus, SpendingRequest, SpendingRule, StoredRequest
from fedlens.store.store import Store, open_store
from fedlens.store.tags import TagEntry
from fedlens.store.upgrades import StoreStatus, check, upgrade
from fedlens.store.worth import RECOGNISED, Worth, figure_of, worth_of
