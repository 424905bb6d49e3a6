"""The part of a round that touches users' data: draw, ask, check, and the one draw of noise."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedlens.accountant.bayesian.noised_norms import NoisedNorms, SplitNoise, noised_norms
from fedlens.accountant.noise import private_source
from fedlens.client.messages import (
    TRAIN,
    Mechanism,
    ReplyError,
    TrainReply,
    TrainRequest,
    UserSplit,
)
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.profile import timed
from fedlens.server.config.mechanism import mechanism, round_noise, trimming_of
from fedlens.server.config.schedule import ScheduledTask
from fedlens.server.config.tree import Config
from fedlens.server.config.trimming import TooFewUsers
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.federation.enrolment import Federation
from fedlens.server.federation.exchange import exchange
from fedlens.server.federation.roster import DrawnUsers, Roster, draw_users, take_everyone
from fedlens.server.round.aggregation import Aggregate, Answer, Limits, combine, noised_mean
from fedlens.server.round.sealed import Attendance, Charge, RoundRelease, SealedFailure, SealedRound
from fedlens.server.round.slots import RoundSlots
from fedlens.server.run.directory import new_key
from fedlens.server.tasks.protocol import TaskRequest

logger = logging.getLogger(__name__)

_COHORT, _SEED, _NOISE, _NORMS = 1, 2, 3, 4


class NoUsableReply(FedlensError, RuntimeError):
    """Nodes were asked, and none gave a reply that could be used."""


@dataclass(frozen=True)
class StepPlan:
    """What a private step is carried out with."""

    config: Config
    """The run's."""
    task: ScheduledTask
    """Whose sampling rate, noise and clip are carried out."""
    grid: Grid
    """The transport."""
    federation: Federation
    """Whom to ask."""
    size: int
    """P, the length of an update."""
    largest_reply: float
    """L2 bound of what a node in record mode can reply."""
    key: bytes = b""
    """The run's, which nodes seed users' batches by; empty for a new one."""
    positive: bool = False
    """Refuse replies with a number below 0."""
    split: UserSplit | None = None
    """The side of a private split that is asked; None for everyone."""


@dataclass(frozen=True, eq=False)
class SealedSum:
    """User mode: the exact sum of the sound replies, which the server is to add noise to."""

    number: int
    """The round."""
    aggregate: Aggregate
    """Private."""
    mechanism: Mechanism
    noise: SplitNoise
    attendance: Attendance

    def open(self, charge: Charge) -> RoundRelease:
        """Pay, with a commitment to the noised norms, and only then draw the sum's noise.

        Raises:
            OutOfBudget: nothing was written or released.
            WrongUse: the charge is for other neighbours than the sum is bounded for.
        """
        self.aggregate.total.require_same_neighbours(charge.event)
        norms = self._noise_norms()
        entry = charge.pay(norms)
        return RoundRelease(
            self._noise_sum(), entry, self.aggregate.accepted, self.attendance, norms
        )

    @timed("noise")
    def _noise_norms(self) -> NoisedNorms | None:
        """The noised histogram of the realised norms; None where none is released."""
        if not math.isfinite(self.noise.norms):
            return None
        return noised_norms(
            self.aggregate.norms,
            clipping_norm=self.mechanism.clipping_norm,
            noise=self.noise.norms,
            source=private_source(self.mechanism.fixed_seed, self.number, _NORMS),
        )

    @timed("noise")
    def _noise_sum(self) -> NDArray[np.float64]:
        return noised_mean(
            self.aggregate.total,
            noise_multiplier=self.noise.update,
            denominator=self.mechanism.denominator,
            source=private_source(self.mechanism.fixed_seed, self.number, _NOISE),
        )


@dataclass(frozen=True, eq=False)
class SealedQuestion:
    """Record mode: replies are releases of the nodes, so nothing is asked before it is paid for."""

    number: int
    """The round."""
    step: PrivateStep
    request: TaskRequest

    def open(self, charge: Charge) -> RoundRelease:
        """Pay, ask, and take the mean of the replies over the declared nodes.

        Raises:
            OutOfBudget: nothing was written or asked.
            NoUsableReply: no node gave a sound reply.
        """
        entry = charge.pay()
        aggregate = self.step.gather(self.number, self.request)
        nodes = self.step.config.data.nodes  # declared: a fixed number
        attendance = self.step.attendance_of(aggregate.accepted, aggregate.refused)
        return RoundRelease(aggregate.total.values / nodes, entry, aggregate.accepted, attendance)


class PrivateStep:
    """One task's mechanism, as the ledger describes it and as it is carried out."""

    def __init__(self, plan: StepPlan) -> None:
        """Prepare for updates as planned."""
        config, self._grid, self._roster = plan.config, plan.grid, plan.federation.roster
        self.config, self._split = config, plan.split
        self._task, self._key = plan.task.settings, plan.key or new_key(config)
        self._slots = RoundSlots(config.rounds)
        self.record_mode = config.privacy.unit == "record"
        bound = plan.largest_reply if self.record_mode else self._task.clipping_norm
        self._limits = Limits(
            plan.size, bound, evidence=not self.record_mode, positive=plan.positive
        )
        self._trimming = trimming_of(config, self._task)

    def meet(self, roster: Roster) -> None:
        """Go by who is there now, where that is no longer who was enrolled at first.

        Raises:
            EnrolmentError: users are to be left out, and nodes of record mode take all they hold.
        """
        self._roster = roster
        if self.record_mode and any(roster.left_out):
            raise EnrolmentError(
                "users are revoked, or enrolled on two nodes, and with privacy.unit = 'record' "
                "nodes go by all records that they hold: have the nodes leave them out of their "
                "data, or take unit = 'user'"
            )

    def ask(self, number: int, request: TaskRequest) -> SealedRound:
        """Ask the nodes for a round, in user mode; in record mode say what is to be asked.

        Raises:
            NoiseUnsound: this installation's noise fails its self-test.
        """
        if self.record_mode:
            return SealedQuestion(number, self, request)
        try:
            aggregate = self.gather(number, request)
        except NoUsableReply as error:
            return SealedFailure(error)
        told, noise = mechanism(self.config, self._task), round_noise(self.config, self._task)
        attendance = self.attendance_of(aggregate.accepted, aggregate.refused)
        return SealedSum(number, aggregate, told, noise, attendance)

    def gather(self, number: int, request: TaskRequest) -> Aggregate:
        """Draw this round's users, have them train, and add the sound replies up.

        It takes until the slot's end, whatever the draw. In user mode the result is private and
        must be noised; in record mode the nodes noised it.

        Raises:
            NoUsableReply: no node gave a sound reply, or too few for a trimmed sum.
        """
        with self._slots.hold():
            replies, aggregate = self._collect(number, request)
        self.report(number, aggregate.accepted, aggregate.refused)
        if replies == len(aggregate.refused):
            raise NoUsableReply(f"round {number}: no node gave a usable reply")
        return aggregate

    @timed("messages")
    def _collect(self, number: int, request: TaskRequest) -> tuple[int, Aggregate]:
        """How many replies could be read, and the sum of the sound ones."""
        drawn = self._draw(number)
        records = exchange(
            self._grid,
            self._requests(number, drawn, request),
            message_type=TRAIN,
            group=str(number),
            deadline=self.config.rounds.wait,
        )
        answers = self._read(records, drawn)
        try:
            return len(answers), combine(answers, self._limits, self._trimming)
        except TooFewUsers as error:
            raise NoUsableReply(f"round {number}: {error}") from None

    def attendance_of(
        self, accepted: tuple[int, ...], refused: Sequence[tuple[int, str]] = ()
    ) -> Attendance:
        """Which replies of the declared nodes a sum is of."""
        reasons = tuple(reason for _, reason in refused)
        return Attendance(self.config.data.nodes, len(accepted), reasons)

    def _draw(self, number: int) -> DrawnUsers:
        roster = self._roster
        if self.record_mode:
            return take_everyone(roster)
        source = private_source(self.config.privacy.fixed_seed, number, _COHORT)
        return draw_users(roster, self._task.sampling_rate, source)

    def _requests(
        self, number: int, drawn: DrawnUsers, request: TaskRequest
    ) -> dict[int, RecordDict]:
        """One for every node, of one size whichever users were drawn: silence would tell.

        All share the weights in memory: a thousand copies of megabytes would be gigabytes.
        """
        one, roster = self._request(number, request), self._roster
        weights, bare = one.to_record()["weights"], replace(one, weights={})
        found = {}
        for node, users, enrolled in zip(roster.node_ids, drawn, roster.users, strict=True):
            found[node] = replace(bare, users=users, enrolled=enrolled).to_record()
            found[node]["weights"] = weights
        return found

    def _request(self, number: int, request: TaskRequest) -> TrainRequest:
        """What every node is asked alike."""
        seeds = np.random.SeedSequence([self.config.seed, number, _SEED])
        return TrainRequest(
            round=number,
            users=(),
            enrolled=0,
            kind=self._task.kind,
            mechanism=mechanism(self.config, self._task),
            settings=request.settings.model_dump(),
            weights=request.weights,
            seed=int(seeds.generate_state(1, np.uint32)[0]),
            key=self._key,
            records_per_user=self.config.data.records_per_user,
            filter=request.filter,
            split=self._split,
            unlabelled=self.config.data.partly_labelled and not self._task.reads_labels,
        )

    def _read(self, records: dict[int, RecordDict], drawn: DrawnUsers) -> list[Answer]:
        position = {node: i for i, node in enumerate(self._roster.node_ids)}
        answers = []
        for node in list(records):
            try:
                reply = TrainReply.from_record(records.pop(node))
            except ReplyError:
                continue
            place = position[node]
            enrolled = self._roster.active_on((place,))
            answers.append(Answer(place, len(drawn[place]), reply, enrolled))
        return answers

    def report(
        self, number: int, accepted: tuple[int, ...], refused: Sequence[tuple[int, str]] = ()
    ) -> None:
        """Log which nodes answered, and why replies were refused."""
        # every node is asked in every round, so how many answered tells nothing of who was drawn
        asked, declared = len(self._roster.node_ids), self.config.data
        whole = len(accepted) == asked == declared.nodes
        logger.log(
            logging.INFO if whole else logging.WARNING,
            "round %d: %d of %d nodes, on which %d of %d users are enrolled",
            *(number, len(accepted), declared.nodes),
            *(self._roster.active_on(accepted), declared.users),
        )
        for node, reason in refused:
            logger.warning("round %d: a reply was refused: %s", number, reason)
            logger.debug("round %d: it came from node %d", number, node)
