"""One call from a configuration and a Grid to a trained, accounted, published run."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flwr.serverapp import Grid

from fedlens.accountant.account import Spending
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.server.config.schedule import check_affordable
from fedlens.server.config.tree import Config
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.federation.enrolment import enrol
from fedlens.server.federation.membership import Membership, registry_of
from fedlens.server.learning.learner import Learner
from fedlens.server.learning.pretrained_filter import pretrained_filter
from fedlens.server.ledger.population import check_room
from fedlens.server.ledger.private_split import private_split
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.loop import TrainingRun
from fedlens.server.round.publication import Publication
from fedlens.server.round.slots import RoundSlots
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.run.place import bind, check_place
from fedlens.server.run.progress import Observer
from fedlens.store import RunStatus, open_store

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a run came to."""

    run_id: str
    rounds: int
    stopped: str | None
    """Why the budget stopped it before its declared rounds, or None."""
    spending: Spending
    model_sha256: str
    store: str
    covered: str = ""
    """Which nodes its rounds had, and for what share of the declared users its releases speak."""
    whole: bool = True
    """Whether every round had all the nodes and users that are declared."""


def train(
    config: Config,
    directory: RunDirectory,
    grid: Grid,
    *,
    store_url: str = "",
    name: str = "",
    observer: Observer | None = None,
) -> Outcome:
    """Train a run, or go on with the one in ``directory``.

    Guarantees: whatever happens, every noised aggregate that was drawn has its ledger entry on
    disk; the store says how the run ended.

    Args:
        config: what to run; for an existing directory, its own configuration.
        directory: where the run's state lies.
        grid: any transport with the declared nodes behind it.
        store_url: database for samples and figures; the directory's own by default.
        name: what people call the run; the directory's name by default.
        observer: told of progress at every generator step.

    Raises:
        ConfigError: the schedule has several tasks and passes its own budget; no node was asked;
            or the annotator keeps more components than there are features, or the filter or
            the split's model that is given cannot be used.
        ShapeError: no network is built for images of the nodes' shape.
        EnrolmentError: the nodes are not the declared federation, or too few of it.
        QuorumMissing: too few nodes stayed; the run can go on once they are back.
        NoUsableReply: a whole round failed.
        RunDirectoryError: the directory holds a run of another configuration, or another process,
            or it is a copy, or ledger and store do not agree.
        StoreError, LedgerError: what they say.
        PopulationError: what it says, and where what is left of the population's budget cannot pay
            all parts of a new run.
    """
    check_affordable(config)
    url = store_url or directory.default_store
    with (
        _held(directory, config),
        open_store(url, create=True) as store,
        registry_of(config) as registry,
    ):
        directory.sweep()
        check_place(directory, store)
        if not _paid(directory):
            check_room(config)
        with RoundSlots(config.rounds).held():
            known = () if registry is None else (registry.revoked(), registry.objection)
            federation = enrol(grid, config, *known)
        membership = Membership(config, grid, federation, registry)
        pretrained = pretrained_filter(config, federation.shape, directory)
        side = private_split(config, federation.shape, federation.classes, directory)
        given = pretrained or side
        prior = None if given is None else given.prior
        # before anything is begun that it may refuse
        learner = Learner(config, federation, None if pretrained is None else pretrained.vector)
        users = "" if side is None else side.users
        enrolled = federation.roster.active
        run_ledger = RunLedger(config, directory, uuid.uuid4().hex[:12], prior, users, enrolled)
        if not run_ledger.entries:
            bind(directory)
        label = name or directory.path.name
        publication = Publication(
            config, directory, store, run_ledger.run_id, label, federation.data_name
        )
        publication.begin()
        split = None if side is None else side.split
        training = TrainingRun(
            config, directory, grid, federation, learner, run_ledger, publication, observer, split,
            membership,
        )  # fmt: skip
        try:
            stopped = training.run()
        except BaseException as error:
            missing = isinstance(error, EnrolmentError)  # says public facts of nodes alone
            interrupted = missing or isinstance(error, KeyboardInterrupt)
            status: RunStatus = "interrupted" if interrupted else "failed"
            why = str(error) if missing else f"ended by {type(error).__name__}"
            reason = f"{why}; `fedlens resume` goes on"
            publication.end(status, reason, run_ledger.published())
            training.ended(status, reason)
            raise
        status = "stopped-by-budget" if stopped else "finished"
        publication.end(status, stopped, run_ledger.published())
        training.ended(status, stopped)
        return Outcome(
            run_id=run_ledger.run_id,
            rounds=training.rounds_done,
            stopped=stopped,
            spending=run_ledger.published(),
            model_sha256=training.model_digest(),
            store=url,
            covered=publication.coverage().words,
            whole=publication.coverage().whole,
        )


def _paid(directory: RunDirectory) -> bool:
    """Whether anything was charged: a run that was stopped before its first round is a new one."""
    return directory.ledger.exists() and bool(Ledger.open(directory.ledger).entries)


@contextmanager
def _held(directory: RunDirectory, config: Config) -> Iterator[None]:
    """The directory, locked; refused untouched where it has come to hold another run meanwhile."""
    if not directory.exists():
        raise RunDirectoryError(f"{directory.path} holds no run any more: name another --out")
    with directory.locked():
        if not directory.exists() or directory.config() != config:
            raise RunDirectoryError(
                f"{directory.path} holds a run of another configuration; submit its own, or name "
                "another --out"
            )
        try:
            yield
        finally:
            directory.date_everything()
