"""The part of a round that touches users' data: draw, ask, check, and the one draw of noise."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from accountant.bayesian.noised_norms import NoisedNorms, noised_norms
from accountant.noise import private_source
from client.messages import TRAIN, ReplyError, TrainReply, TrainRequest, UserSplit
from foundation.errors import FedlensError
from foundation.profile import timed
from server.aggregation import Aggregate, Answer, Limits, combine, noised_mean
from server.config.tree import Config
from server.enrolment import Federation
from server.exchange import exchange
from server.learner import Asked
from server.mechanism import denominator, mechanism, round_noise
from server.run_key import new_key
from server.sampling import Cohort, draw_cohort, everyone
from server.schedule import ScheduledTask

logger = logging.getLogger(__name__)

_COHORT, _SEED, _NOISE, _NORMS = 1, 2, 3, 4


class NoUsableReply(FedlensError, RuntimeError):
    """Nodes were asked, and none gave a reply that could be used."""


class PrivateStep:
    """One task's mechanism, as the ledger describes it and as it is carried out."""

    def __init__(
        self,
        config: Config,
        task: ScheduledTask,
        grid: Grid,
        federation: Federation,
        size: int,
        largest_reply: float,
        key: bytes = b"",
        positive: bool = False,
        split: UserSplit | None = None,
    ) -> None:
        """Prepare for updates of length ``size``.

        Args:
            config: the run's.
            task: whose sampling rate, noise and clip are carried out.
            grid: the transport.
            federation: whom to ask.
            size: P.
            largest_reply: L2 bound of what a node in record mode can reply.
            key: the run's, which nodes seed users' batches by; empty for a new one.
            positive: refuse replies with a number below 0.
            split: the side of a private split that is asked; None for everyone.
        """
        self._config, self._grid, self._federation = config, grid, federation
        self._split = split
        self._task, self._key = task.settings, key or new_key(config)
        self.record_mode = config.privacy.unit == "record"
        bound = largest_reply if self.record_mode else self._task.clipping_norm
        self._limits = Limits(size, bound, evidence=not self.record_mode, positive=positive)

    @timed("messages")
    def gather(self, number: int, asked: Asked) -> Aggregate:
        """Draw this round's cohort, have it train, and add the sound replies up.

        In user mode the result is private and must be noised; in record mode the nodes noised it.

        Raises:
            NoUsableReply: no node gave a sound reply.
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
        answers, failed = self._read(records, cohort)
        aggregate = combine(answers, self._limits)
        self._report(number, aggregate, failed + len(requests) - len(records))
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
            return aggregate.total / len(self._federation.roster.node_ids)
        return noised_mean(
            aggregate.total,
            noise_multiplier=round_noise(self._config, self._task).update,
            clipping_norm=self._task.clipping_norm,
            denominator=denominator(self._config, self._task),
            source=private_source(self._config.privacy.fixed_seed, number, _NOISE),
        )

    def _draw(self, number: int) -> Cohort:
        roster = self._federation.roster
        if self.record_mode:
            return everyone(roster)
        source = private_source(self._config.privacy.fixed_seed, number, _COHORT)
        return draw_cohort(roster, self._task.sampling_rate, source)

    def _requests(self, number: int, cohort: Cohort, asked: Asked) -> dict[int, RecordDict]:
        """One for every node, of one size whichever users were drawn: silence would tell."""
        seeds = np.random.SeedSequence([self._config.seed, number, _SEED])
        one = TrainRequest(
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
        roster = self._federation.roster
        return {
            node: replace(one, users=users, enrolled=enrolled).to_record()
            for node, users, enrolled in zip(roster.node_ids, cohort, roster.users, strict=True)
        }

    def _read(self, records: dict[int, RecordDict], cohort: Cohort) -> tuple[list[Answer], int]:
        position = {node: i for i, node in enumerate(self._federation.roster.node_ids)}
        answers = []
        for node, record in records.items():
            try:
                reply = TrainReply.from_record(record)
            except ReplyError:
                continue
            place = position[node]
            answers.append(Answer(place, len(cohort[place]), reply))
        return answers, len(records) - len(answers)

    def _report(self, number: int, aggregate: Aggregate, silent: int) -> None:
        # who was asked is secret: it names users drawn, so only a debugging log says which node
        if silent:
            logger.warning("round %d: some nodes failed or were late; left out", number)
        for node, reason in aggregate.refused:
            logger.warning("round %d: a reply was refused: %s", number, reason)
            logger.debug("round %d: it came from node %d", number, node)
