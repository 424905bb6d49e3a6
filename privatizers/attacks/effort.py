"""How hard the attackers of a filter try, and each of ours set to that."""

from __future__ import annotations

from dataclasses import dataclass, replace

from fedlens.privatizers.attacks.attackers.everything import DecodeAttacker
from fedlens.privatizers.attacks.attackers.features import FeaturesAttacker
from fedlens.privatizers.attacks.attackers.networks import NetworkAttacker
from fedlens.privatizers.attacks.attackers.protocol import Attacker
from fedlens.privatizers.attacks.attackers.vectors import VectorReader


@dataclass(frozen=True)
class Effort:
    """How hard each attacker tries."""

    draws: int  # of the filter's noise for each record, of which a code's reader learns
    reader_steps: int  # batches of 512 of a code's reader
    tree_rounds: int  # of trees on codes and features
    decoder_steps: int  # of the network that guesses a code
    network_steps: int  # at least so many batches of networks that read releases
    # records that attackers of releases learn from at most; codes are small, and all are read
    images: int
    test: int | None = None  # records that everything is scored on at most
    decoded: int = 4000  # records that are decoded and scored at most


FULL = Effort(4, 4000, 250, 1200, 1500, 60_000)
QUICK = Effort(2, 800, 80, 300, 200, 6000, test=2000, decoded=600)


def trying(attacker: Attacker, effort: Effort) -> Attacker:
    """The attacker at this effort; one of another package as it is."""
    if isinstance(attacker, VectorReader):
        return _reading(attacker, effort)
    if isinstance(attacker, DecodeAttacker):
        reader = _reading(attacker.reader, effort)
        return replace(attacker, reader=reader, steps=effort.decoder_steps)
    if isinstance(attacker, NetworkAttacker):
        return replace(attacker, steps=effort.network_steps, epochs=1)
    if isinstance(attacker, FeaturesAttacker):
        return replace(attacker, rounds=effort.tree_rounds)
    return attacker


def _reading(reader: VectorReader, effort: Effort) -> VectorReader:
    return replace(reader, steps=effort.reader_steps, tree_rounds=effort.tree_rounds)
