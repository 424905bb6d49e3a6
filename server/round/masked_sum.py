"""The server's side of a round's secure sum: it relays, and opens the total when it may.

`SecureSum.mask` takes four exchanges and learns nothing: what it returns is masked by seeds of
which no node has given up a share. `MaskedSum.open` asks for the shares. Between the two the
round's ledger entry is written, where what is opened is a release.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from flwr.app import RecordDict
from flwr.serverapp import Grid
from numpy.typing import NDArray

from fedlens.accountant.noise.shares import SumLayout
from fedlens.client import secure_messages as wire
from fedlens.client.messages import ReplyError
from fedlens.foundation.secure_sum import (
    SecureSumError,
    SumCollector,
    SumTerms,
    bits_for,
    decoded,
)
from fedlens.server.federation.exchange import exchange

logger = logging.getLogger(__name__)

SHARE_OF_STEPS = 0.125
"""Of the time that a round's nodes are waited for: each exchange but that in which they train."""


@dataclass(frozen=True)
class SumPlan:
    """What every round's sum of one task is."""

    layout: SumLayout
    settings: wire.SumSettings
    parties: int
    threshold: int
    least: int
    colluding: int
    summed: bytes

    def terms(self, number: int) -> SumTerms:
        """The terms of a fresh sum for round ``number``."""
        return SumTerms(
            session=os.urandom(16),
            round=number,
            parties=self.parties,
            threshold=self.threshold,
            least=self.least,
            colluding=self.colluding,
            size=self.layout.size,
            bits=bits_for(self.layout.largest),
            summed=self.summed,
        )


class SecureSum:
    """Rounds' secure sums over one federation."""

    def __init__(self, grid: Grid, nodes: tuple[int, ...], plan: SumPlan, wait: float) -> None:
        """Prepare.

        Args:
            grid: the transport.
            nodes: Flower's ids, in the order of the nodes' partitions.
            plan: what is summed.
            wait: seconds that a round's nodes are waited for.
        """
        self._grid, self.plan, self._wait = grid, plan, wait
        self._nodes = dict(enumerate(nodes, start=1))

    def mask(self, number: int, requests: Mapping[int, RecordDict], asked: bytes) -> MaskedSum:
        """Have nodes train and mask, and agree on who survived. Nothing can be read yet.

        Args:
            number: the round.
            requests: for training, by Flower's node ids.
            asked: digest of what is the same in all of them.

        Raises:
            SecureSumError: too few nodes took part, survived or agreed.
        """
        terms = self.plan.terms(number)
        found = MaskedSum(self, SumCollector(terms, asked), terms)
        collector, session = found.collector, terms.session
        found.step(
            wire.KEYS,
            {index: wire.keys_request(terms, index) for index in self._nodes},
            lambda index, reply: collector.take_advert(index, wire.read_advert(reply)),
        )
        collector.require(len(collector.adverts), "sent their keys")
        adverts = list(collector.adverts.values())
        found.step(
            wire.SHARES,
            {index: wire.shares_request(session, adverts) for index in collector.adverts},
            lambda index, reply: collector.take_shares(
                index, wire.read_sealed(reply, replied=True)
            ),
        )
        collector.require(len(collector.members), "shared their secrets")
        found.step(
            wire.MASKED,
            {index: self._masked_request(found, index, requests) for index in collector.members},
            lambda index, reply: collector.take_masked(index, wire.read_masked(reply)),
        )
        survivors = collector.survivors
        collector.require(len(survivors), "sent their sums")
        found.step(
            wire.AGREE,
            {index: wire.agree_request(session, survivors) for index in survivors},
            lambda index, reply: collector.take_signature(index, wire.read_signature(reply)),
        )
        if len(collector.signatures) < terms.threshold:
            raise SecureSumError(f"too few nodes agreed: {terms.threshold} are needed")
        return found

    def _masked_request(
        self, found: MaskedSum, index: int, requests: Mapping[int, RecordDict]
    ) -> RecordDict:
        sealed = found.collector.shares_for(index)
        record = wire.add_sealed(requests[self._nodes[index]], found.terms.session, sealed)
        return wire.add_settings(record, self.plan.settings)

    def ask(
        self, number: int, message_type: str, contents: Mapping[int, RecordDict]
    ) -> dict[int, RecordDict]:
        """One exchange; contents and replies by the parties' numbers."""
        share = 1 - 4 * SHARE_OF_STEPS if message_type == wire.MASKED else SHARE_OF_STEPS
        replies = exchange(
            self._grid,
            {self._nodes[index]: content for index, content in contents.items()},
            message_type=message_type,
            group=str(number),
            deadline=self._wait * share,
        )
        return {i: replies[node] for i, node in self._nodes.items() if node in replies}


@dataclass(frozen=True)
class MaskedSum:
    """A sum that is masked still."""

    sums: SecureSum
    collector: SumCollector
    terms: SumTerms

    @property
    def survivors(self) -> tuple[int, ...]:
        """The nodes that it is of, as positions in the roster."""
        return tuple(index - 1 for index in self.collector.survivors)

    def open(self) -> NDArray[np.int64]:
        """The total of the survivors in the layout's pitches, int64 [size].

        Raises:
            SecureSumError: too few nodes gave up their shares.
        """
        request = wire.reveal_request(self.terms.session, self.collector.signatures)
        self.step(
            wire.REVEAL,
            dict.fromkeys(self.collector.survivors, request),
            lambda index, reply: self.collector.take_reveal(index, wire.read_reveal(reply)),
        )
        return decoded(self.collector.opened(), self.terms.bits)

    def step(
        self,
        message_type: str,
        contents: Mapping[int, RecordDict],
        take: Callable[[int, RecordDict], str],
    ) -> None:
        """One exchange; what cannot be used is left out, and named without its values."""
        number = self.terms.round
        replies = self.sums.ask(number, message_type, contents)
        if len(replies) < len(contents):
            logger.warning("round %d: some nodes failed or were late; left out", number)
        for index, reply in replies.items():
            try:
                fault = take(index, reply)
            except (ReplyError, SecureSumError) as error:
                fault = str(error)
            if fault:
                logger.warning("round %d: a reply was refused: %s", number, fault)
                logger.debug("round %d: it came from party %d", number, index)
