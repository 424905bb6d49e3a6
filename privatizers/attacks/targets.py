"""A filter under attack: what it releases of records, and the codes behind that.

Several releases of one record are averaged, of codes and of releases alike. Each has the noise that
a device would give it: fresh, or the same where the filter's noise repeats. The latter is what
devices with a key do, and is taken on trust: ``fresh`` attacks what those without one release.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from fedlens.privatizers.attacks.attackers import AttackError
from fedlens.privatizers.channels import (
    CHUNK,
    Channel,
    channel_of,
    clean_codes,
    noise_repeats,
    radius_of_codes,
)
from fedlens.privatizers.classifiers import noise_shape_of
from fedlens.privatizers.noise_field import draw_near_noise
from fedlens.privatizers.private_data import PrivateData, Split

AFFINE_TRIALS, AFFINE_TOLERANCE = 16, 1e-4


@dataclass(frozen=True, eq=False)
class FilterTarget:
    """A filter, and the records that it is attacked with.

    Attributes:
        filter: as devices run it.
        known: raw records with attributes that the attacker has, none of them tested on.
        test: raw records that the attacks are scored on.
        seed: of the noise, the attackers and the bootstrap.
        fresh: every release has noise of its own, whatever the filter asks of devices.
    """

    filter: nn.Module
    known: PrivateData
    test: PrivateData
    seed: int = 0
    fresh: bool = False

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

    def clean_codes(self, data: PrivateData) -> PrivateData:
        """The codes of records without noise, float32 [n, k].

        Raises:
            AttackError: the filter shows no code.
        """
        self._channel()
        return replace(data, records=clean_codes(self.filter, data.records))

    @torch.no_grad()
    def alike_codes(self, data: PrivateData, seed: int, copies: int) -> PrivateData:
        """Mean codes of near-duplicates of each record, float32 [n, k].

        Each copy has one entry moved by one grey level of 256, and noise as `noise_of_copies` says.

        Raises:
            AttackError: the filter shows no code.
        """
        channel, source = self._channel(), torch.Generator().manual_seed(seed)
        found = []
        for part in torch.split(data.records, CHUNK):
            near = [one_moved(part, data.low, data.high, source) for _ in range(copies)]
            noises = noise_of_copies(self.filter, near, source, shared=self.shares_noise)
            every = [channel(copy, noise) for copy, noise in zip(near, noises, strict=True)]
            found.append(torch.stack(every).mean(0))
        return replace(data, records=torch.cat(found))

    @property
    def shares_noise(self) -> bool:
        """Whether near records have noise that is nearly the same, as of devices with a key."""
        bounded = radius_of_codes(self.filter) is not None
        return bounded and noise_repeats(self.filter) and not self.fresh

    def _channel(self) -> Channel:
        channel = channel_of(self.filter)
        if channel is None:
            raise AttackError("this filter shows no code; attack what it releases")
        return channel

    @torch.no_grad()
    def _codes(self, records: Tensor, seed: int, releases: int) -> Tensor:
        """Mean codes; of a channel that is affine in its noise in one pass, with the mean noise."""
        channel = self._channel()
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
        return 1 if noise_repeats(self.filter) and not self.fresh else releases

    @torch.no_grad()
    def _mean(
        self, function: Callable[..., Tensor], records: Tensor, seed: int, releases: int
    ) -> Tensor:
        source, found = torch.Generator().manual_seed(seed), []
        releases = self.told_apart(releases)
        shape = noise_shape_of(self.filter) or (0,)
        for part in torch.split(records, CHUNK):
            noises = [torch.randn(len(part), *shape, generator=source) for _ in range(releases)]
            total = function(part, noises[0])
            for noise in noises[1:]:
                total = total + function(part, noise)
            found.append(total / releases)
        return torch.cat(found)


GREY_LEVEL = 1 / 255
"""Share of the range that one grey level is."""


def noise_of_copies(
    filter_: nn.Module, copies: Sequence[Tensor], source: torch.Generator, *, shared: bool
) -> list[Tensor]:
    """The noise [n, *noise_shape] of each of some near-duplicates, [n, ...], of n records.

    Independent, as of a device without a key; or ``shared``: that of the code as a device's field
    has it, another device for each record.
    """
    shape = noise_shape_of(filter_) or (0,)
    noises = [torch.randn(len(one), *shape, generator=source) for one in copies]
    if shared:
        codes = torch.stack([clean_codes(filter_, one) for one in copies], 1)
        near = draw_near_noise(codes, source)
        for place, noise in enumerate(noises):
            noise[:, : codes.shape[2]] = near[:, place]
    return noises


def one_moved(records: Tensor, low: float, high: float, source: torch.Generator) -> Tensor:
    """Near-duplicates of records [n, ...]: one entry of each, drawn at random, a grey level off."""
    rows = records.flatten(1).clone()
    place = torch.randint(rows.shape[1], (len(rows), 1), generator=source)
    value = rows.gather(1, place)
    level = GREY_LEVEL * (high - low)
    rows.scatter_(1, place, torch.where(value + level > high, value - level, value + level))
    return rows.view_as(records)


@torch.no_grad()
def noise_covariance(filter_: nn.Module, record: Tensor) -> Tensor | None:
    """Covariance of what noise adds to the code of one record [...], float64 [k, k].

    None where the filter shows no code, or noise is not simply added: then it has no such law.
    """
    channel, shape = channel_of(filter_), noise_shape_of(filter_) or (0,)
    if channel is None:
        return None
    entries = math.prod(shape)
    if entries == 0:
        size = clean_codes(filter_, record[None]).shape[1]
        return torch.zeros(size, size, dtype=torch.float64)
    steps = torch.cat([torch.zeros(1, entries), torch.eye(entries)]).view(-1, *shape)
    parts = [channel(record[None].expand(len(p), *record.shape), p).flatten(1)
             for p in torch.split(steps, CHUNK)]  # fmt: skip
    codes = torch.cat(parts).double()
    moves = codes[1:] - codes[0]
    return moves.T @ moves


def target_of(
    filter_: nn.Module,
    split: Split,
    seed: int = 0,
    records: int | None = None,
    *,
    fresh: bool = False,
) -> FilterTarget:
    """A filter and all labelled records that there are: of the attack part, then the train part.

    ``records`` takes the first so many. Raw records of the train part are the attacker's to filter
    anew like any others; a filter that has learned them by heart would hide them better.
    """
    attack, train = split.attack, split.train
    joined = attack if records is not None and records <= len(attack) else _joined(attack, train)
    known = joined if records is None else joined.take(slice(0, records))
    return FilterTarget(filter_, known, split.test, seed, fresh)


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
