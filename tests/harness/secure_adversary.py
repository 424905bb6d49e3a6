"""Every lie of a server and one colluding node about a small secure sum, and what they learn.

The server shows each honest party a list of keys and a list of survivors of its own choice, and
passes on whatever was signed; the colluding party signs anything, and has keys of two makes.

    PYTHONPATH=tests python -m harness.secure_adversary
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedlens.foundation.secure_sum import (
    Advert,
    Identity,
    KeyRoster,
    Reveal,
    SecureSumError,
    SumParty,
)
from fedlens.foundation.secure_sum.adverts import agreement, view_of
from fedlens.foundation.secure_sum.pairs import opened, pair_keys
from fedlens.foundation.secure_sum.terms import SumTerms

HONEST, LIAR = (1, 2, 3), 4
VIEWS = ("all", "the liar's other keys", "without the liar", "without one", "without another")
SURVIVORS = ("all", "without the first other", "without the second", "without the third")
REFUSED = (
    *("refused to share", "refused to mask", "refused to agree", "refused to reveal"),
    "revealed",
)


@dataclass(frozen=True)
class Lie:
    """What the server shows each honest party, by positions in `VIEWS` and `SURVIVORS`."""

    views: tuple[int, ...]
    survivors: tuple[int, ...]


def every_lie() -> Iterator[Lie]:
    """All of them; the first is the truth."""
    views = itertools.product(range(len(VIEWS)), repeat=len(HONEST))
    choices = itertools.product(range(len(SURVIVORS)), repeat=len(HONEST))
    return itertools.starmap(Lie, itertools.product(views, choices))


@dataclass
class Learned:
    """What came of a lie."""

    ended: Counter[str] = field(default_factory=Counter)
    """How honest parties ended."""
    unmasked: list[int] = field(default_factory=list)
    """Honest parties whose seed *and* masking key can be put together: a breach."""
    agreed: int = 0
    """Statements that honest parties revealed under; over one is a breach."""

    @property
    def breached(self) -> bool:
        """Whether the server has what it must not."""
        return bool(self.unmasked) or self.agreed > 1


class Adversary:
    """A server and a colluding party over three honest ones, through one sum."""

    def __init__(self, threshold: int = 3) -> None:
        """Give everyone keys.

        Args:
            threshold: of the sum; one that is sound for four parties, one of them colluding, is 3.
        """
        self.terms = SumTerms(
            session=os.urandom(16), round=1, parties=4, threshold=threshold, least=3, colluding=1,
            size=4, bits=32, summed=bytes(32),
        )  # fmt: skip
        self.identities = {i: Identity.new() for i in (*HONEST, LIAR)}
        self.roster = KeyRoster(frozenset(one.public for one in self.identities.values()))
        self.parties = {i: SumParty.new(self.terms, i, one) for i, one in self.identities.items()}
        self.other = SumParty.new(self.terms, LIAR, self.identities[LIAR])
        self.adverts = {i: party.advertise() for i, party in self.parties.items()}
        self.second = self.other.advertise()

    def tell(self, lie: Lie) -> Learned:
        """Go through the sum with a lie; nothing of it stays for the next one."""
        learned, parties = Learned(), {}
        lists = {i: self._view(i, lie.views[at]) for at, i in enumerate(HONEST)}
        sealed: dict[int, dict[int, bytes]] = {}
        for i in HONEST:
            parties[i] = SumParty.restored(self.parties[i].kept(), self.identities[i])
            with suppress(SecureSumError):
                sealed[i] = parties[i].share(lists[i], self.roster)
        members = self._mask(parties, lists, sealed)
        signed = self._agree(parties, members, lie)
        statements, reveals = {}, {}
        for i, (chosen, signature) in signed.items():
            view = view_of(lists[i])
            statement = agreement(self.terms, view, b"", members[i], chosen)
            signatures = {j: other for j, (_, other) in signed.items() if j in chosen}
            signatures |= {i: signature, LIAR: self.identities[LIAR].sign(statement)}
            with suppress(SecureSumError):
                reveals[i], statements[i] = parties[i].reveal(signatures), statement
        for i in HONEST:
            steps = (i in sealed, i in members, i in signed, i in reveals)
            learned.ended[REFUSED[sum(steps)]] += 1
        learned.agreed = len(set(statements.values()))
        learned.unmasked = [i for i in HONEST if self._opens(i, lists, sealed, reveals)]
        return learned

    def _view(self, party: int, choice: int) -> list[Advert]:
        others = [i for i in HONEST if i != party]
        gone = {2: LIAR, 3: others[0], 4: others[1]}.get(choice)
        shown = dict(self.adverts)
        if choice == 1:
            shown[LIAR] = self.second
        return [advert for i, advert in shown.items() if i != gone]

    def _mask(
        self,
        parties: Mapping[int, SumParty],
        lists: Mapping[int, list[Advert]],
        sealed: Mapping[int, dict[int, bytes]],
    ) -> dict[int, set[int]]:
        """Give each party the shares that there are for it; the liar's are right for its view."""
        members = {}
        for i in sealed:
            known = {advert.index for advert in lists[i]}
            given = {j: sealed[j][i] for j in sealed if j in known - {i} and i in sealed[j]}
            if LIAR in known:
                given[LIAR] = self._liar_in(lists[i]).share(lists[i], None)[i]
            with suppress(SecureSumError):
                parties[i].masked(np.zeros(self.terms.size, np.uint64), given)
                members[i] = {i, *given}
        return members

    def _liar_in(self, adverts: list[Advert]) -> SumParty:
        party = self.other if self.second in adverts else self.parties[LIAR]
        return SumParty.restored(party.kept(), self.identities[LIAR])

    def _agree(
        self, parties: Mapping[int, SumParty], members: Mapping[int, set[int]], lie: Lie
    ) -> dict[int, tuple[list[int], bytes]]:
        signed = {}
        for i, all_of_them in members.items():
            choice = lie.survivors[HONEST.index(i)]
            others = sorted(all_of_them - {i})
            gone = {others[choice - 1]} if 0 < choice <= len(others) else set()
            with suppress(SecureSumError):
                chosen = sorted(all_of_them - gone)
                signed[i] = chosen, parties[i].agree(chosen)
        return signed

    def _opens(
        self,
        target: int,
        lists: Mapping[int, list[Advert]],
        sealed: Mapping[int, dict[int, bytes]],
        reveals: Mapping[int, Reveal],
    ) -> bool:
        """Whether there are shares enough of a party's seed and of its masking key."""
        if target not in sealed:
            return False
        seeds = {j for j, one in reveals.items() if target in one.seeds}
        keys = {j for j, one in reveals.items() if target in one.keys}
        liar = self._liar_in(lists[target])
        content = sealed[target].get(LIAR)
        if content is not None:
            channel = self.adverts[target].channel
            publics = {target: channel}
            key = pair_keys(liar.channel, LIAR, publics, self.terms.digest, b"share")[target]
            if opened(key, content, target, view_of(lists[target])) is not None:
                seeds, keys = seeds | {LIAR}, keys | {LIAR}
        return min(len(seeds), len(keys)) >= self.terms.threshold


def main() -> None:
    """Tell all lies and print how honest parties ended."""
    adversary, ended, breaches, lies = Adversary(), Counter[str](), 0, list(every_lie())
    console = Console()
    for lie in track(lies, console=console, description="lies"):
        learned = adversary.tell(lie)
        ended, breaches = ended + learned.ended, breaches + learned.breached
    table = Table("an honest party", f"times in {len(lies)} lies of three")
    for name in REFUSED:
        table.add_row(name, str(ended[name]))
    table.add_row("breaches", str(breaches))
    console.print(table)


if __name__ == "__main__":
    main()
