"""How the studies' filters are trained against an adversary that reads what they release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from fedlens.privatizers.attacks.attackers.reading_nets import joint_adversary
from fedlens.privatizers.information import ADVERSARY
from fedlens.privatizers.networks.adversaries import CodeAdversary
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.networks.spectral import SpectralReleaser
from fedlens.privatizers.private_data import PrivateData
from fedlens.privatizers.protocol import Batch, Privatizer
from fedlens.privatizers.training import Change, Progress, Stage, train_privatizer


def train_against(
    method: Privatizer,
    train: PrivateData,
    settings: Any,
    rates: Mapping[str, float],
    *,
    meeting: int,
    seed: int,
    change: Change | None = None,
    progress: Progress | None = None,
) -> None:
    """Train in place: the adversary alone for ``meeting`` steps, then all networks of ``rates``.

    A study's settings have ``steps``, ``adversary_steps`` in each, ``last_rate`` and ``batch``.
    """
    stages = [
        Stage("meeting", {ADVERSARY: rates[ADVERSARY]}, meeting),
        Stage(
            "releasing", dict(rates), settings.steps, settings.adversary_steps,
            last_rate=settings.last_rate, together=True,
        ),
    ]  # fmt: skip
    batch = settings.batch
    train_privatizer(
        method, train, stages, batch=batch, seed=seed, change=change, progress=progress
    )


def adversary_of(filter_: nn.Module, train: PrivateData, generator: torch.Generator) -> nn.Module:
    """A network that reads the filter's code where it has one, else what it releases."""
    if isinstance(filter_, ConvReleaser | SpectralReleaser):
        size = filter_.encode.out_features
        return CodeAdversary(size, train.sensitive_classes, generator=generator)
    return joint_adversary(train, generator)


def moved(pixels: int) -> Change | None:
    """Move a minibatch of images by up to so many pixels each way; None where that is 0.

    What is hidden in records that a filter learned from is less so in others; images that are never
    quite the same bring the two together. Edges are continued.
    """
    if pixels == 0:
        return None

    def change(batch: Batch, generator: torch.Generator) -> Batch:
        height, width = batch.records.shape[2:]
        wide = F.pad(batch.records, (pixels,) * 4, mode="replicate")
        down, across = torch.randint(0, 2 * pixels + 1, (2,), generator=generator).tolist()
        records = wide[:, :, down : down + height, across : across + width]
        return replace(batch, records=records)

    return change
