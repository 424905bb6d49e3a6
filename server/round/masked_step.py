"""The private step of a round whose nodes mask their sums, and may add the noise themselves.

The server cannot look at a node's reply any more. What it still checks is the total: its norm must
be one that clipped updates (and the nodes' noise) can add up to.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.noise import require_sound_noise
from fedlens.client.messages import TrainReply
from fedlens.client.secure_messages import SumSettings, layout_of
from fedlens.foundation.profile import timed
from fedlens.foundation.secure_sum import SecureSumError
from fedlens.server.config.mechanism import NOISE_EXCESS, denominator, mechanism, round_noise
from fedlens.server.config.schedule import ScheduledTask
from fedlens.server.config.tree import Config
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.federation.roster import DrawnUsers, Roster
from fedlens.server.round.aggregation import (
    NORM_SLACK,
    ONE_USER,
    Aggregate,
    Answer,
    BoundedSum,
    objection,
)
from fedlens.server.round.masked_sum import MaskedSum, SecureSum, SumPlan
from fedlens.server.round.sealed import Charge, RoundRelease, SealedFailure, SealedRound
from fedlens.server.round.step import NoUsableReply, PrivateStep, StepPlan
from fedlens.server.tasks.protocol import TaskRequest


@dataclass(frozen=True, eq=False)
class SealedMasks:
    """Nodes that add the noise themselves: their sum is masked until the round is paid for."""

    number: int
    """The round."""
    step: SecureStep
    masked: MaskedSum
    slot: ExitStack
    """Ends with the time slot in which nodes were asked: they are asked for shares in it too."""

    def open(self, charge: Charge) -> RoundRelease:
        """Pay, open, and then book the noised norms, or the worst case where none were opened.

        Raises:
            OutOfBudget: nothing was written or opened.
            NoUsableReply: as `SecureStep.unmask`; the round is paid for.
        """
        norms: NoisedNorms | None = None
        with ExitStack() as booking, self.slot:
            paid = charge.pay_ahead(norms=self.step.has_norms)
            booking.callback(lambda: paid.book(norms))  # after an interruption too
            values, norms = self.step.unmask(self.masked, self.number)
        there = self.masked.survivors
        self.step.report(self.number, there)
        return RoundRelease(values, paid.entry, there, self.step.attendance_of(there), norms)


class SecureStep(PrivateStep):
    """`PrivateStep` over masked sums."""

    def __init__(self, plan: StepPlan) -> None:
        """As `PrivateStep`.

        Raises:
            SecureSumError: so many users of such norms need more than 64 bits a number.
            WrongUse: the noise is too little to be shared by so many nodes.
        """
        super().__init__(plan)
        self.noised_by_nodes = plan.config.aggregation.noise == "distributed"
        self._plan = sum_plan(plan.config, plan.task, plan.size)
        self._sums = self._sums_of(plan.federation.roster)

    def meet(self, roster: Roster) -> None:
        """As `PrivateStep.meet`; declared nodes that are not there count as dropouts.

        Raises:
            EnrolmentError: users are to be left out, and nodes draw users by themselves.
        """
        super().meet(roster)
        if self.noised_by_nodes and any(roster.left_out):
            raise EnrolmentError(
                "users are revoked, or enrolled on two nodes, and with aggregation.noise = "
                "'distributed' nodes draw their users by themselves: have the nodes leave them "
                "out of their data, or take noise = 'server'"
            )
        self._sums = self._sums_of(roster)

    def _sums_of(self, roster: Roster) -> SecureSum:
        return SecureSum(self._grid, roster.node_ids, self._plan, self.config.rounds.wait)

    @property
    def plan(self) -> SumPlan:
        """What every round's sum is."""
        return self._plan

    @property
    def has_norms(self) -> bool:
        """Whether the round's release has a histogram of norms."""
        return self._plan.layout.norms.size > 0

    def ask(self, number: int, request: TaskRequest) -> SealedRound:
        """As `PrivateStep.ask`; with distributed noise all of the round but the last exchange.

        Raises:
            NoiseUnsound: this installation's noise fails its self-test, so its nodes' may too.
        """
        if not self.noised_by_nodes:
            return super().ask(number, request)
        with ExitStack() as slot:
            slot.enter_context(self._slots.hold())
            try:
                masked = self.mask(number, request)
            except NoUsableReply as error:
                return SealedFailure(error)
            return SealedMasks(number, self, masked, slot.pop_all())

    def gather(self, number: int, request: TaskRequest) -> Aggregate:
        """The exact total of the survivors, which the server is to add noise to.

        Raises:
            NoUsableReply: too few nodes, or a total that is none of clipped updates.
        """
        with self._slots.hold():
            aggregate = self._open_total(number, request)
        self.report(number, aggregate.accepted)
        return aggregate

    @timed("messages")
    def _open_total(self, number: int, request: TaskRequest) -> Aggregate:
        drawn = self._draw(number)
        masked = self._mask(number, drawn, request)
        total, norms = self._open(masked)
        users = sum(len(drawn[place]) for place in masked.survivors)
        answer = Answer(0, users, TrainReply(total, norms.astype(np.int64)))
        if (reason := objection(answer, self._limits)) is not None:
            raise NoUsableReply(f"round {number}: the total was refused: {reason}")
        bounded = BoundedSum(total, self._task.clipping_norm, ONE_USER)
        return Aggregate(bounded, answer.reply.norms, (), masked.survivors)

    @timed("messages")
    def mask(self, number: int, request: TaskRequest) -> MaskedSum:
        """Distributed noise: all of the round but the last exchange; nothing can be read yet.

        Raises:
            NoUsableReply: too few nodes.
            NoiseUnsound: this installation's noise fails its self-test, so its nodes' may too.
        """
        require_sound_noise()
        unnamed: DrawnUsers = [() for _ in self._roster.users]  # nodes draw by themselves
        return self._mask(number, unnamed, request)

    @timed("messages")
    def unmask(
        self, masked: MaskedSum, number: int
    ) -> tuple[NDArray[np.float64], NoisedNorms | None]:
        """The round's noised mean and its noised norms. Its ledger entry must be on disk already.

        Raises:
            NoUsableReply: too few nodes gave up their shares, or what they noised is no noised sum
                of clipped updates.
        """
        total, counts = self._open(masked)
        self._check_noised(total, masked, number)
        mean = total / denominator(self.config, self._task)
        if not len(counts):
            return mean, None
        noise = round_noise(self.config, self._task).norms
        return mean, NoisedNorms(self._task.clipping_norm, noise, tuple(counts.tolist()))

    def _mask(self, number: int, drawn: DrawnUsers, request: TaskRequest) -> MaskedSum:
        try:
            requests = self._requests(number, drawn, request)
            return self._sums.mask(number, requests, self._request(number, request).digest())
        except SecureSumError as error:
            raise NoUsableReply(f"round {number}: {error}") from None

    def _open(self, masked: MaskedSum) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        try:
            return self._plan.layout.decoded(masked.open())
        except SecureSumError as error:
            raise NoUsableReply(f"round {masked.terms.round}: {error}") from None

    def _check_noised(self, total: NDArray[np.float64], masked: MaskedSum, number: int) -> None:
        """A total of honest nodes fails this with a probability below exp(−200)."""
        users = sum(self._roster.users[place] for place in masked.survivors)
        part = self._plan.layout.update
        deviation = part.scale * part.pitch * math.sqrt(len(masked.survivors))
        noise = deviation * (math.sqrt(len(total)) + NOISE_EXCESS)
        bound = (users * self._task.clipping_norm + noise) * (1 + NORM_SLACK)
        if not float(np.linalg.norm(total)) <= bound:
            raise NoUsableReply(f"round {number}: the total is above what updates and noise can be")


def sum_plan(config: Config, task: ScheduledTask, size: int) -> SumPlan:
    """What a task's rounds sum, and on which terms.

    Args:
        config: the run's.
        task: of the schedule.
        size: P.

    Raises:
        WrongUse: the noise is too little to be shared by so many nodes.
    """
    section, nodes = config.aggregation, config.data.nodes
    settings = SumSettings(
        noise=section.noise,
        norms_share=config.privacy.norms_share,
        users=config.data.users,
        kind=task.settings.kind,
    )
    told = mechanism(config, task.settings)
    least = section.survivors(nodes)
    honest = least - section.colluding
    return SumPlan(
        layout=layout_of(told, settings, size, parties=nodes, honest=honest),
        settings=settings,
        parties=nodes,
        threshold=section.shares(nodes),
        least=least,
        colluding=section.colluding,
        summed=settings.summed(told),
    )
