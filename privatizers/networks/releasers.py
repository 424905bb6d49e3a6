"""Releasers: networks that turn a record and noise into a record to hand out.

Jafarzadeh Asl et al. 2023.

Noise is always an argument, standard normal, so that a releaser is a function. What a releaser
lets through is for attackers to find out; only the bounded code of `ConvReleaser` promises
something: how much it can tell at most.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.models.classifiers import check_image
from fedlens.models.shapes import ShapeError
from fedlens.models.weights import initialise, unset_weights
from fedlens.privatizers.networks.information import bounded, radius_of
from fedlens.privatizers.networks.masks import chosen
from fedlens.privatizers.networks.recurrent import build_lstm, check_sizes


class ConvReleaser(nn.Module):
    """A convolutional encoder, a short noisy code of bounded length, and a decoder.

    After section III-A and Figure 2; the paper prints no layer sizes, ours are these. Nothing goes
    around the code, and what follows it is post-processing that everybody has: an attacker who
    reads the code reads all that is released. So the code is what is hidden in, and what is
    certified.

    Its length is limited by construction: the encoder's answer v becomes c = r v / √(r² + |v|²),
    |c| < r, and the code is z = c + N(0, I). Whatever the weights and the records, z tells at most

        (k/2) log(1 + r²/k) nats

    of *anything* about a record, the capacity of the Gaussian channel with k numbers and power r²
    (:func:`fedlens.privatizers.networks.information.gaussian_capacity`); r is set by ``capacity``.
    The noise's covariance is learned all the same: the encoder's last layer W is free, and a unit
    covariance behind W is (WᵀW)⁻¹ before it, in which directions are scaled and turned.

    The noise of the code must be the record's own: released ten times with fresh noise, a record
    tells as much as at ten times the power. A device derives it from its key and the record
    (:mod:`fedlens.privatizers.record_noise`). No norm layers: a record's answer depends on that
    record and its noise alone.

    Args:
        shape: (channels, height, width) of an image, sides multiples of 4 and at least 8.
        width: a quarter of the encoder's channels at a quarter of the size, half of the decoder's.
        code: k, numbers of the code: at least the classes of the utility less one.
        capacity: nats that the code may tell of anything.
        noisy: add noise to the code; the paper's releaser of images has none, and without it
            nothing is hidden from who knows the weights, and nothing certified.
        output_noise_std: standard deviation of further noise on each released pixel, which
            attackers without the weights have to read through.
        low: least value of a released pixel.
        high: greatest value.
        choices: opt-in bits; with 1 an image whose owner minds nothing goes out as it is. 0 where
            everybody's is filtered.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: on a shape, size or capacity that is not supported.
    """

    repeats_noise = True
    """A record that is released again goes out with the noise that it had."""

    def __init__(
        self,
        shape: tuple[int, int, int],
        width: int = 8,
        *,
        code: int = 10,
        capacity: float = 6.0,
        noisy: bool = True,
        output_noise_std: float = 0.0,
        low: float = -1.0,
        high: float = 1.0,
        choices: int = 0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        channels, height, breadth = _check_image(shape)
        self.choices, self.width = choices, width
        check_sizes(width=width, code=code)
        self.radius = radius_of(capacity, code)
        self.capacity = capacity
        self.low, self.high = low, high
        self.output_noise_std = _check_deviation(output_noise_std)
        self.coded = code if noisy else 0
        entries = self.coded + (channels * height * breadth if output_noise_std else 0)
        self.noise_shape = (entries,) if entries else ()
        self.quarter = (2 * width, height // 4, breadth // 4)
        area = (height // 4) * (breadth // 4)
        with unset_weights():
            self.down1 = nn.Conv2d(channels, 2 * width, 5, stride=2, padding=2)
            self.down2 = nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1)
            self.dense = nn.Linear(4 * width * area, 16 * width)
            self.encode = nn.Linear(16 * width, code)
            self.decode = nn.Linear(code, 2 * width * area)
            self.up1 = nn.Conv2d(2 * width, 4 * width, 3, padding=1)
            self.up2 = nn.Conv2d(width, 4 * channels, 3, padding=1)
        initialise(self, generator, "relu")

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released images [n, c, h, w] in (low, high) of images and noise [n, *noise_shape].

        Where there are opt-in bits, float32 [n, choices], images without one go out as they are.
        """
        return self.coded_release(records, noise, choice)[1]

    def channel(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """All that a filtered image's release is computed from, float32 [n, code].

        The code with its noise, of images and noise [n, *noise_shape]. Everything behind it is the
        same for all records or noise of its own, so no reader of a release can know more than the
        best reader of this (data processing). A record that goes out as it is, by its ``choice``,
        passes no code: this is what would be sent if it were filtered.
        """
        maps = F.relu(self.down2(F.relu(self.down1(records))))
        answer: Tensor = self.encode(F.relu(self.dense(maps.flatten(1))))
        code = bounded(answer, self.radius)
        return code + noise[:, : self.coded] if self.coded else code

    def decoded(self, code: Tensor) -> Tensor:
        """Images [n, c, h, w] of codes [n, code]: what is released before the output noise."""
        quarter = F.relu(self.decode(code)).view(-1, *self.quarter)
        half = F.relu(F.pixel_shuffle(self.up1(quarter), 2))
        full = F.pixel_shuffle(self.up2(half), 2).sigmoid()
        return self.low + (self.high - self.low) * full

    def coded_release(
        self, records: Tensor, noise: Tensor, choice: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The channel and the release that is made from it, of the arguments of both."""
        code = self.channel(records, noise)
        released = self.decoded(code)
        if self.output_noise_std:
            added = self.output_noise_std * noise[:, self.coded :].view_as(released)
            released = (released + added).clamp(self.low, self.high)
        return code, chosen(records, released, choice if self.choices else None)


class LstmReleaser(nn.Module):
    """A causal LSTM over a series and one uniform noise a step (section IV-D).

    Each released step is ``level + keep · (step − level)`` plus a correction that depends on it, on
    the steps before and on their noises: a meter can run it as hours come. The correction starts
    near 0, and ``keep`` is learnt: started at 1 training starts at full utility, started at 0 at
    full privacy, where next to nothing but ``level`` is released. Four layers of 64 cells: 117,314
    parameters.

    With ``gated`` the share that is kept is ``keep`` plus a number in (−1, 1), near 0 at the start,
    that depends on the same as the correction: what is to go out as it is need not pass the cells,
    which blunt high peaks. With ``both_ways`` the steps that follow count too: a series goes out
    when it is complete.

    Args:
        channels: of a series.
        hidden: units of each layer.
        layers: layers one upon the other.
        low: least value that is released; None for none.
        high: greatest value that is released; None for none.
        steps: of the series that the noise is drawn for.
        keep: share of a step's distance to ``level`` that is kept at the start, 0 to 1.
        level: what is released where nothing is kept, say the mean.
        output_noise_std: standard deviation of noise on each released step, in units of the series.
            Without it a filter hides the sensitive attribute from networks by writing it small,
            where trees find it.
        gated: the share that is kept depends on the series.
        both_ways: the LSTM also reads the series from its end; twice as many cells.
        generator: CPU generator of the weights; ``None`` is seed 0.

    Raises:
        ShapeError: a size is below 1, ``keep`` outside [0, 1], or ``output_noise_std`` negative.
    """

    def __init__(
        self,
        channels: int = 1,
        *,
        hidden: int = 64,
        layers: int = 4,
        low: float | None = None,
        high: float | None = None,
        steps: int = 24,
        keep: float = 1.0,
        level: float = 0.0,
        output_noise_std: float = 0.0,
        gated: bool = False,
        both_ways: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        check_sizes(channels=channels, hidden=hidden, layers=layers, steps=steps)
        if not 0 <= keep <= 1:
            raise ShapeError(f"keep={keep} must lie in [0, 1]: 1 starts at full utility")
        self.low, self.high, self.level = low, high, level
        self.output_noise_std = _check_deviation(output_noise_std)
        self.noise_shape = (steps, 1 + channels if output_noise_std else 1)
        source = generator if generator is not None else torch.Generator().manual_seed(0)
        self.channels, self.gated = channels, gated
        with unset_weights():
            self.correct = nn.Linear(hidden * (1 + both_ways), channels * (1 + gated))
        initialise(self, source, "linear")
        with torch.no_grad():
            self.correct.weight.mul_(0.1)
        self.keep = nn.Parameter(torch.tensor(float(keep)))
        self.lstm = build_lstm(channels + 1, hidden, layers, source, both_ways=both_ways)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        """Released series [n, T, channels] of series and noise, both float32 [n, T, ...].

        The noise is N(0, 1) as every filter's; the distribution function makes U[0, 1) of its first
        channel, and the others are the output noise.
        Values beyond the limits are cut, but passed through in the gradient: where a cut had
        none, a step once cut could never come back.
        """
        uniform = (1 + torch.erf(noise[..., :1] / math.sqrt(2))) / 2
        states = self.lstm(torch.cat([records, uniform], 2))[0]
        correction, *gate = self.correct(states).split(self.channels, 2)
        share = self.keep + gate[0].tanh() if gate else self.keep
        free: Tensor = self.level + share * (records - self.level) + correction
        if self.output_noise_std:
            free = free + self.output_noise_std * noise[..., 1:].reshape(records.shape)
        if self.low is None and self.high is None:
            return free
        return free + (free.clamp(self.low, self.high) - free).detach()


def _check_deviation(output_noise_std: float) -> float:
    if not 0 <= output_noise_std < math.inf:
        raise ShapeError(f"output_noise_std={output_noise_std} must be at least 0")
    return output_noise_std


def _check_image(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    channels, height, width = check_image(shape)
    if height % 4 or width % 4:
        raise ShapeError(f"shape {tuple(shape)}: give sides that are multiples of 4")
    return channels, height, width
