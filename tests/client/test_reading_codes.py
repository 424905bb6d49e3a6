"""Adversaries read a filter's code where it shows one: nothing behind the code hides from them."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor

from fedlens.models.classifiers import ConvClassifier
from fedlens.privatizers.alpha import AlphaObjective, AlphaPrivatizer
from fedlens.privatizers.information import InformationPrivatizer, Objective
from fedlens.privatizers.networks.adversaries import CodeAdversary
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.protocol import Batch, Privatizer, draw_noise, named_weights, seen_by
from fedlens.privatizers.training import Stage, train_privatizer

SHAPE = (1, 8, 8)


def a_method(name: str) -> Privatizer:
    net, adversary = ConvReleaser(SHAPE, 2, code=3, output_noise_std=0.1), CodeAdversary(3, 2)
    reader = ConvClassifier(SHAPE, 4, 2)
    if name == "alpha":
        return AlphaPrivatizer(net, adversary, AlphaObjective(beta=1.0), fixed_utility=reader)
    prior = torch.tensor([0.5, 0.5])
    return InformationPrivatizer(
        net, prior, Objective(0.5), adversary=adversary, fixed_utility=reader
    )


def a_batch(count: int = 32) -> Batch:
    source = torch.Generator().manual_seed(1)
    sensitive = torch.arange(count) % 2
    images = 0.2 * torch.randn(count, *SHAPE, generator=source)
    images[..., :4] += sensitive[:, None, None, None] - 0.5
    return Batch(images, torch.arange(count) % 4, sensitive)


@pytest.mark.parametrize("name", ["alpha", "information"])
def test_a_decoder_that_hides_hides_nothing_from_the_adversary(name: str) -> None:
    method, batch = a_method(name), a_batch()
    noise = draw_noise(method, len(batch.records), torch.Generator().manual_seed(2))
    weights = named_weights(method.networks)
    before = method.local_step(weights, batch, noise).losses["adversary"]
    blank = copy.deepcopy({name: dict(of) for name, of in weights.items()})
    for part in ("decode.weight", "decode.bias", "up2.weight"):
        blank["filter"][part] = torch.zeros_like(blank["filter"][part])
    after = method.local_step(blank, batch, noise)
    assert torch.equal(after.losses["adversary"], before)
    alone = method.local_step(weights, batch, noise, filtering=False).losses
    assert torch.equal(alone["adversary"], before)


def test_of_a_step_that_releases_nothing_the_code_is_the_same() -> None:
    method, batch = a_method("alpha"), a_batch()
    noise, weights = torch.randn(32, *method.noise_shape), named_weights(method.networks)
    whole = seen_by(method.networks, weights, batch, noise, filtering=True)
    part = seen_by(method.networks, weights, batch, noise, filtering=False, releasing=False)
    assert torch.equal(whole.read, part.read) and not part.read.requires_grad
    assert whole.released.shape == batch.records.shape and whole.read.shape == (32, 3)


class Made:
    """A batch as a data set."""

    def __init__(self, whole: Batch) -> None:
        self.whole, self.records = whole, whole.records

    def __len__(self) -> int:
        return len(self.records)

    def batch(self, rows: Tensor, choice: Tensor | None = None) -> Batch:
        return Batch(self.records[rows], self.whole.utility[rows], self.whole.sensitive[rows])


def test_a_trained_filter_takes_out_of_the_code_what_an_adversary_reads() -> None:
    method = a_method("information")
    assert isinstance(method, InformationPrivatizer)
    with torch.no_grad():
        method.networks["filter"].encode.weight.mul_(30)  # type: ignore[union-attr,operator]
    data, stage = Made(a_batch(2000)), Stage("meeting", {"adversary": 3e-3}, 150)
    train_privatizer(method, data, [stage], batch=64, seed=0)
    open_to = _read(method, data.whole)
    method.objective = Objective(budget=0.0, weight=100.0)
    rates = {"filter": 3e-3, "adversary": 3e-3}
    hiding = Stage("hiding", rates, 200, 2)
    train_privatizer(method, data, [hiding], batch=64, seed=1)
    fresh = CodeAdversary(3, 2, generator=torch.Generator().manual_seed(9))
    method.networks = {**method.networks, "adversary": fresh}
    train_privatizer(method, data, [stage], batch=64, seed=2)
    hidden = _read(method, data.whole)
    assert open_to < 0.45 < 0.6 < hidden <= math.log(2) + 0.1


def _read(method: InformationPrivatizer, batch: Batch) -> float:
    """The adversary's cross-entropy, nats."""
    noise = torch.randn(len(batch.records), *method.noise_shape, generator=torch.Generator())
    weights = named_weights(method.networks)
    return float(method.local_step(weights, batch, noise, filtering=False).losses["adversary"])
