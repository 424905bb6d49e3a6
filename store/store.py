"""The store's face: everything that server and dashboard do with the database."""

from __future__ import annotations

from pathlib import Path

from fedlens.store.accounts import AccountMethods
from fedlens.store.answers import AnswerMethods
from fedlens.store.audits import AuditMethods
from fedlens.store.engine import clear_errors, locate, prepare_file, shared_engine
from fedlens.store.findings import FindingMethods
from fedlens.store.glances import GlanceMethods
from fedlens.store.imports import ImportMethods
from fedlens.store.members import MemberMethods
from fedlens.store.privatizers import PrivatizerMethods
from fedlens.store.projects import ProjectMethods
from fedlens.store.queues import QueueMethods
from fedlens.store.reviews import ReviewMethods
from fedlens.store.runs import RunMethods
from fedlens.store.sample_answers import SampleAnswerMethods
from fedlens.store.sample_columns import SampleColumnMethods
from fedlens.store.samples import SampleMethods
from fedlens.store.saved_views import SavedViewMethods
from fedlens.store.spending import SpendingMethods
from fedlens.store.tags import TagMethods
from fedlens.store.upgrades import head, require_current, upgrade


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
    engine = shared_engine(location)
    try:
        with clear_errors(location), engine.connect() as connection:
            require_current(connection, location)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine, location, head())


class Store(
    RunMethods,
    GlanceMethods,
    MemberMethods,
    AuditMethods,
    PrivatizerMethods,
    SampleMethods,
    SampleAnswerMethods,
    SampleColumnMethods,
    ProjectMethods,
    AnswerMethods,
    ReviewMethods,
    ImportMethods,
    QueueMethods,
    AccountMethods,
    FindingMethods,
    SpendingMethods,
    TagMethods,
    SavedViewMethods,
):
    """Runs, releases, generated samples and labels. Made by :func:`open_store`.

    Each method is one transaction, and safe to call from several threads and processes at once.
    What is derived from data is refused with ``StoreError`` until the ledger row that pays for it
    is there. Every method raises ``StoreError`` where the database cannot be reached or is busy,
    and for an id or key that is not there.
    """
