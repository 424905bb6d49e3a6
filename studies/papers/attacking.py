"""Releasing records and having fresh attackers read them: what the alpha studies share."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from client.datasets.attributes.data import PrivateData
from models.classifiers import JointClassifiers, Mlp
from privatizers.protocol import Privatizer, PrivatizerError, draw_noise
from studies.attackers import ATTACKERS
from studies.attackers.networks import NetworkAttacker
from studies.attackers.protocol import Attacker, cautious
from studies.attackers.reading_nets import small_reader
from studies.framework.tables import Row
from studies.metrics.scores import score

CHUNK = 500
RESAMPLES = 100


@dataclass(frozen=True)
class AttributeReading:
    """What a fresh attacker read on test records."""

    # balanced accuracy of its likeliest class, as Jafarzadeh Asl et al. 2023 scores it.
    balanced: float
    # the same when it divides its answers by the classes' shares first, which is what balanced
    # accuracy rewards; where one class is common the difference is large
    reweighted: float
    leak: float  # lower bound on what is left of the sensitive attribute, nats, per record or step


def release(method: Privatizer, data: PrivateData, seed: int) -> PrivateData:
    """The same data with the filter's records in place of the raw ones."""
    generator = torch.Generator().manual_seed(seed)
    released = []
    with torch.no_grad():
        for part in torch.split(data.records, CHUNK):
            released.append(method.filter(part, draw_noise(method, len(part), generator)))
    return replace(data, records=torch.cat(released))


def read_sensitive(
    attacker: Attacker, attack: PrivateData, test: PrivateData, seed: int
) -> AttributeReading:
    """Fit on the released attack part and score on the released test part."""
    guesses = attacker.fit(attack, seed).log_probabilities(test.records, test.side)
    shares = torch.bincount(attack.sensitive.flatten(), minlength=attack.sensitive_classes).double()
    shares = torch.where(shares > 0, shares / shares.sum(), 1.0)  # of a class never met: as it is
    fair = cautious((guesses - shares.log()).softmax(-1))
    plain = score(guesses, test.sensitive, owners=test.owners, resamples=RESAMPLES)
    other = score(fair, test.sensitive, resamples=2)
    return AttributeReading(
        plain.balanced_accuracy, other.balanced_accuracy, plain.leak_lower_bound
    )


def read_all(
    attackers: Mapping[str, Attacker], attack: PrivateData, test: PrivateData, seed: int
) -> dict[str, AttributeReading]:
    """Every attacker's reading, by name."""
    return {
        name: read_sensitive(attacker, attack, test, seed) for name, attacker in attackers.items()
    }


def build_attackers(names: Sequence[str], steps: int) -> dict[str, Attacker]:
    """Attackers by name; the networks among them take at least ``steps`` batches."""
    found: dict[str, Attacker] = {}
    for name in names:
        attacker = ATTACKERS[name]()
        if isinstance(attacker, NetworkAttacker):
            attacker = replace(attacker, epochs=1, steps=steps)
        found[name] = attacker
    return found


def columns(readings: Mapping[str, AttributeReading]) -> Row:
    """A row's part: each attacker's figures, and the strongest of them."""
    row: Row = {}
    for name, reading in readings.items():
        row[f"attacker_{name}"] = reading.balanced
        row[f"reweighted_{name}"] = reading.reweighted
    row["attacker"] = max(reading.balanced for reading in readings.values())
    row["reweighted"] = max(reading.reweighted for reading in readings.values())
    row["leak_at_least"] = max(reading.leak for reading in readings.values())
    return row


def number(row: Row, name: str) -> float:
    """A row's figure, for plots."""
    value = row[name]
    return float(value) if isinstance(value, int | float) else float("nan")


def parse_points(
    points: Sequence[str], second: str = "a weight", first: str = "an order"
) -> list[tuple[float, float]]:
    """Pairs of what ``first`` and ``second`` name, of settings written as ``number:number``.

    Raises:
        PrivatizerError: one is written otherwise.
    """
    found = []
    for point in points:
        alpha, _, weight = point.partition(":")
        try:
            found.append((float(alpha), float(weight)))
        except ValueError:
            raise PrivatizerError(
                f"point {point!r}: write {first} and {second}, as in 1:0.5"
            ) from None
    return found


def joint_adversary(train: PrivateData, generator: torch.Generator) -> nn.Module:
    """Convolutions beside a dense network: hidden from the first alone, trees still read it."""
    classes = train.sensitive_classes
    return JointClassifiers(
        small_reader(train.shape, classes, generator),
        Mlp(math.prod(train.shape), classes, generator=generator),
    )
