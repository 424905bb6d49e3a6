"""What users of a population have spent: releases about everyone, and about disjoint slices.

A population may declare one public attribute, such as an app's version, of which every user has one
value, fixed for as long as the population lasts. A run on the users of one value looks at none of
the others: what it releases depends on no other user's data, whichever releases came before. So a
user pays for the releases about everyone and for those of the own slice alone, and the population
has spent what the users of its most expensive slice did (McSherry, "Privacy Integrated Queries",
2009, theorem 4, here for adding or removing a user). Slices by any other attribute can share
users: what is released of one is charged to everyone.

A private split has two sides, and each user's own records decide, by a public model and threshold,
on which one the user is. So a round on one side costs nothing where the other side has paid for as
many rounds of the same mechanism. Which side a user is on may follow from earlier releases, of
which the model is one: it is not enough that the more expensive side is paid for, for a different
one may be more expensive after each model. What is charged therefore holds both sides' schedules,
mechanism by mechanism; where one side's are all among the other's, it is exactly the more
expensive.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from fedlens.accountant.bounds import Bound
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Event, PricedMechanism, SubsampledGaussian
from fedlens.accountant.ledger.chain import LedgerEntry
from fedlens.accountant.ledger.terms import PopulationTerms

MOST_ROUNDS = 10**6
"""As many rounds are looked for at most where it is asked how many a budget pays for."""
PROBE = "probe"
"""Purpose of the entries that a population's limit on probes is about."""
SPLIT = "split:"
"""What the attribute of a private split begins with: no declared name has a colon."""
SIDES = ("below", "from")


def split_side(identity: str, side: str) -> str:
    """The users on a side of a split, as ledgers name them.

    Args:
        identity: of all that decides a user's side, as a hash.
        side: one of `SIDES`.
    """
    return f"{SPLIT}{identity}={side}"


class PopulationSpending:
    """Upper bounds on what any user of a population has spent, by what was granted."""

    def __init__(self, terms: PopulationTerms) -> None:
        self._terms = terms
        self._everyone, self._probes = DifferentialAccountant(), DifferentialAccountant()
        self._slices: dict[str, DifferentialAccountant] = {}
        """By slice: its own releases and everyone's."""
        self._sides: dict[str, Counter[PricedMechanism]] = {}
        """By side of a split: how many releases of each mechanism there were."""

    def apart(self, users: str) -> str:
        """The slice if it shares no user with other slices, else an empty text: everyone's.

        Args:
            users: ``attribute=value``; empty for everyone.
        """
        attribute, _, value = users.partition("=")
        declared = self._terms.slices
        return users if declared and attribute == declared and value else ""

    def compose(self, event: Event, count: int, purpose: str, users: str) -> None:
        """Book ``count`` grants of an event about some users."""
        if purpose == PROBE:
            self._probes.compose(_of_all(event), count)
        own, beyond = self.apart(users), self._beyond(event, count, users)
        if beyond is not None:
            self._sides.setdefault(users, Counter())[event.mechanism] += event.count * count
            event, count = replace(event, count=1), beyond
        if not count:
            return
        if own:
            if own not in self._slices:
                self._slices[own] = copy.deepcopy(self._everyone)
            self._slices[own].compose(event, count)
            return
        for account in (self._everyone, *self._slices.values()):
            account.compose(event, count)

    def _beyond(self, event: Event, count: int, users: str) -> int | None:
        """Releases that neither side of a split has paid for; None of what is on no side."""
        split, _, side = users.rpartition("=")
        apart = self._terms.unit == "user"
        if not (apart and split.startswith(SPLIT) and side in SIDES):
            return None
        spent = {
            one: self._sides.get(f"{split}={one}", Counter())[event.mechanism] for one in SIDES
        }
        return max(0, spent[side] + event.count * count - max(spent.values()))

    def epsilon(self, users: str = "", delta: float = 0.0) -> Bound:
        """ε of the users of a slice; of the most expensive where none is named.

        Args:
            users: the slice.
            delta: δ; 0 for the terms' own.
        """
        at = delta or self._terms.delta
        return max(
            (account.epsilon(at) for account in self._of(self.apart(users))),
            key=lambda bound: bound.epsilon,
        )

    def probes(self) -> Bound:
        """ε at the terms' δ of all probes together, whichever slice they asked."""
        return self._probes.epsilon(self._terms.delta)

    def _of(self, own: str) -> Iterable[DifferentialAccountant]:
        if own:
            return (self._slices.get(own, self._everyone),)
        return (self._everyone, *self._slices.values())

    def exceeds_budget(self, event: Event, users: str) -> bool:
        """Whether the filter forbids an event about some users, for any of them."""
        admits = self._terms.filter.admits
        beyond = self._beyond(event, 1, users)
        if beyond is not None:
            event = replace(event, count=max(1, beyond))
        return beyond != 0 and not all(
            admits(account.counts, event) for account in self._of(self.apart(users))
        )

    def share(self, users: str = "") -> float:
        """What part of the filter's total a slice's users have spent, or the most that any have."""
        spent, total = self._terms.filter.spent, self._terms.filter.total
        return max(spent(account.counts) for account in self._of(self.apart(users))) / total

    def exceeds_probes(self, event: Event, purpose: str) -> bool:
        """Whether a probe would take all of them above what the terms leave to probes."""
        limit = self._terms.probe_epsilon
        return (
            purpose == PROBE
            and limit > 0
            and self._probes.would_exceed(_of_all(event), epsilon=limit, delta=self._terms.delta)
        )


def most_that(fits: Callable[[int], bool], most: int = MOST_ROUNDS) -> int:
    """The largest number up to ``most`` that fits, where all smaller ones do; 0 for none."""
    low, high = 0, 1
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _of_all(event: Event) -> Event:
    """A release in which everybody takes part, which costs no less.

    What such releases cost is one number, Σ 1/z², of which the closed form of ε is a growing
    function. So their limit is a filter as it stands: they may be chosen by earlier ones (Smith
    and Thakurta, "Fully Adaptive Composition for Gaussian Differential Privacy",
    arXiv:2210.17520).
    """
    if isinstance(event, SubsampledGaussian):
        return replace(event, sampler="none", sampling_rate=1.0)
    return event


@dataclass(frozen=True)
class Share:
    """What one run has spent of a population's budget."""

    run: str
    grants: int
    """Entries, those that a crash left unused included."""
    rounds: int
    """Different rounds among them."""
    alone: Bound
    """ε at the population's δ, had there been no other run. Such figures do not add up to ε."""
    last: str
    """The day on which the process began that was granted the last of them: ISO 8601, UTC."""
    purposes: tuple[str, ...] = ()
    """What they were for, each once, the first first."""
    users: tuple[str, ...] = ()
    """The slices that they were about; empty for everyone."""


def share_of(run: str, entries: Sequence[LedgerEntry], delta: float) -> Share:
    """What a run has spent by its entries, at least one."""
    account = DifferentialAccountant()
    for event, count in Counter(entry.event for entry in entries).items():
        account.compose(event, count)
    return Share(
        run=run,
        grants=len(entries),
        rounds=len({entry.round for entry in entries}),
        alone=account.epsilon(delta),
        last=entries[-1].at,
        purposes=tuple(dict.fromkeys(entry.purpose for entry in entries)),
        users=tuple(dict.fromkeys(entry.users for entry in entries if entry.users)),
    )
