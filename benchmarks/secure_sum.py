"""What a secure sum costs: ``python -m benchmarks.secure_sum``.

One round of the real protocol without a network: every party's work is done, by as many processes
as there are cores to use, and the server's by this one. Also what each side computes alone, which
is what a round takes where every node is a machine of its own.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from fedlens.foundation.secure_sum import (
    Identity,
    KeyRoster,
    SumCollector,
    SumParty,
    SumTerms,
    decoded,
    encoded,
    packed,
)

SIZE, PARTIES, DROPOUTS, BITS = 130_000, 64, 0.2, 56


@dataclass
class Host:
    """Some of the parties, as one process computes them."""

    terms: SumTerms
    identities: dict[int, Identity]
    roster: KeyRoster
    parties: dict[int, SumParty] = field(default_factory=dict)

    def do(self, step: str, asked: dict[int, Any]) -> tuple[dict[int, Any], float]:
        """A step of the parties that are asked, and the processor seconds that it took."""
        started = time.process_time()
        found = {index: getattr(self, step)(index, content) for index, content in asked.items()}
        return found, time.process_time() - started

    def advertise(self, index: int, _: None) -> Any:
        """Step 1."""
        self.parties[index] = SumParty.new(self.terms, index, self.identities[index])
        return self.parties[index].advertise()

    def share(self, index: int, adverts: Any) -> Any:
        """Step 2."""
        return self.parties[index].share(adverts, self.roster)

    def mask(self, index: int, sealed: Any) -> bytes:
        """Step 3, of the party's own values."""
        words = encoded(values_of(index, self.terms.size), self.terms.bits)
        return packed(self.parties[index].masked(words, sealed), self.terms.bits)

    def agree(self, index: int, survivors: Any) -> bytes:
        """Step 4."""
        return self.parties[index].agree(survivors)

    def reveal(self, index: int, signatures: Any) -> Any:
        """Step 5."""
        return self.parties[index].reveal(signatures)


def values_of(index: int, size: int) -> NDArray[np.int64]:
    """What a party sums: numbers of 40 bits, as clipped sums with noise have."""
    return np.random.default_rng(index).integers(-(2**40), 2**40, size)


def _serve(host: Host, link: Connection) -> None:
    while (asked := link.recv()) is not None:
        link.send(host.do(*asked))


@dataclass(frozen=True)
class RoundSeconds:
    """Seconds of one round."""

    wall: float
    server: float
    """Processor seconds of the server."""
    parties: float
    """Those of all parties together."""
    exact: bool

    def party(self, parties: int) -> float:
        """Those of one party, on average."""
        return self.parties / parties

    def shared(self, processes: int) -> float:
        """Those of the whole round where the parties' are shared by so many cores of its own."""
        return self.server + self.parties / processes


def one_round(parties: int, dropouts: float, size: int, processes: int) -> RoundSeconds:
    """A round in which a share of the parties share their secrets and send no sum.

    Args:
        parties: n.
        dropouts: share of them that drops out, before it sends its masked values.
        size: numbers that are summed.
        processes: that compute the parties' steps.
    """
    gone = int(parties * dropouts)
    least = parties - gone
    terms = SumTerms(os.urandom(16), 1, parties, least, least, 0, size, BITS, bytes(32))
    identities = {index: Identity.new() for index in range(1, parties + 1)}
    roster = KeyRoster(frozenset(i.public for i in identities.values()))
    links, workers = _hosts(terms, identities, roster, processes)
    spent = [0.0]

    def ask(step: str, contents: dict[int, Any]) -> dict[int, Any]:
        for place, link in enumerate(links):
            part = {i: c for i, c in contents.items() if i % processes == place}
            link.send((step, part))
        found: dict[int, Any] = {}
        for link in links:
            answers, seconds = link.recv()
            found |= answers
            spent[0] += seconds
        return dict(sorted(found.items()))

    started, before = time.perf_counter(), time.process_time()
    total, survivors = _carried_out(SumCollector(terms), list(identities), gone, ask)
    wall, server = time.perf_counter() - started, time.process_time() - before
    for link, worker in zip(links, workers, strict=True):
        link.send(None)
        worker.join()
    expected = sum((values_of(i, size) for i in survivors), np.zeros(size, dtype=np.int64))
    exact = bool((decoded(total, BITS) == expected).all())
    return RoundSeconds(wall, server, spent[0], exact)


def _hosts(
    terms: SumTerms, identities: dict[int, Identity], roster: KeyRoster, processes: int
) -> tuple[list[Connection], list[Any]]:
    links, workers, fork = [], [], get_context("fork")
    for _ in range(processes):
        ours, theirs = fork.Pipe()
        worker = fork.Process(target=_serve, args=(Host(terms, identities, roster), theirs))
        worker.start()
        links.append(ours)
        workers.append(worker)
    return links, workers


def _carried_out(
    collector: SumCollector,
    indices: Sequence[int],
    gone: int,
    ask: Callable[[str, dict[int, Any]], dict[int, Any]],
) -> tuple[NDArray[np.uint64], tuple[int, ...]]:
    for index, advert in ask("advertise", dict.fromkeys(indices)).items():
        collector.take_advert(index, advert)
    adverts = list(collector.adverts.values())
    for index, sealed in ask("share", dict.fromkeys(indices, adverts)).items():
        collector.take_shares(index, sealed)
    asked = {index: collector.shares_for(index) for index in indices[gone:]}
    for index, content in ask("mask", asked).items():
        collector.take_masked(index, content)
    survivors = collector.survivors
    for index, signature in ask("agree", dict.fromkeys(survivors, survivors)).items():
        collector.take_signature(index, signature)
    signatures = collector.signatures
    for index, reveal in ask("reveal", dict.fromkeys(survivors, signatures)).items():
        collector.take_reveal(index, reveal)
    return collector.opened(), survivors


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    whole = f"all of it, {given.processes} cores"
    heads = ("parties", "drop out", "exact", "server", "one party", whole, "by the clock")
    table = Table(*heads, title=f"{given.size:,} numbers; processor seconds of a round")
    for parties, dropouts in ((8, 0.0), (8, 0.2), (64, 0.0), (64, DROPOUTS)):
        costs = [
            one_round(parties, dropouts, given.size, given.processes) for _ in range(given.repeats)
        ]
        best = min(costs, key=lambda cost: cost.server + cost.parties)
        table.add_row(
            str(parties),
            f"{dropouts:.0%}",
            "yes" if all(cost.exact for cost in costs) else "NO",
            f"{best.server:.2f}",
            f"{best.party(parties):.3f}",
            f"{best.shared(given.processes):.2f}",
            f"{best.wall:.2f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
