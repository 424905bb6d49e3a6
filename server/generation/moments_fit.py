"""A filter fitted on features drawn from released moments: post-processing of noised sums.

The features of each pair of class and attribute are drawn from the Gaussian that the release says
they have. A filter that sees these features of an image and nothing else can be trained on them
for as many steps, and against as many fresh adversaries, as there is patience for. What it hides
in real images rests on how like Gaussians their features are: attackers say how far that goes.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from fedlens.models.classifiers import Mlp
from fedlens.privatizers.fitting import FittedFilter
from fedlens.privatizers.networks.design import spectral_filter
from fedlens.privatizers.networks.spectral import LowFrequencies
from fedlens.privatizers.pair_moments import PairGaussians
from fedlens.privatizers.protocol import PrivatizerError
from fedlens.privatizers.training import Progress
from fedlens.server.config.privatizer import SumsPrivatizer
from fedlens.server.generation.fitting import BATCH, SHARES, FitTask, PairSamples, fit_at

SEED = 7_000_003
SAMPLES = 30_000
HELD = 4000
"""Further features, by which a fresh adversary is judged."""
READER_HIDDEN = (128, 64)
READING_STEPS, READING_RATE = 1000, 2e-3
SERVING_STEPS = 800


def fit_on_moments(
    settings: SumsPrivatizer,
    features: LowFrequencies,
    known: PairGaussians,
    classes: tuple[int, int],
    seed: int,
    on_step: Progress,
) -> FittedFilter:
    """A filter; the same one bit for bit for the same arguments.

    Args:
        settings: of the filter.
        features: what it sees of an image, centred and scaled.
        known: what images' features are like, pair by pair (class x values + value).
        classes: of the utility, and of the sensitive attribute.
        seed: the run's.
        on_step: for a progress display.

    Raises:
        PrivatizerError: it could not be trained at any of `SHARES` of the configured rates.
    """
    source = torch.Generator().manual_seed(seed + SEED)
    samples, held = (
        drawn_samples(features, known, size, classes[1], source) for size in (SAMPLES, HELD)
    )
    reader = _reader(samples, features, classes[0], source)
    for share in SHARES:
        network = spectral_filter(settings.model_dump(), features, source)
        task = FitTask(network, reader, samples, held, network.coded, classes[1], SERVING_STEPS)
        try:
            return fit_at(task, settings, share, seed + SEED, source, on_step)
        except PrivatizerError:
            if share == SHARES[-1]:
                raise
    raise PrivatizerError("there is no rate to fit at")


def drawn_samples(
    features: LowFrequencies,
    known: PairGaussians,
    count: int,
    values: int,
    source: torch.Generator,
) -> PairSamples:
    """Smooth images that have drawn features, with the labels that these were drawn for."""
    drawn, pairs = known.draw(count, source)
    return PairSamples(features.images(drawn), pairs // values, pairs % values)


def _reader(
    samples: PairSamples, features: LowFrequencies, classes: int, source: torch.Generator
) -> nn.Module:
    """A network that reads the class of drawn images; its rate falls to a tenth along a line."""
    network = Mlp(math.prod(features.shape), classes, READER_HIDDEN, generator=source)
    adam = torch.optim.Adam(network.parameters(), lr=READING_RATE)
    for step in range(READING_STEPS):
        adam.param_groups[0]["lr"] = READING_RATE * (1 - 0.9 * step / READING_STEPS)
        rows = torch.randint(len(samples), (BATCH,), generator=source)
        adam.zero_grad(set_to_none=True)
        loss = F.cross_entropy(network(samples.records[rows]), samples.utility[rows])
        torch.autograd.backward(loss)
        adam.step()
    return network.eval()
