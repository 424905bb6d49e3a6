"""One task's real mechanism over made-up users: what nodes are asked, and a round of it.

Requests, the ClientApp, the task's class on nodes, clip and sum, the Poisson draw, the server's
checks, its noise and its fixed denominator are those of a run. No data set is opened, no ledger is
written, and what is asked was learned from made-up images alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from flwr.app import Context, Message, RecordDict
from numpy.typing import NDArray

from fedlens.accountant.bayesian.noised_norms import PUBLIC_BINS, NoisedNorms
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.chain import LedgerEntry
from fedlens.client.app import build_client_app
from fedlens.client.messages import TRAIN, TrainReply
from fedlens.client.node.replay_guard import ROUNDS
from fedlens.client.secure_messages import MASKED, masked_reply, read_masked
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.protocol import ClientTaskFactory
from fedlens.client.users.protocol import LocalUsers
from fedlens.foundation.secure_sum import bits_for, packed, unpacked
from fedlens.server.config.mechanism import NOISE_EXCESS, denominator
from fedlens.server.config.tree import Config
from fedlens.server.federation.enrolment import Federation, enrol
from fedlens.server.federation.roster import Roster
from fedlens.server.learning.learner import Learner
from fedlens.server.round.aggregation import Aggregate
from fedlens.server.round.masked_step import SealedMasks, SecureStep
from fedlens.server.round.step import NoUsableReply, PrivateStep, SealedSum, StepPlan
from fedlens.server.tasks.protocol import ServerTask, TaskRequest
from fedlens.simulations.audits.made_up import MadeUpUsers, made_up_images
from fedlens.simulations.audits.schedule import Schedule
from fedlens.simulations.transports.inprocess import FIRST_NODE_ID, InProcessGrid

# What audits need where nodes mask their sums: enough nodes, the real step, a node that lies.
#
# No single reply can be read then. What is audited is what the server opens: the exact total, or
# with noise of nodes the noised one.

FEWEST, MOST = 2, 8
"""Nodes of an audit of masked sums: one alone masks nothing, and many take long."""
_EXCESS = 4.0
"""Times the largest norm that a total may have: what cannot have wrapped around."""
Lie = Callable[[RecordDict], RecordDict]
WITHOUT_TRIMMING: dict[str, Any] = {"aggregation.trimmed_share": 0.0}


def audited_aggregation(config: Config) -> dict[str, Any]:
    """How the nodes of an audit's sums are counted: they are fewer than a run's, and all honest.

    Trimmed sums are audited as plain ones: who is in one cannot be read from it.
    """
    alone = dict.fromkeys(("tolerated_dropouts", "colluding", "threshold"), 0)
    masks = {f"aggregation.{key}": value for key, value in alone.items()}
    return {**WITHOUT_TRIMMING, **masks} if config.aggregation.secure else WITHOUT_TRIMMING


def with_empty_nodes(hosts: Sequence[MadeUpUsers]) -> list[MadeUpUsers]:
    """The nodes, and as many that host no one as masks need."""
    first, found = hosts[0], list(hosts)
    while len(found) < FEWEST:
        none = torch.zeros(0, dtype=torch.bool)
        empty = replace(first, images=first.images[:0], labels=first.labels[:0], holds=none)
        found.append(replace(empty, partition=len(found)))
    return found


def lies(step: SecureStep, users: int, clipping_norm: float) -> dict[str, Lie]:
    """What a hostile node makes of its masked sum, which the server must not take.

    Args:
        step: of the audit.
        users: enrolled on all nodes.
        clipping_norm: C.
    """
    layout, bits = step.plan.layout, bits_for(step.plan.layout.largest)
    part, parties = layout.update, step.plan.parties
    noise = part.scale * part.pitch * math.sqrt(parties) * (math.sqrt(part.size) + NOISE_EXCESS)
    each = _EXCESS * (users * clipping_norm + noise) / math.sqrt(part.size) / part.pitch
    shift = np.zeros(layout.size, dtype=np.int64)
    shift[: part.size] = round(each)

    def longer(content: RecordDict) -> RecordDict:
        words = unpacked(read_masked(content), layout.size, bits)
        return masked_reply(packed(words + shift.view(np.uint64), bits))

    def shorter(content: RecordDict) -> RecordDict:
        return masked_reply(read_masked(content)[: -(bits // 8)])

    return {"far too long": longer, "of another shape": shorter}


# A grid that hears what nodes reply, and can have one of them reply with something else.


class ListeningGrid(InProcessGrid):
    """In-process nodes whose last replies are kept."""

    heard: list[RecordDict]
    """The plain sums of the last round, in the order in which nodes were asked."""
    answering: tuple[str, ClientTaskFactory] | None = None
    """A kind of task, and what makes the object that answers for it on nodes; None for its own."""
    hostile: Callable[[RecordDict], RecordDict] | None = None
    """What the last node makes of its sum, masked or not, before it sends it; None: nothing."""

    def push_messages(self, messages):  # type: ignore[no-untyped-def]
        """Have each node answer its message; returns the messages' ids."""
        self.heard = []
        for context in self._contexts.values():
            context.state.config_records.pop(ROUNDS, None)  # an audit repeats a round on purpose
        with CLIENT_TASKS.replaced(*self.answering) if self.answering else nullcontext():
            return super().push_messages(messages)

    def _deliver(self, message: Message) -> str:
        identity = super()._deliver(message)
        reply = self._replies[identity]
        asked = message.metadata.message_type
        if asked not in (TRAIN, MASKED) or not reply.has_content():
            return identity
        last = message.metadata.dst_node_id == FIRST_NODE_ID + len(self._contexts) - 1
        if self.hostile is not None and last:
            reply.content = self.hostile(reply.content)
        if asked == TRAIN:
            self.heard.append(reply.content)
        return identity


SHAPE, CLASSES = (1, 28, 28), 10
_NO_LIMIT = 1e30
_SPARE_IMAGES = 40

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AuditedTask:
    """A task as nodes meet it in its first round."""

    schedule: Schedule
    asked: TaskRequest
    state: ServerTask
    classes: int
    """Of the records, as nodes hold them."""

    @classmethod
    def of(cls, schedule: Schedule) -> AuditedTask:
        """Begin a run on paper: networks of the real size, and frames from made-up images.

        A filter is left out: what it does comes before the task and moves no bound.
        """
        config = unhidden(schedule.config)
        schedule = replace(schedule, config=config)
        filter_ = config.privatizer
        hidden = 2 if filter_.hidden_attribute else 0
        federation = Federation(Roster((1,), (1,)), SHAPE, CLASSES, hidden, filter_.pairs)
        learner, task = Learner(config, federation), schedule.task
        state = learner.task(task)
        images = _SPARE_IMAGES + 5 * task.settings.framed_components // 4
        source = np.random.default_rng(schedule.config.seed)
        state.prepare(
            lambda: (
                made_up_images(images, 1, SHAPE, source)[:, 0],
                torch.arange(images) % federation.drawn_classes,
            )
        )
        asked, classes = learner.asked(task), CLASSES
        if "filter" in asked.weights:
            plain = {key: value for key, value in asked.weights.items() if key != "filter"}
            asked, classes = replace(asked, weights=plain, filter=None), federation.drawn_classes
        return cls(schedule, asked, state, classes)

    @property
    def size(self) -> int:
        """P, length of an update."""
        return self.state.size

    @property
    def nodes(self) -> int:
        """Nodes that canaries are on: the run's, or a few of them where sums are masked."""
        config = self.schedule.config
        most = MOST if config.aggregation.secure else config.data.nodes
        return min(config.data.nodes, most)

    @property
    def sensitive(self) -> str:
        """Name of the attribute that nodes must know; empty for none."""
        return self.schedule.config.privatizer.hidden_attribute

    @property
    def steps_on_nodes(self) -> bool:
        """Whether nodes step weights, so that a reply is a change of them."""
        return self.schedule.task.settings.weights_stepped

    def with_mechanism(self, **numbers: float) -> AuditedTask:
        """The same task, asked in the same way, with another mechanism."""
        return replace(self, schedule=self.schedule.with_mechanism(**numbers))

    def stepping(self, steps: int | None) -> AuditedTask:
        """Where nodes step weights in record mode: steps of rate 1 without limits on the weights.

        Args:
            steps: how many; None for as many as are declared.
        """
        if not (self.schedule.record_mode and self.steps_on_nodes):
            return self
        count = {} if steps is None else {"local_steps": steps}
        plain = self.with_mechanism(**count, local_rate=1.0, weight_limit=_NO_LIMIT)
        settings = plain.schedule.task.settings.model_dump()
        changes = {name: settings[name] for name in (*count, "local_rate", "weight_limit")}
        told = self.asked.settings.model_copy(update=changes)
        return replace(plain, asked=replace(self.asked, settings=told))

    def from_zeros(self) -> AuditedTask:
        """Where nodes step weights in record mode: from zeros, so that a change is noise alone."""
        if not (self.schedule.record_mode and self.steps_on_nodes):
            return self
        weights = dict(self.asked.weights)
        weights["critic"] = np.zeros_like(weights["critic"])
        return replace(self, asked=replace(self.asked, weights=weights))


def unhidden(config: Config) -> Config:
    """The configuration with noise from the operating system, and nothing from elsewhere."""
    filter_ = config.privatizer
    keeps = (filter_.by_tasks or filter_.pairs) and not filter_.asked_run
    hidden = {} if keeps else {"privatizer.kind": "none"}
    others = {"privacy.fixed_seed": -1, "privacy.epsilon_budget": 0.0, "privacy.population": ""}
    return config.updated({**hidden, **others, "split.side": "none"})


@dataclass(frozen=True)
class PaperCharge:
    """Pays for a round of an audit on paper: made-up users lose nothing, and no ledger is kept."""

    event: SubsampledGaussian
    number: int

    @property
    def entry(self) -> LedgerEntry:
        """A line that no ledger holds."""
        return LedgerEntry(self.number - 1, self.number, self.event, "audit", "", None, "", "")

    def pay(self, norms: NoisedNorms | None = None) -> LedgerEntry:
        """Nothing is written."""
        return self.entry

    def pay_ahead(self, *, norms: bool) -> PaperCharge:
        """Nothing is written."""
        return self

    def book(self, norms: NoisedNorms | None) -> None:
        """Nothing is written."""


class AuditStage:
    """Nodes with made-up users, and the real private step of one task over them."""

    def __init__(
        self,
        audited: AuditedTask,
        hosts: Sequence[MadeUpUsers],
        answering: ClientTaskFactory | None = None,
        largest_reply: float = math.inf,
    ) -> None:
        """Enrol the users as a run enrols its own.

        Args:
            audited: whose mechanism is carried out.
            hosts: each node's users, in the order of their partitions.
            answering: makes what answers on nodes in place of the task's own class.
            largest_reply: what the server takes of a node in record mode at most.
        """
        schedule = audited.schedule
        self._masked = schedule.config.aggregation.secure
        hosts = with_empty_nodes(hosts) if self._masked else hosts
        users = sum(len(host) for host in hosts)
        config = schedule.config.updated(
            {
                "data.users": max(users, len(hosts)),  # a bound; empty nodes may be among them
                "membership.least_users": 0.5,
                "data.nodes": len(hosts),
                "data.records_per_node": 1,
                "data.records_per_user": max(host.labels.shape[1] for host in hosts),
                "privacy.delta": min(schedule.config.privacy.delta, 1 / (users + 1)),
                **audited_aggregation(schedule.config),
            }
        )
        self._hosts, self._asked = list(hosts), audited.asked
        task = replace(schedule, config=config).task
        self.grid = ListeningGrid(build_client_app(self._open), len(hosts), config.flat())
        self.grid.answering = answering and (task.settings.kind, answering)
        federation = enrol(self.grid, config)
        kind = SecureStep if self._masked else PrivateStep
        self._step = kind(
            StepPlan(config, task, self.grid, federation, audited.size, largest_reply)
        )
        nodes = len(hosts) if schedule.record_mode else 1
        self._clip, self._size, self._event = task.settings.clipping_norm, audited.size, task.event
        self._denominator = denominator(config, task.settings)
        self._scale = self._denominator * nodes / self._clip
        self._norms: Floats | None = None
        self._counted = np.zeros(PUBLIC_BINS)

    def _open(self, context: Context) -> LocalUsers:
        return self._hosts[int(context.node_config["partition-id"])]

    def hosting(self, node: int, users: MadeUpUsers) -> None:
        """Have a node hold other users; as many, or enrolment would be another."""
        self._hosts[node] = users

    def gathered(self, number: int) -> Aggregate:
        """A round's checked sum; before the noise in user mode."""
        return self._step.gather(number, self._asked)

    def released(self, number: int) -> tuple[Floats, int]:
        """A round's release as the noised sum that it stands for, over the clipping norm.

        The histogram of norms that is released beside it is kept for `norms`.

        Returns:
            float64 [P], and how many replies were refused; zeros where no reply could be used.
        """
        self._norms = np.zeros(PUBLIC_BINS)
        sealed = self._step.ask(number, self._asked)
        if isinstance(sealed, SealedMasks):
            # no one else knows what was counted: all are drawn, and none of them holds a record
            self._counted = np.eye(1, PUBLIC_BINS)[0] * sum(len(host) for host in self._hosts)
        elif isinstance(sealed, SealedSum):
            self._counted = _in_public_bins(sealed.aggregate.norms)
        try:
            release = sealed.open(PaperCharge(self._event, number))
        except NoUsableReply:
            return np.zeros(self._size), len(self._hosts)
        self._norms = None if release.norms is None else np.array(release.norms.counts)
        return release.values * self._scale, len(release.attendance.refused)

    def lies(self) -> dict[str, Lie]:
        """Of masked sums: what a hostile node makes of its own, that no total may hold."""
        if not isinstance(self._step, SecureStep):
            return {}
        return lies(self._step, sum(len(host) for host in self._hosts), self._clip)

    @property
    def norms(self) -> Floats | None:
        """The last released histogram of norms, float64 [bins]; None where none is released."""
        return self._norms

    def counted(self) -> Floats:
        """The norms that nodes counted last, in the bins that are released, float64 [bins].

        With noise of nodes: if everybody was drawn, and held nothing.
        """
        if self._masked:
            return self._counted
        found = [TrainReply.from_record(content).norms for content in self.grid.heard]
        return _in_public_bins(np.sum(found, axis=0, dtype=np.int64))

    def replies(self) -> Floats:
        """What each node replied last, times the denominator, over the clip, float64 [nodes, P]."""
        found = [TrainReply.from_record(content).total for content in self.grid.heard]
        return np.stack(found) * (self._denominator / self._clip)


def _in_public_bins(norms: NDArray[np.int64]) -> Floats:
    if not len(norms):
        return np.zeros(PUBLIC_BINS)
    merged: Floats = norms.astype(np.float64).reshape(PUBLIC_BINS, -1).sum(axis=1)
    return merged
