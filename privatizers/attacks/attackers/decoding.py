"""From a release back to the noisy code that it was made from, by who knows the filter.

The decoder is public and smooth, and an image has many more pixels than its code has numbers, so
noise on pixels hardly hides a code. A network guesses the code first, learned from releases that
the attacker makes; then Levenberg-Marquardt steps fit the decoder's picture to the release, with
the codes' own spread as a prior. Jacobians are finite differences: forward passes of the decoder.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.weights import initialise, unset_weights
from fedlens.privatizers.attacks.attackers.networks import NetworkAttacker, adversary_like
from fedlens.privatizers.attacks.attackers.protocol import AttackError
from fedlens.privatizers.attacks.attackers.vectors import ResidualMlp
from fedlens.privatizers.channels import channel_of, decoder_of
from fedlens.privatizers.classifiers import noise_shape_of

# A residual network that reads released images: stronger than the training adversary's kind.

CHANNELS = 24


class ResidualNet(nn.Module):
    """Images [n, c, h, w] to logits [n, classes] (He et al. 2016, small).

    Three stages at a half, a quarter and an eighth of the size, each with a block beside a
    shortcut; batch norms; means over what is left.
    """

    def __init__(
        self, shape: tuple[int, int, int], classes: int, width: int, generator: torch.Generator
    ) -> None:
        super().__init__()
        sizes = [width, 2 * width, 2 * width]
        before = [shape[0], *sizes[:-1]]
        with unset_weights():
            self.down = nn.ModuleList(
                nn.Conv2d(one, two, 3, stride=2, padding=1, bias=False)
                for one, two in zip(before, sizes, strict=True)
            )
            self.first = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1, bias=False) for n in sizes)
            self.second = nn.ModuleList(nn.Conv2d(n, n, 3, padding=1, bias=False) for n in sizes)
            self.answer = nn.Linear(sizes[-1], classes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(n) for n in sizes for _ in range(3))
        initialise(self, generator, "relu")

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        maps = images
        for stage, down in enumerate(self.down):
            enter, first, second = self.norms[3 * stage : 3 * stage + 3]
            maps = F.relu(enter(down(maps)))
            inner = F.relu(first(self.first[stage](maps)))
            maps = F.relu(maps + second(self.second[stage](inner)))
        logits: Tensor = self.answer(maps.mean((2, 3)))
        return logits


def residual_like(
    shape: tuple[int, ...], classes: int, width: float, generator: torch.Generator
) -> nn.Module:
    """A residual network for images of at least 8 x 8 pixels, else what filters train against."""
    if len(shape) != 3 or min(shape[1:]) < 8:
        return adversary_like(shape, classes, 2 * width, generator)
    image = (shape[0], shape[1], shape[2])
    return ResidualNet(image, classes, round(CHANNELS * width), generator)


def residual_attacker() -> NetworkAttacker:
    """The attacker of this network, with three times the steps of the small ones."""
    return NetworkAttacker(epochs=3, steps=1500, build=residual_like)


BATCH, RATE = 128, 2e-3
CHUNK = 200
STEP = 0.02  # Of a finite difference, in standard deviations of the code
LEAST_NOISE = 0.02  # Of the release, where its decoder adds none: the model is not exact
PRIOR_RECORDS = 4000


@dataclass(frozen=True, eq=False)
class ReleaseLaw:
    """What a decoder makes of a code on average: its picture, noised and cut to its limits."""

    decoder: nn.Module
    deviation: float  # of the noise on each entry
    low: float
    high: float

    @classmethod
    def of(cls, filter_: nn.Module) -> ReleaseLaw | None:
        """The law that the filter declares; None where it shows no decoder."""
        if decoder_of(filter_) is None:
            return None
        deviation = float(getattr(filter_, "output_noise_std", 0.0))
        low, high = getattr(filter_, "low", None), getattr(filter_, "high", None)
        ends = (-math.inf if low is None else low, math.inf if high is None else high)
        return cls(filter_, max(deviation, LEAST_NOISE), *ends)

    @torch.no_grad()
    def mean(self, codes: Tensor) -> Tensor:
        """E[release] of codes [n, k], flattened: float32 [n, entries]."""
        plain = torch.cat(
            [self.decoder.decoded(part).flatten(1) for part in torch.split(codes, 4 * CHUNK)]  # type: ignore[operator]
        )
        return _clamped_mean(plain, self.deviation, self.low, self.high)


@dataclass(frozen=True, eq=False)
class CodeDecoder:
    """Guesses codes from releases.

    Attributes:
        guess: network of releases to standardised codes.
        middle: mean of the codes, float32 [k].
        spread: of their standard deviations, float32 [k].
        precision: inverse of their covariance, float32 [k, k].
        law: of the release given the code; None leaves it at the first guess.
        steps: of Levenberg-Marquardt.
    """

    guess: nn.Module
    middle: Tensor
    spread: Tensor
    precision: Tensor
    law: ReleaseLaw | None
    steps: int = 10

    @classmethod
    def learn(
        cls, filter_: nn.Module, raw: Tensor, seed: int, *, steps: int = 1000, refine: int = 10
    ) -> CodeDecoder:
        """From raw records [n, ...] of the attacker's own, which it filters with its own noise.

        Raises:
            AttackError: the filter shows no code.
        """
        source = torch.Generator().manual_seed(seed)
        some = raw[torch.randperm(len(raw), generator=source)[:PRIOR_RECORDS]]
        codes, _ = drawn(filter_, some, source)
        middle, spread = codes.mean(0), codes.std(0).clamp_min(1e-6)
        covariance = torch.cov(codes.T).reshape(len(middle), -1)
        ridge = 1e-3 * covariance.diagonal().mean() * torch.eye(len(middle))
        guess = _regressor(tuple(raw.shape[1:]), codes.shape[1], source)
        optimiser = torch.optim.Adam(guess.parameters(), lr=RATE)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
        for _ in range(steps):
            rows = torch.randint(len(raw), (BATCH,), generator=source)
            codes, sent = drawn(filter_, raw[rows], source)
            optimiser.zero_grad()
            wanted = (codes - middle) / spread
            torch.autograd.backward((guess(sent) - wanted).square().mean())
            optimiser.step()
            cycle.step()
        precision = torch.linalg.inv(covariance + ridge)
        law = ReleaseLaw.of(filter_)
        return cls(guess.eval(), middle, spread, precision, law, refine)

    @torch.no_grad()
    def decode(self, sent: Tensor) -> Tensor:
        """Codes float32 [n, k] of releases [n, ...]."""
        return torch.cat([self._decode(part) for part in torch.split(sent, CHUNK)])

    def _decode(self, sent: Tensor) -> Tensor:
        codes: Tensor = self.middle + self.spread * self.guess(sent)
        if self.law is None:
            return codes
        wanted, law = sent.flatten(1), self.law
        damping = torch.full((len(codes),), 1e-2)
        loss = self._loss(codes, wanted, law)
        for _ in range(self.steps):
            moved = codes + self._move(codes, wanted, damping, law)
            tried = self._loss(moved, wanted, law)
            better = tried < loss
            codes = torch.where(better[:, None], moved, codes)
            loss = torch.where(better, tried, loss)
            damping = torch.where(better, damping / 4, damping * 8).clamp(1e-6, 1e6)
        return codes

    def _loss(self, codes: Tensor, wanted: Tensor, law: ReleaseLaw) -> Tensor:
        """Twice the negative log-posterior of codes, up to a constant, float32 [n]."""
        off = codes - self.middle
        prior = ((off @ self.precision) * off).sum(1)
        missed: Tensor = (wanted - law.mean(codes)).square().sum(1)
        return missed / law.deviation**2 + prior

    def _move(self, codes: Tensor, wanted: Tensor, damping: Tensor, law: ReleaseLaw) -> Tensor:
        """A damped Gauss-Newton step of each code, float32 [n, k]."""
        shown = law.mean(codes)
        steps = torch.diag(STEP * self.spread)
        beside = law.mean((codes[:, None] + steps).flatten(0, 1))
        slopes = (beside.view(len(codes), len(steps), -1) - shown[:, None]) / (
            STEP * self.spread[:, None]
        )
        slopes = slopes / law.deviation
        missed = (wanted - shown) / law.deviation
        gradient = torch.einsum("nke,ne->nk", slopes, missed)
        gradient = gradient - (codes - self.middle) @ self.precision
        curved = slopes @ slopes.transpose(1, 2) + self.precision
        curved = curved + torch.diag_embed(damping[:, None] * curved.diagonal(dim1=1, dim2=2))
        found: Tensor = torch.linalg.solve(curved, gradient)
        return found


@torch.no_grad()
def drawn(filter_: nn.Module, records: Tensor, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Codes and releases of records, of one draw of the filter's noise each.

    Raises:
        AttackError: the filter shows no code.
    """
    channel = channel_of(filter_)
    if channel is None:
        raise AttackError("this filter shows no code; leave out attackers that decode it")
    noise = torch.randn(len(records), *(noise_shape_of(filter_) or (0,)), generator=source)
    return channel(records, noise), filter_(records, noise)


def _regressor(shape: tuple[int, ...], numbers: int, source: torch.Generator) -> nn.Module:
    entries = math.prod(shape)
    dense = nn.Sequential(nn.Flatten(), ResidualMlp(entries, numbers, 256, 1, source))
    if len(shape) != 3 or min(shape[1:]) < 8:
        return dense
    return _Sum(dense, ResidualNet((shape[0], shape[1], shape[2]), numbers, 16, source))


class _Sum(nn.Module):
    """Two networks whose answers are added."""

    def __init__(self, one: nn.Module, two: nn.Module) -> None:
        super().__init__()
        self.one, self.two = one, two

    def forward(self, sent: Tensor) -> Tensor:
        """Their sum."""
        found: Tensor = self.one(sent) + self.two(sent)
        return found


def _clamped_mean(plain: Tensor, deviation: float, low: float, high: float) -> Tensor:
    """E[clamp(x + N(0, deviation²))] of each entry x."""
    found = plain
    if low > -math.inf:
        above = (plain - low) / deviation
        density = _density(above)
        found = found + deviation * density - (plain - low) * torch.special.ndtr(-above)
    if high < math.inf:
        below = (high - plain) / deviation
        density = _density(below)
        found = found - deviation * density + (high - plain) * torch.special.ndtr(-below)
    return found


def _density(values: Tensor) -> Tensor:
    """Of N(0, 1)."""
    return torch.exp(-values.square() / 2) / math.sqrt(2 * math.pi)
