"""One call from a configuration and a Grid to a trained, accounted, published run."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from flwr.serverapp import Grid

from fedlens.accountant.account import Spending
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client.messages import UserSplit
from fedlens.server.config.schedule import check_affordable, total_rounds
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import enrol
from fedlens.server.federation.membership import Membership, UserRegistry, registry_of
from fedlens.server.generation.compute import generator_way
from fedlens.server.learning.forecast import RECORDS, expectation
from fedlens.server.learning.label_models import check_names, naming_cost
from fedlens.server.learning.learner import Learner
from fedlens.server.learning.pretrained_filter import pretrained_filter
from fedlens.server.ledger.population import check_room
from fedlens.server.ledger.private_split import private_split
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.loop import TrainingRun
from fedlens.server.round.observer import RunObserver
from fedlens.server.round.publication import Publication
from fedlens.server.round.releases import ReleaseArchive
from fedlens.server.round.samples import SampleReleases
from fedlens.server.round.slots import RoundSlots
from fedlens.server.round.state import RunState
from fedlens.server.round.status import OnProgress, ProgressDisplay, RunStatusFile
from fedlens.server.round.steps import TaskSteps
from fedlens.server.run.arrays import digest_of
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.run.place import bind, check_place
from fedlens.store import Coverage, open_store

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
    observer: OnProgress | None = None,
    class_names: Sequence[str] = (),
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
        class_names: what people call the classes of a simulation's data, public; a contract names
            its own.

    Raises:
        ConfigError: the schedule has several tasks and passes its own budget; no node was asked;
            or the annotator keeps more components than there are features, or the filter,
            label model or split's model that is given cannot be used.
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
        _hold(directory, config),
        open_store(url, create=True) as store,
        registry_of(config) as registry,
    ):
        directory.sweep()
        check_place(directory, store)
        if not _is_paid(directory):
            check_room(config)
        membership = _enrol(config, grid, registry)
        _say_what_to_expect(config, membership.federation.drawn_classes)
        parts = _Parts.of(config, directory, membership)
        publication = Publication(
            config,
            directory,
            store,
            parts.ledger.run_id,
            name or directory.path.name,
            membership.federation.data_name,
            membership.federation.class_names or class_names,
        )
        publication.enter_run()
        stopped = parts.run(publication, observer).run()
        return parts.outcome(stopped, url, publication.coverage())


def _say_what_to_expect(config: Config, classes: int) -> None:
    """Before anything is spent, by public numbers alone."""
    words = expectation(config, classes, config.data.records_per_user or RECORDS)
    if words:
        logger.info("%s", words)


def _enrol(config: Config, grid: Grid, registry: UserRegistry | None) -> Membership:
    """The nodes as they are now; how long it takes tells nothing, where rounds have a slot."""
    known = () if registry is None else (registry.revoked(), registry.objection)
    with RoundSlots(config.rounds).hold():
        federation = enrol(grid, config, *known)
    return Membership(config, grid, federation, registry)


@dataclass(frozen=True)
class _Parts:
    """What a run is made of once its nodes are enrolled."""

    config: Config
    directory: RunDirectory
    membership: Membership
    split: UserSplit | None
    learner: Learner
    ledger: RunLedger
    state: RunState

    @classmethod
    def of(cls, config: Config, directory: RunDirectory, membership: Membership) -> _Parts:
        """Read what the run builds on, then open its ledger: what cannot be used begins none."""
        federation = membership.federation
        pretrained = pretrained_filter(config, federation.shape, directory)
        side = private_split(config, federation.shape, federation.classes, directory)
        check_names(config, federation.shape, federation.classes)
        given = pretrained or side or naming_cost(config, directory)
        learner = Learner(config, federation, None if pretrained is None else pretrained.vector)
        ledger = RunLedger(
            config,
            directory,
            uuid.uuid4().hex[:12],
            None if given is None else given.prior,
            "" if side is None else side.users,
            federation.roster.active,
        )
        if not ledger.entries:
            bind(directory)
        split = None if side is None else side.split
        state = RunState(config, directory, federation, learner, ledger)
        return cls(config, directory, membership, split, learner, ledger, state)

    def run(self, publication: Publication, on_progress: OnProgress | None) -> TrainingRun:
        """The run, with all who watch it. Publication is first: samples need their round."""
        config, directory, learner = self.config, self.directory, self.learner
        federation = self.membership.federation
        display = ProgressDisplay(config, self.ledger, on_progress)
        status = RunStatusFile(
            directory,
            total_rounds(config),
            nodes=len(federation.roster.node_ids),
            computed_by=learner.computed_by,
            generator=generator_way(config),
        )
        self.membership.on_wait = status.wait
        observers: list[RunObserver] = [
            ReleaseArchive(directory, config, federation),
            display,
            publication,
            SampleReleases(config, directory, learner, publication, self.ledger, display),
            status,
        ]
        steps = TaskSteps(learner, self.membership, directory, self.split)
        return TrainingRun(steps, self.ledger, learner, self.state, observers)

    def outcome(self, stopped: str | None, store: str, covered: Coverage) -> Outcome:
        """What the run came to."""
        return Outcome(
            run_id=self.ledger.run_id,
            rounds=self.state.done,
            stopped=stopped,
            spending=self.ledger.published(),
            model_sha256=digest_of(self.learner.state()),
            store=store,
            covered=covered.words,
            whole=covered.whole,
        )


def _is_paid(directory: RunDirectory) -> bool:
    """Whether anything was charged: a run that was stopped before its first round is a new one."""
    return directory.ledger.exists() and bool(Ledger.open(directory.ledger).entries)


@contextmanager
def _hold(directory: RunDirectory, config: Config) -> Iterator[None]:
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
