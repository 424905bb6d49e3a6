"""From which share of users on a data card shows a fault, and how often it shows one that is not.

``python -m benchmarks.cards --data mnist --seeds 20``. An earlier card of sound people is compared
with a later one of other people, some of whom have a fault of the library; both have the noise of
their ε. A fault counts as shown where any row is called changed, all rows considered; in the row of
an expectation, where the later card alone says that it falls. Users' vectors are the product's own;
the noise is numpy's, many draws of it on the same people.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.accountant.bayesian.noised_norms import split_noise
from fedlens.accountant.probing import probe_noise
from fedlens.client.users.records import padded, sound_records
from fedlens.diagnosis.cards.changes import compare_cards
from fedlens.diagnosis.cards.estimates import Card, estimate_card
from fedlens.diagnosis.cards.verdicts import judge
from fedlens.models.cards.expectations import parse_expectations
from fedlens.models.cards.statistics import CardLayout, card_layout
from fedlens.models.cards.vectors import card_vector
from fedlens.server.config.card import CardConfig
from fedlens.server.config.tree import Config
from fedlens.simulations.federation.apps import node_users

FAULTS = ("duplicates", "gamma", "dim", "quantise", "frequent_class:classes=3", "rotate90", "blur")
SHARES = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
EPSILONS = (0.3, 0.435, 1.0, 2.0)
DELTA, RECORDS, DRAWS, NAMED = 1e-5, 10, 5, 0.9
EXPECTATION = "duplicates < 2%"
EXPECTED = parse_expectations(EXPECTATION)
Floats = NDArray[np.float64]


def vectors(config: Config, fault: str) -> tuple[Floats, CardLayout]:
    """Each user's vector, all users with a fault, or none where it is empty."""
    name, _, more = fault.partition(":")
    planted = f"{name}:1" + (f":{more}" if more else "") if fault else ""
    users = node_users(config.updated({"data.fault": planted}), 0)
    layout = card_layout(users.shape, users.classes)
    rows = []
    for place in range(len(users)):
        held = padded([sound_records(users, place)], RECORDS, users)
        rows.append(card_vector(held.images[0], held.labels[0], held.present[0], layout))
    return torch.stack(rows).double().numpy(), layout


@dataclass
class Tally:
    """Comparisons of one fault, share and ε."""

    made: int = 0
    shown: int = 0
    rows: Counter[str] = field(default_factory=Counter)

    def add(self, named: Sequence[str]) -> None:
        """Count one comparison."""
        self.made, self.shown = self.made + 1, self.shown + bool(named)
        self.rows.update(named)


def deviation(epsilon: float, users: int) -> float:
    """Of the noise in each coordinate of a card that costs ε at `DELTA`."""
    noise = split_noise(probe_noise(epsilon, DELTA), 0.02).update
    return noise * CardConfig().clipping_norm / users


def released(
    mean: Floats, users: int, epsilon: float, layout: CardLayout, source: np.random.Generator
) -> Card:
    """A card with the noise of its ε."""
    noise = deviation(epsilon, users)
    noised = mean + noise * source.normal(size=mean.shape)
    return estimate_card(noised, noise, users, layout)


def measure(args: argparse.Namespace) -> dict[tuple[str, float, float], Tally]:
    """By fault, share and ε; the fault of sound people is empty."""
    found: dict[tuple[str, float, float], Tally] = {}
    for seed in range(args.seeds):
        people = [config_of(args, seed + shift) for shift in (0, 1000)]
        (before, layout), (now, _) = (vectors(one, "") for one in people)
        source = np.random.default_rng(seed)
        for fault, share, mean in mixes(people[1], args.faults, now, source):
            for epsilon in EPSILONS:
                tally = found.setdefault((fault, share, epsilon), Tally())
                for _ in range(DRAWS):
                    cards = [
                        released(one, args.users, epsilon, layout, source)
                        for one in (mean, before.mean(0))
                    ]
                    tally.add([row.name for row in compare_cards(*cards) if row.named])
                    if fault in ("", "duplicates"):
                        (verdict,) = judge(cards[0], EXPECTED)
                        falls = ["duplicates"] if verdict.outcome == "falls" else []
                        found.setdefault((EXPECTATION, share, epsilon), Tally()).add(falls)
    return found


def mixes(
    config: Config, faults: Sequence[str], sound: Floats, source: np.random.Generator
) -> Iterator[tuple[str, float, Floats]]:
    """Means of sound people, and of people a share of whom have a fault."""
    yield "", 0.0, sound.mean(0)
    for fault in faults:
        faulty, _ = vectors(config, fault)
        order = source.permutation(len(sound))
        for share in SHARES:
            some = order[: round(share * len(sound))]
            yield fault, share, (sound.sum(0) + (faulty[some] - sound[some]).sum(0)) / len(sound)


def config_of(args: argparse.Namespace, seed: int) -> Config:
    """Users of ten pictures each on one node."""
    return Config().updated(
        {
            "seed": seed,
            "data.name": args.data,
            "data.dir": "" if args.data_dir is None else str(args.data_dir.absolute()),
            "data.users": args.users,
            "data.nodes": 1,
            "data.samples_per_user": RECORDS,
        }
    )


def least_share(found: dict[tuple[str, float, float], Tally], fault: str, epsilon: float) -> str:
    """The least share from which nine in ten comparisons show the fault."""
    shown = [found[fault, share, epsilon] for share in SHARES]
    enough = [tally.shown >= NAMED * tally.made for tally in shown]
    least = next((i for i in range(len(SHARES)) if all(enough[i:])), None)
    return "never" if least is None else f"{SHARES[least]:.0%}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="mnist")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--users", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--faults", nargs="+", default=FAULTS)
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = measure(args)
    sys.stdout.write("\n".join(table(args, found)) + "\n")


def table(args: argparse.Namespace, found: dict[tuple[str, float, float], Tally]) -> Iterator[str]:
    """Lines of Markdown: from which share a fault shows, and in which rows at ε = 2."""
    yield f"{args.data}, {args.users} users, {args.seeds} seeds, {DRAWS} draws of the noise each"
    yield ""
    yield "| | " + " | ".join(f"ε = {epsilon:g}" for epsilon in EPSILONS) + " | seen in |"
    yield "|" + "---|" * (len(EPSILONS) + 2)
    sound = [found["", 0.0, epsilon] for epsilon in EPSILONS]
    alarms = " | ".join(f"{one.shown} of {one.made}" for one in sound)
    yield f"| sound people: false alarms | {alarms} | |"
    for fault in (EXPECTATION, *args.faults):
        cells = " | ".join(least_share(found, fault, epsilon) for epsilon in EPSILONS)
        rows: Counter[str] = sum((found[fault, share, 2.0].rows for share in SHARES), Counter())
        told = ", ".join(name for name, _ in rows.most_common(3))
        yield f"| `{fault}` | {cells} | {told} |"


if __name__ == "__main__":
    main()
