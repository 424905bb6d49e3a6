"""Releasing records and having fresh attackers read them: what every study measures alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from fedlens.foundation.tables import Row
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.networks import NetworkAttacker
from fedlens.privatizers.attacks.attackers.protocol import Attacker, cautious
from fedlens.privatizers.attacks.scores import score
from fedlens.privatizers.export import release
from fedlens.privatizers.private_data import PrivateData, Split

CHUNK = 500
RESAMPLES = 100


@dataclass(frozen=True)
class AttributeReading:
    """What a fresh attacker read on test records."""

    # balanced accuracy of its likeliest class, as Jafarzadeh Asl et al. 2023 scores it
    balanced: float
    # the same when it divides its answers by the classes' shares first, which is what balanced
    # accuracy rewards; where one class is common the difference is large
    reweighted: float
    # lower bound on what is left of the sensitive attribute, nats, per record or step
    leak: float


def released(
    filter_: nn.Module,
    data: PrivateData,
    seed: int,
    *,
    chunk: int = CHUNK,
    choice: float | None = None,
) -> PrivateData:
    """The same data with what a filter releases, with fresh noise, in place of the raw records.

    Noise is drawn for ``chunk`` records at a time; ``choice`` is the opt-in bit of every record,
    None where the filter takes none.
    """
    source, parts = torch.Generator().manual_seed(seed), torch.split(data.records, chunk)
    bits = [None if choice is None else part.new_full((len(part), 1), choice) for part in parts]
    found = [release(filter_, part, source, bit) for part, bit in zip(parts, bits, strict=True)]
    return replace(data, records=torch.cat(found))


def released_parts(filter_: nn.Module, split: Split, seed: int) -> tuple[PrivateData, PrivateData]:
    """The released attack and test parts, with noise of two seeds from ``seed`` on."""
    return released(filter_, split.attack, seed), released(filter_, split.test, seed + 1)


def shares_of(known: PrivateData) -> Tensor:
    """Of the classes of the sensitive attribute, float64 [classes]; 1 for a class never met."""
    counts = torch.bincount(known.sensitive.flatten(), minlength=known.sensitive_classes)
    return torch.where(counts > 0, counts.double() / counts.sum(), 1.0)


def reweighted(guesses: Tensor, shares: Tensor) -> Tensor:
    """Log-probabilities [..., classes] divided by the classes' shares."""
    return cautious((guesses - shares.log()).softmax(-1))


def normalised_error(raw: PrivateData, released: PrivateData) -> float:
    """NE = E|X − Z|² / E|X|²."""
    return float((raw.records - released.records).square().mean() / raw.records.square().mean())


def read_sensitive(
    attacker: Attacker, attack: PrivateData, test: PrivateData, seed: int
) -> AttributeReading:
    """Fit on the released attack part and score on the released test part."""
    guesses = attacker.fit(attack, seed).log_probabilities(test.records, test.side)
    plain = score(guesses, test.sensitive, owners=test.owners, resamples=RESAMPLES)
    fair = score(reweighted(guesses, shares_of(attack)), test.sensitive, resamples=2)
    return AttributeReading(plain.balanced_accuracy, fair.balanced_accuracy, plain.leak_lower_bound)


def read_all(
    attackers: Mapping[str, Attacker], attack: PrivateData, test: PrivateData, seed: int
) -> Row:
    """Columns of a row: every attacker's figures, and the strongest of them."""
    found = {name: read_sensitive(one, attack, test, seed) for name, one in attackers.items()}
    return columns(found)


def columns(readings: Mapping[str, AttributeReading]) -> Row:
    """Columns of a row: each attacker's figures, and the strongest of them."""
    row: Row = {}
    for name, reading in readings.items():
        row |= {f"attacker_{name}": reading.balanced, f"reweighted_{name}": reading.reweighted}
    row["attacker"] = max(reading.balanced for reading in readings.values())
    row["reweighted"] = max(reading.reweighted for reading in readings.values())
    row["leak_at_least"] = max(reading.leak for reading in readings.values())
    return row


def build_attackers(names: Sequence[str], steps: int, *, epochs: int = 1) -> dict[str, Attacker]:
    """Attackers by name; the networks among them take at least ``steps`` batches."""
    found = {name: ATTACKERS[name]() for name in names}
    return {
        name: replace(one, epochs=epochs, steps=steps) if isinstance(one, NetworkAttacker) else one
        for name, one in found.items()
    }
