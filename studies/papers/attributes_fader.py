"""The baseline of study ``attributes``: a FaderNet, alone or with a U-Net behind it.

Bertran et al. 2019, section 5.3. A FaderNet (Lample et al. 2017) hides an attribute from the
discriminator
of its code; the U-Net behind it learns by the same objective as the study's own filter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from client.datasets.attributes.data import PrivateData
from models.classifiers import Mlp, check_image
from privatizers.classifiers import prior_of
from privatizers.fader import CODE, FaderPrivatizer
from privatizers.networks.fader import Chained, FaderNet
from privatizers.networks.filters import UNet
from privatizers.protocol import FILTER
from privatizers.training import Stage, train_privatizer

ALONE, CHAINED = "fader", "fader+unet"
BASELINES = (ALONE, CHAINED)
HIDDEN = 64  # Units of the discriminator of codes
PLANES = 4  # Planes of noise of the U-Net behind


@dataclass(frozen=True)
class FaderSettings:
    """How a baseline is trained."""

    width: int  # channels of the FaderNet's first layer, and of the U-Net's
    weight: float  # of the discriminator's defeat against the mean squared error of pixels
    steps: int  # of both
    discriminator_steps: int  # of the discriminator in each
    rate: float  # Adam's, of both
    batch: int  # images of a minibatch


def train_fader(settings: FaderSettings, train: PrivateData, seed: int) -> FaderPrivatizer:
    """A FaderNet whose images show an attribute drawn from the prior, whatever the owner's."""
    generator = torch.Generator().manual_seed(seed)
    shape, classes = check_image(train.shape), train.sensitive_classes
    prior, limits = prior_of(train.sensitive, classes), (train.low, train.high)
    net = FaderNet(shape, prior, settings.width, drawn=True, limits=limits, generator=generator)
    code = Mlp(math.prod(net.code_shape), classes, (HIDDEN, HIDDEN), generator=generator)
    method = FaderPrivatizer(net, code, weight=settings.weight)
    rates = {FILTER: settings.rate, CODE: settings.rate}
    steps, each = settings.steps, settings.discriminator_steps
    stage = Stage("fading", rates, steps, each, last_rate=0.1, together=True)
    train_privatizer(method, train, [stage], batch=settings.batch, seed=seed)
    return method


def behind(
    fader: FaderPrivatizer, settings: FaderSettings, train: PrivateData, generator: torch.Generator
) -> nn.Module:
    """A fresh U-Net, near the identity, behind a FaderNet that learns no more."""
    limits = (train.low, train.high)
    second = UNet(
        check_image(train.shape), settings.width, noise=PLANES, limits=limits, generator=generator
    )
    return Chained(fader.networks[FILTER], second)
