"""Attacks on one filter, by attackers who have its weights and by those who have not.

Simulation only: attackers learn from raw records with known attributes, which they filter
themselves. What each knows, how many labelled records it had and how many releases of a record it
sees are part of its figure: an attack that knows more bounds those that know less.

Several releases of one record are averaged, of codes and of releases alike. Each has the noise that
a device would give it: fresh, or the same where the filter's noise repeats.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from client.datasets.attributes.data import PrivateData, Split
from privatizers.channels import channel_of, noise_repeats, repeated_noise
from privatizers.classifiers import noise_shape_of
from studies.attackers import ATTACKERS, AttackError, FittedAttacker
from studies.attackers.everything import DecodeAttacker
from studies.attackers.formula import with_formula
from studies.attackers.knowledge import Knowledge, knowledge_of
from studies.attackers.protocol import Attacker
from studies.framework.tables import Row
from studies.metrics.balanced import balanced_accuracy
from studies.metrics.effort import FULL, Effort, trying
from studies.metrics.reading import reweighted, shares_of
from studies.metrics.scores import score

CHUNK = 1000
RESAMPLES = 200
AFFINE_TRIALS, AFFINE_TOLERANCE = 16, 1e-4
MOST_NUMBERS = 30_000_000  # Of a table of codes: more draws of each record are not taken


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

    @property
    def name(self) -> str:
        """With the number of releases where there are several: ``code x10``."""
        return self.attacker if self.releases == 1 else f"{self.attacker} x{self.releases}"

    def row(self) -> dict[str, Any]:
        """A JSON object."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


@dataclass(frozen=True, eq=False)
class FilterTarget:
    """A filter, and the records that it is attacked with.

    Attributes:
        filter: as devices run it.
        known: raw records with attributes that the attacker has, none of them tested on.
        test: raw records that the attacks are scored on.
        seed: of the noise, the attackers and the bootstrap.
    """

    filter: nn.Module
    known: PrivateData
    test: PrivateData
    seed: int = 0

    def sent(self, data: PrivateData, seed: int, releases: int = 1) -> PrivateData:
        """What the filter releases of records, the mean of several releases."""
        return replace(data, records=self._mean(self.filter, data.records, seed, releases))

    def codes(self, data: PrivateData, seed: int, releases: int = 1, draws: int = 1) -> PrivateData:
        """The codes behind these releases; of several draws of the noise, rows of one owner.

        Raises:
            AttackError: the filter shows no code.
        """
        every = [self._codes(data.records, seed + 1000 * draw, releases) for draw in range(draws)]
        owners = torch.arange(len(data)) if data.owners is None else data.owners
        rows = torch.arange(len(data)).repeat(draws)
        wide = data.take(rows)
        return replace(wide, records=torch.cat(every), owners=owners[rows])

    @torch.no_grad()
    def _codes(self, records: Tensor, seed: int, releases: int) -> Tensor:
        """Mean codes; of a channel that is affine in its noise in one pass, with the mean noise."""
        channel = channel_of(self.filter)
        if channel is None:
            raise AttackError("this filter shows no code; attack what it releases")
        if not self.affine:
            return self._mean(channel, records, seed, releases)
        shrunk = 1 / math.sqrt(self.told_apart(releases))
        return self._mean(lambda part, noise: channel(part, shrunk * noise), records, seed, 1)

    @cached_property
    def affine(self) -> bool:
        """Whether the mean of two codes of a record is the code of the mean of their noises."""
        channel, source = channel_of(self.filter), torch.Generator().manual_seed(0)
        if channel is None:
            return False
        some = self.known.records[:AFFINE_TRIALS]
        shape = noise_shape_of(self.filter) or (0,)
        one, two = (torch.randn(len(some), *shape, generator=source) for _ in range(2))
        with torch.no_grad():
            apart = (channel(some, one) + channel(some, two)) / 2 - channel(some, (one + two) / 2)
        return float(apart.abs().max()) < AFFINE_TOLERANCE

    def told_apart(self, releases: int) -> int:
        """How many of so many releases of a record differ: one where its noise repeats."""
        return 1 if noise_repeats(self.filter) else releases

    @torch.no_grad()
    def _mean(
        self, function: Callable[..., Tensor], records: Tensor, seed: int, releases: int
    ) -> Tensor:
        source, found = torch.Generator().manual_seed(seed), []
        releases = self.told_apart(releases)
        shape = noise_shape_of(self.filter) or (0,)
        for part in torch.split(records, CHUNK):
            noises = repeated_noise(self.filter, shape, len(part), releases, source)
            total = function(part, noises[0])
            for noise in noises[1:]:
                total = total + function(part, noise)
            found.append(total / releases)
        return torch.cat(found)


def target_of(
    filter_: nn.Module, split: Split, seed: int = 0, records: int | None = None
) -> FilterTarget:
    """A filter and all labelled records that there are: of the attack part, then the train part.

    ``records`` takes the first so many. Raw records of the train part are the attacker's to filter
    anew like any others; a filter that has learned them by heart would hide them better.
    """
    attack, train = split.attack, split.train
    joined = attack if records is not None and records <= len(attack) else _joined(attack, train)
    known = joined if records is None else joined.take(slice(0, records))
    return FilterTarget(filter_, known, split.test, seed)


def attack_filter(
    target: FilterTarget,
    names: Sequence[str],
    *,
    releases: Sequence[int] = (1,),
    effort: Effort = FULL,
    formula: bool = True,
    tell: Callable[[str], None] = lambda _: None,
) -> list[FilterAttack]:
    """Attack by name, at each number of releases; those that do not apply are left out and told.

    An attacker of codes applies where the filter shows one, and one that decodes sees one release:
    of more, the codes' reader bounds it. ``formula`` adds, to attackers of releases, the one that
    computes the attribute, where the source has one.

    Raises:
        AttackError: no attacker applies.
    """
    found: list[FilterAttack] = []
    for count in releases:
        for name, attacker in _attackers(target, names, effort, count, tell).items():
            found.append(_attack(target, name, attacker, count, effort))
            tell(told(found[-1]))
        if formula:
            found += _formula(target, count, effort, tell)
    if not found:
        raise AttackError(f"attackers: none of {', '.join(names)} applies to this filter")
    return found


CODE_COLUMNS = ("code_reader", "code_reader_x10", "code_nats")
"""Columns that lead a study's table: who reads the code, of one release and of ten."""


def code_columns(target: FilterTarget, steps: int) -> Row:
    """`CODE_COLUMNS` of a filter, with all labelled records; empty where it shows no code."""
    if channel_of(target.filter) is None:
        return dict.fromkeys(CODE_COLUMNS)
    effort = replace(FULL, reader_steps=steps, tree_rounds=max(10, min(250, steps // 10)))
    one, ten = attack_filter(target, ["code"], releases=(1, 10), effort=effort, formula=False)
    return {
        "code_reader": one.balanced,
        "code_reader_x10": ten.balanced,
        "code_nats": one.nats,
        "code_records": one.records,
    }


def strongest(attacks: Sequence[FilterAttack]) -> FilterAttack:
    """The one that reads most."""
    return max(attacks, key=lambda one: one.balanced)


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
        attacker = trying(ATTACKERS[name](), effort)
        if knowledge_of(attacker).weights and not shows_code:
            tell(f"{name}: left out, this filter shows no code")
        elif isinstance(attacker, DecodeAttacker) and releases > 1:
            tell(f"{name}: left out at {releases} releases; the code's reader bounds it")
        else:
            found[name] = attacker
    return found


def _attack(
    target: FilterTarget, name: str, attacker: Attacker, releases: int, effort: Effort
) -> FilterAttack:
    start, knows = time.perf_counter(), knowledge_of(attacker)
    known, seed = target.known, target.seed
    test = target.test if effort.test is None else target.test.take(slice(0, effort.test))
    if knows.code:
        draws = _draws(target, effort, releases)
        shown = target.codes(test, seed + 2, releases)
        fitted = attacker.fit(target.codes(known, seed + 1, releases, draws), seed)
    elif isinstance(attacker, DecodeAttacker):
        test = test.take(slice(0, effort.decoded))
        shown = target.sent(test, seed + 2)
        fitted = attacker.facing(target.filter, known).fit(known, seed)
    else:
        known = known.take(slice(0, effort.images))
        shown = target.sent(test, seed + 2, releases)
        fitted = attacker.fit(target.sent(known, seed + 1, releases), seed)
    found = _scored(fitted, shown, known, seed)
    seconds = time.perf_counter() - start
    return FilterAttack(name, knows.words, releases, len(known), *found, seconds)


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


def _joined(one: PrivateData, two: PrivateData) -> PrivateData:
    """Both parts' records, those of ``one`` first; owners only where both have them."""

    def both(first: Tensor | None, second: Tensor | None) -> Tensor | None:
        return None if first is None or second is None else torch.cat([first, second])

    return replace(
        one,
        records=torch.cat([one.records, two.records]),
        utility=torch.cat([one.utility, two.utility]),
        sensitive=torch.cat([one.sensitive, two.sensitive]),
        side=both(one.side, two.side),
        owners=both(one.owners, two.owners),
    )
