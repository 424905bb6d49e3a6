"""What a round gathered, sealed until it is paid for: the one way to anything noised.

A step asks the nodes and hands over a `SealedRound`. Its `open` takes a `Charge`, has the ledger's
line on disk before a sum is noised, and alone makes a `RoundRelease`, which carries that line.
There are four kinds: a sum that the server is to noise, a question that nodes will answer with
noise of theirs and that is not asked before it is paid for, a masked sum of nodes that noise it
together, and a round in which nodes were asked in vain, which is paid for too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.chain import LedgerEntry


@dataclass(frozen=True)
class Attendance:
    """Which replies of a round came and counted."""

    asked: int = 0
    answered: int = 0
    refused: tuple[str, ...] = ()
    """Why each reply that was refused was; no reason quotes a value."""

    @property
    def missing(self) -> int:
        """Nodes that did not answer, or said that they failed."""
        return self.asked - self.answered - len(self.refused)


@dataclass(frozen=True, eq=False)
class RoundRelease:
    """A round's noised mean. Made by `SealedRound.open` alone."""

    values: NDArray[np.float64]
    """[P]."""
    entry: LedgerEntry
    """The line that paid for it, which is on disk."""
    accepted: tuple[int, ...]
    """The nodes that it is of, as positions in the roster."""
    attendance: Attendance
    norms: NoisedNorms | None = None
    """The noised histogram of the updates' norms; None where none is released."""


class PaidAhead(Protocol):
    """A line that is on disk before the norms that it commits to can be known."""

    @property
    def entry(self) -> LedgerEntry:
        """The line."""

    def book(self, norms: NoisedNorms | None) -> None:
        """Count the round with its norms, or at its worst where there are none."""


class Charge(Protocol):
    """What one round costs, and what it is for; it pays for one release."""

    @property
    def event(self) -> SubsampledGaussian:
        """The mechanism that is paid for."""

    def pay(self, norms: NoisedNorms | None = None) -> LedgerEntry:
        """Put the round's line on disk, and count it.

        Raises:
            OutOfBudget: nothing was written, and nothing may be released.
        """

    def pay_ahead(self, *, norms: bool) -> PaidAhead:
        """Put the line on disk before its noised sum, norms and all, can be known.

        Raises:
            OutOfBudget: as `pay`.
        """


class SealedRound(Protocol):
    """A round that was asked for, or is to be, and of which nothing can be had yet."""

    def open(self, charge: Charge) -> RoundRelease:
        """Pay, then release. May be called once.

        Raises:
            OutOfBudget: nothing was written or released.
            NoUsableReply: the round failed; it is paid for.
        """


@dataclass(frozen=True)
class SealedFailure:
    """A round in which nodes were asked in vain: it costs what another does."""

    error: Exception

    def open(self, charge: Charge) -> RoundRelease:
        """Pay, and raise why."""
        charge.pay()
        raise self.error
