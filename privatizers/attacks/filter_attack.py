"""Attacks on one filter, by attackers who have its weights and by those who have not.

Simulation only: attackers learn from raw records with known attributes, which they filter
themselves. What each knows, how many labelled records it had and how many releases of a record it
sees are part of its figure. Who knows more *can* read more; what an attacker of this module reads
is a lower bound on that, for a better learner may come.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from fedlens.privatizers.attacks.attack_runs import reweighted, shares_of
from fedlens.privatizers.attacks.attackers import ATTACKERS, AttackError, FittedAttacker
from fedlens.privatizers.attacks.attackers.everything import DecodeAttacker
from fedlens.privatizers.attacks.attackers.features import FeaturesAttacker
from fedlens.privatizers.attacks.attackers.formula import FORMULA, with_formula
from fedlens.privatizers.attacks.attackers.likelihood import LikelihoodAttacker
from fedlens.privatizers.attacks.attackers.networks import NetworkAttacker
from fedlens.privatizers.attacks.attackers.protocol import (
    EVERYTHING,
    Attacker,
    Knowledge,
    knowledge_of,
)
from fedlens.privatizers.attacks.attackers.vectors import VectorReader
from fedlens.privatizers.attacks.balanced import balanced_accuracy
from fedlens.privatizers.attacks.claims import BARE, FIFTY, ONE, TEN
from fedlens.privatizers.attacks.scores import score
from fedlens.privatizers.attacks.targets import FilterTarget, noise_covariance
from fedlens.privatizers.channels import channel_of
from fedlens.privatizers.private_data import PrivateData

# How hard the attackers of a filter try, and each of ours set to that.


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
    # draws of the noise of each test record that a code's readers are scored on: one draw's luck
    # would be part of the figure
    scored: int = 3


FULL = Effort(4, 4000, 250, 1200, 1500, 60_000)
USUAL = Effort(2, 1000, 150, 600, 600, 20_000, decoded=2000)
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


RESAMPLES = 200
MOST_NUMBERS = 30_000_000  # Of a table of codes: more draws of each record are not taken
SMALLEST, LARGEST = 1e-3, 1e3  # Numbers released that attackers of releases take as they are


@dataclass(frozen=True)
class FilterAttack:
    """What one attacker reads of what one filter releases; shares, nats and 95% intervals."""

    attacker: str  # its name
    knows: str  # what it knows besides labelled records
    releases: int  # of each record, that it sees
    records: int  # labelled ones that it learned from
    balanced: float  # balanced accuracy, its answers divided by the classes' shares
    low: float
    high: float
    accuracy: float  # share of attributes guessed right, answers as they are
    nats: float  # I(S;Q) is at least that, in expectation
    nats_low: float
    nats_high: float
    seconds: float = field(compare=False, default=0.0)
    sees: str = ONE  # one release or several of a record, near-duplicates, or no noise

    @property
    def name(self) -> str:
        """With the number of releases where there are several: ``code x10``."""
        if self.sees != ONE:
            return f"{self.attacker}, {self.sees}"
        return self.attacker if self.releases == 1 else f"{self.attacker} x{self.releases}"

    def row(self) -> dict[str, Any]:
        """A JSON object."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def attack_filter(
    target: FilterTarget,
    names: Sequence[str],
    *,
    releases: Sequence[int] = (1,),
    effort: Effort = FULL,
    tell: Callable[[str], None] = lambda _: None,
) -> list[FilterAttack]:
    """Attack by name, at each number of releases; those that do not apply are left out and told.

    An attacker of codes applies where the filter shows one, and one that decodes sees one release:
    of more, the codes' reader has all that it could find. `FORMULA` is the attacker of releases
    that computes the attribute, where the source has a formula of it; it comes last.

    Raises:
        AttackError: no attacker applies.
    """
    found: list[FilterAttack] = []
    for count in releases:
        for name, attacker in _attackers(target, names, effort, count, tell).items():
            found.append(_attack(target, name, attacker, count, effort))
            tell(told(found[-1]))
        if FORMULA in names:
            found += _formula(target, count, effort, tell)
    if not found:
        raise AttackError(f"attackers: none of {', '.join(names)} applies to this filter")
    return found


def strongest(attacks: Sequence[FilterAttack]) -> FilterAttack:
    """The one that reads most, of those who see releases of one record if there are such."""
    plain = [one for one in attacks if one.sees == ONE]
    return max(plain or attacks, key=lambda one: one.balanced)


def told(one: FilterAttack) -> str:
    """A line for people."""
    return (
        f"{one.name}: {one.balanced:.3f} ({one.low:.3f} to {one.high:.3f}), knows {one.knows}, "
        f"{one.records} records, {one.seconds:.0f} s"
    )


def _attackers(
    target: FilterTarget,
    names: Sequence[str],
    effort: Effort,
    releases: int,
    tell: Callable[[str], None],
) -> dict[str, Attacker]:
    shows_code, found = channel_of(target.filter) is not None, {}
    for name in names:
        if name == FORMULA:
            continue
        attacker = trying(ATTACKERS[name](), effort)
        if knowledge_of(attacker).weights and not shows_code:
            tell(f"{name}: left out, this filter shows no code")
        elif isinstance(attacker, LikelihoodAttacker) and not target.affine:
            tell(f"{name}: left out, this filter does not simply add its noise")
        elif isinstance(attacker, DecodeAttacker) and releases > 1:
            tell(f"{name}: left out at {releases} releases, which the code's reader sees")
        else:
            found[name] = attacker
    return found


def _attack(
    target: FilterTarget, name: str, attacker: Attacker, releases: int, effort: Effort
) -> FilterAttack:
    start, knows = time.perf_counter(), knowledge_of(attacker)
    known, seed = target.known, target.seed
    test = target.test if effort.test is None else target.test.take(slice(0, effort.test))
    fitted: FittedAttacker
    if isinstance(attacker, LikelihoodAttacker):
        shown = target.codes(test, seed + 2, releases, effort.scored)
        fitted = facing(attacker, target, target.told_apart(releases)).fit(
            target.clean_codes(known), seed
        )
    elif knows.code:
        draws = _draws(target, effort, releases)
        shown = target.codes(test, seed + 2, releases, effort.scored)
        fitted = attacker.fit(target.codes(known, seed + 1, releases, draws), seed)
    elif isinstance(attacker, DecodeAttacker):
        test = test.take(slice(0, effort.decoded))
        shown = target.sent(test, seed + 2)
        fitted = attacker.facing(target.filter, known).fit(known, seed)
    else:
        known = known.take(slice(0, effort.images))
        seen = target.sent(known, seed + 1, releases)
        seen, shown = _to_scale(seen, target.sent(test, seed + 2, releases))
        fitted = attacker.fit(seen, seed)
    found = _scored(fitted, shown, known, seed)
    seconds = time.perf_counter() - start
    return FilterAttack(name, knows.words, releases, len(known), *found, seconds)


def facing(
    attacker: LikelihoodAttacker, target: FilterTarget, releases: float
) -> LikelihoodAttacker:
    """With the law of the filter's noise; of a code without any, a small one, alike everywhere."""
    law = noise_covariance(target.filter, target.test.records[0])
    if law is None or not bool((law.diagonal() > 0).any()):
        codes = target.clean_codes(target.known).records
        return attacker.facing(codes.var(0).mean() * torch.eye(codes.shape[1]), 16.0)
    return attacker.facing(law, releases)


COPIES = {ONE: 1, TEN: 10, FIFTY: 50, BARE: math.inf}
"""Near-duplicates that are averaged; without noise there is nothing more to average."""
MOST_COPIED = 1500
"""Test records of which fifty near-duplicates are filtered at most."""


def attack_code(target: FilterTarget, name: str, sees: str, effort: Effort) -> FilterAttack:
    """One attacker of codes, by what it sees of each test record: `ONE`, `TEN`, `FIFTY`, `BARE`.

    Near-duplicates of test records are made and filtered one by one. Where they share their noise,
    their mean has the law of one release, and the attacker learns from such; else that of as many
    releases with noise of their own.
    """
    start, attacker = time.perf_counter(), trying(ATTACKERS[name](), effort)
    known, seed, copies = target.known, target.seed, COPIES[sees]
    test = target.test if effort.test is None else target.test.take(slice(0, effort.test))
    apart = replace(target, fresh=True)
    if sees == BARE:
        shown, seen = target.clean_codes(test), target.clean_codes(known)
    elif sees == ONE:
        shown = target.codes(test, seed + 2, 1, effort.scored)
        seen = target.codes(known, seed + 1, 1, _draws(target, effort, 1))
    else:
        shown = target.alike_codes(test.take(slice(0, MOST_COPIED if copies > 10 else None)),
                                   seed + 2, int(copies))  # fmt: skip
        copies = 1 if target.shares_noise else copies
        seen = apart.codes(known, seed + 1, int(copies), _draws(apart, effort, int(copies)))
    if isinstance(attacker, LikelihoodAttacker):
        attacker, seen = facing(attacker, target, copies), target.clean_codes(known)
    found = _scored(attacker.fit(seen, seed), shown, known, seed)
    seconds = time.perf_counter() - start
    words = EVERYTHING.words
    return FilterAttack(name, words, 1, len(known), *found, seconds, sees)


def _to_scale(seen: PrivateData, shown: PrivateData) -> tuple[PrivateData, PrivateData]:
    """Both in numbers that attackers compute with, where a filter sends others.

    Divided by a usual one and then bent like logarithms, which keeps their order: beside a few huge
    ones, divided by the largest, all others would be zeros to a network.
    """
    sizes = seen.records.double().abs()
    sizes = sizes[sizes > 0]
    if not len(sizes) or (sizes.median() >= SMALLEST and sizes.max() <= LARGEST):
        return seen, shown
    bent = [torch.asinh(part.records.double() / sizes.median()).float() for part in (seen, shown)]
    return replace(seen, records=bent[0]), replace(shown, records=bent[1])


def _draws(target: FilterTarget, effort: Effort, releases: int) -> int:
    """Draws of each record's noise: as many as asked for, as far as they fit and take no hours."""
    code = target.codes(target.known.take(slice(0, 2)), 0).records.shape[1]
    fit = MOST_NUMBERS // (len(target.known) * code)
    passes = 1 if target.affine else target.told_apart(releases)
    return max(1, min(effort.draws, fit, 12 // passes))


def _formula(
    target: FilterTarget, releases: int, effort: Effort, tell: Callable[[str], None]
) -> list[FilterAttack]:
    start, seed = time.perf_counter(), target.seed
    known = target.sent(target.known.take(slice(0, effort.images)), seed + 1, releases)
    made: Mapping[str, Attacker] = with_formula(
        {}, known, known.name, steps=effort.network_steps, seed=seed + 7
    )
    if not made:
        tell(f"{FORMULA}: left out, source {known.name!r} has no formula of its attribute")
    found = []
    for name, attacker in made.items():
        test = target.test if effort.test is None else target.test.take(slice(0, effort.test))
        scored = _scored(
            attacker.fit(known, seed), target.sent(test, seed + 2, releases), known, seed
        )
        words = Knowledge().words + ", the attribute's formula"
        seconds = time.perf_counter() - start
        found.append(FilterAttack(name, words, releases, len(known), *scored, seconds))
        tell(told(found[-1]))
    return found


def _scored(
    fitted: FittedAttacker, test: PrivateData, known: PrivateData, seed: int
) -> tuple[float, float, float, float, float, float, float]:
    """Balanced accuracy and its interval, accuracy, nats and their interval."""
    guesses = fitted.log_probabilities(test.records, test.side)
    plain = score(guesses, test.sensitive, seed=seed, owners=test.owners, resamples=RESAMPLES)
    fair = reweighted(guesses, shares_of(known)).argmax(-1)
    leak = plain.leak_lower_bound, *plain.leak_interval
    return *balanced_accuracy(fair, test, seed), plain.accuracy, *leak
