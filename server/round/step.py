"""The part of a round that touches users' data: draw, ask, check, and the one draw of noise."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, replace

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedlens.accountant.bayesian.noised_norms import NoisedNorms, noised_norms
from fedlens.accountant.noise import private_source
from fedlens.client.messages import TRAIN, ReplyError, TrainReply, TrainRequest, UserSplit
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.profile import timed
from fedlens.server.config.mechanism import denominator, mechanism, round_noise, trimming_of
from fedlens.server.config.schedule import ScheduledTask
from fedlens.server.config.tree import Config
from fedlens.server.config.trimming import TooFewUsers
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.federation.enrolment import Federation
from fedlens.server.federation.exchange import exchange
from fedlens.server.federation.roster import Cohort, Roster, draw_cohort, everyone
from fedlens.server.learning.learner import Asked
from fedlens.server.round.aggregation import Aggregate, Answer, Limits, combine, noised_mean
from fedlens.server.run.key import new_key
from fedlens.server.run.status import Attendance

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


class PrivateStep:
    """One task's mechanism, as the ledger describes it and as it is carried out."""

    def __init__(self, plan: StepPlan) -> None:
        """Prepare for updates as planned."""
        config, self._grid, self._roster = plan.config, plan.grid, plan.federation.roster
        self._config, self._split = config, plan.split
        self._task, self._key = plan.task.settings, plan.key or new_key(config)
        self.record_mode = config.privacy.unit == "record"
        self.attendance = Attendance()
        """Of the round that was gathered last."""
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

    @timed("messages")
    def gather(self, number: int, asked: Asked) -> Aggregate:
        """Draw this round's cohort, have it train, and add the sound replies up.

        In user mode the result is private and must be noised; in record mode the nodes noised it.

        Raises:
            NoUsableReply: no node gave a sound reply, or too few for a trimmed sum.
        """
        cohort = self._draw(number)
        requests = self._requests(number, cohort, asked)
        records = exchange(
            self._grid,
            requests,
            message_type=TRAIN,
            group=str(number),
            deadline=self._config.rounds.wait,
        )
        answers = self._read(records, cohort)
        try:
            aggregate = combine(answers, self._limits, self._trimming)
        except TooFewUsers as error:
            raise NoUsableReply(f"round {number}: {error}") from None
        self._report(number, aggregate)
        if len(answers) == len(aggregate.refused):
            raise NoUsableReply(f"round {number}: no node gave a usable reply")
        return aggregate

    @timed("noise")
    def evidence(self, aggregate: Aggregate, number: int) -> NoisedNorms | None:
        """The second part of the round's release: the noised histogram of the realised norms.

        It may be kept or shown only once the round's ledger entry is on disk. None where no norms
        are released.
        """
        noise = round_noise(self._config, self._task).norms
        if not math.isfinite(noise):
            return None
        return noised_norms(
            aggregate.norms,
            clipping_norm=self._task.clipping_norm,
            noise=noise,
            source=private_source(self._config.privacy.fixed_seed, number, _NORMS),
        )

    @timed("noise")
    def release(self, aggregate: Aggregate, number: int) -> NDArray[np.float64]:
        """The round's release, float64 [P]. Its ledger entry must be on disk already."""
        if self.record_mode:
            return aggregate.total / self._config.data.nodes  # declared: a fixed number
        return noised_mean(
            aggregate.total,
            noise_multiplier=round_noise(self._config, self._task).update,
            clipping_norm=self._task.clipping_norm,
            denominator=denominator(self._config, self._task),
            source=private_source(self._config.privacy.fixed_seed, number, _NOISE),
            sensitivity=self._trimming.sensitivity(self._limits.size) if self._trimming else 0.0,
        )

    def _draw(self, number: int) -> Cohort:
        roster = self._roster
        if self.record_mode:
            return everyone(roster)
        source = private_source(self._config.privacy.fixed_seed, number, _COHORT)
        return draw_cohort(roster, self._task.sampling_rate, source)

    def _requests(self, number: int, cohort: Cohort, asked: Asked) -> dict[int, RecordDict]:
        """One for every node, of one size whichever users were drawn: silence would tell."""
        one, roster = self._request(number, asked), self._roster
        digests = roster.digests or (b"",) * len(cohort)
        return {
            node: replace(one, users=users, enrolled=enrolled, roster=digest).to_record()
            for node, users, enrolled, digest in zip(
                roster.node_ids, cohort, roster.users, digests, strict=True
            )
        }

    def _request(self, number: int, asked: Asked) -> TrainRequest:
        """What every node is asked alike."""
        seeds = np.random.SeedSequence([self._config.seed, number, _SEED])
        return TrainRequest(
            round=number,
            users=(),
            enrolled=0,
            kind=self._task.kind,
            mechanism=mechanism(self._config, self._task),
            settings=asked.settings.model_dump(),
            weights=asked.weights,
            seed=int(seeds.generate_state(1, np.uint32)[0]),
            key=self._key,
            records_per_user=self._config.data.records_per_user,
            filter=asked.filter,
            split=self._split,
        )

    def _read(self, records: dict[int, RecordDict], cohort: Cohort) -> list[Answer]:
        position = {node: i for i, node in enumerate(self._roster.node_ids)}
        answers = []
        for node, record in records.items():
            try:
                reply = TrainReply.from_record(record)
            except ReplyError:
                continue
            place = position[node]
            enrolled = self._roster.active_on((place,))
            answers.append(Answer(place, len(cohort[place]), reply, enrolled))
        return answers

    def _report(self, number: int, aggregate: Aggregate) -> None:
        # every node is asked in every round, so how many answered tells nothing of who was drawn
        asked, there = len(self._roster.node_ids), aggregate.accepted
        refused = tuple(reason for _, reason in aggregate.refused)
        self.attendance = Attendance(self._config.data.nodes, len(there), refused)
        level = logging.INFO if len(there) == asked == self._config.data.nodes else logging.WARNING
        logger.log(
            level,
            "round %d: %d of %d nodes, on which %d of %d users are enrolled",
            number,
            len(there),
            self._config.data.nodes,
            self._roster.active_on(there),
            self._config.data.users,
        )
        for node, reason in aggregate.refused:
            logger.warning("round %d: a reply was refused: %s", number, reason)
            logger.debug("round %d: it came from node %d", number, node)
