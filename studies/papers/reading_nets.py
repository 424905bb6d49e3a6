"""Fresh networks that read the use of records: what a fixed service would be."""

from __future__ import annotations

import math

import torch
from torch import nn

from client.datasets.attributes.data import PrivateData
from models.classifiers import Mlp
from studies.papers.attacking import learn, small_reader


def read_images(data: PrivateData, steps: int, seed: int) -> nn.Module:
    """A fresh network that reads the use of images, fitted on ``data``."""
    generator = torch.Generator().manual_seed(seed)
    net = small_reader(data.shape, data.utility_classes, generator)
    return learn(net, data.records, data.utility, steps=steps, rate=2e-3, seed=seed).eval()


def read_points(data: PrivateData, steps: int, seed: int) -> nn.Module:
    """The same of points."""
    generator = torch.Generator().manual_seed(seed)
    net = Mlp(math.prod(data.shape), data.utility_classes, generator=generator)
    return learn(net, data.records, data.utility, steps=steps, rate=5e-3, seed=seed).eval()
