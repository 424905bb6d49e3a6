"""Sums of clipped contributions are exact: float64 rounds none of them, in whatever order."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlens.accountant.noise import pitch
from fedlens.accountant.noise.lattice import SUM_BITS
from fedlens.client.tasks.annotator import errors
from fedlens.client.update.clipping import Blocks, Layered, clip_and_sum
from fedlens.client.update.record_mode import add_step_noise

CLIP = 0.3
ROWS, SIZE = 400, 60


def rows(seed: int = 0) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, SIZE, generator=source) * torch.rand(ROWS, 1, generator=source)


def dense(order: torch.Tensor) -> torch.Tensor:
    return clip_and_sum(rows()[order], CLIP)[0]


def blocks(order: torch.Tensor) -> torch.Tensor:
    return clip_and_sum(Blocks(rows()[order], (order * 3) % 8, 8), CLIP)[0]


def products(order: torch.Tensor) -> torch.Tensor:
    left, right = rows(1)[order][:, :10], rows(2)[order]
    return clip_and_sum(Layered(((left[:, :, None], right[:, None, :]),)), CLIP)[0]


def layered(order: torch.Tensor) -> torch.Tensor:
    """Values of a deep network: many rows of float32, made a few at a time."""
    wide = torch.cat([rows(4), rows(5), rows(6)], dim=1)[order].repeat(1, 20)
    parts = (wide[:, :7], wide[:, 7:2000], wide[:, 2000:])
    shared = torch.linspace(-0.01, 0.01, 2 * wide.shape[1]).view(2, -1)
    return clip_and_sum(Layered(parts, shared, order % 2), CLIP)[0]


KINDS = pytest.mark.parametrize("summed", [dense, blocks, products, layered])


@KINDS
@pytest.mark.law("1: sums are exact")
def test_a_sum_is_the_same_to_the_last_bit_in_whatever_order(summed):
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(3))
    whole = summed(order)
    assert torch.equal(whole, summed(torch.arange(ROWS)))
    assert torch.equal(whole, summed(order[:150]) + summed(order[150:]))


@KINDS
@pytest.mark.law("1: sums are exact")
def test_a_sum_less_one_contribution_is_the_sum_without_it_to_the_last_bit(summed):
    everyone = torch.arange(ROWS)
    for one in (0, 77, ROWS - 1):
        others = everyone[everyone != one]
        alone = summed(everyone[one : one + 1])
        assert torch.equal(summed(everyone) - alone, summed(others))
        assert 0 < float(alone.norm()) <= CLIP * (1 + 1e-13)


@KINDS
def test_a_sum_lies_on_its_lattice_and_near_the_sum_of_real_numbers(summed):
    whole = summed(torch.arange(ROWS))
    step = pitch(CLIP, SUM_BITS)
    assert torch.equal(torch.fmod(whole, step), torch.zeros_like(whole))
    if summed is dense:
        exact = torch.nn.functional.normalize(rows().double()) * torch.clamp(
            rows().double().norm(dim=1, keepdim=True), max=CLIP
        )
        assert float((whole - exact.sum(0)).abs().max()) <= ROWS * CLIP * 2**-21
        doubled = clip_and_sum(rows().double(), CLIP)[0]
        assert float((doubled - exact.sum(0)).abs().max()) <= ROWS * step


def test_an_annotators_errors_do_not_depend_on_the_other_records_to_the_last_bit():
    source = torch.Generator().manual_seed(4)
    held = torch.randn(301, 401, generator=source)
    labels = torch.randint(0, 10, (301,), generator=source)
    weight = 3 * torch.randn(10, 401, generator=source)
    whole = errors(held, labels, weight)
    for first in (1, 2, 3, 50):  # copies, as memory is laid out anew without those before
        assert torch.equal(errors(held[first:].clone(), labels[first:], weight), whole[first:])


def test_a_node_releases_multiples_of_the_noises_pitch(make_request):
    request = make_request(0, unit="record", noise_multiplier=2.0, clipping_norm=CLIP)
    total = dense(torch.arange(ROWS))
    one, other = (add_step_noise(values, request, 0, 0).numpy() for values in (total, total * 0))
    for released in (one, other):
        assert (np.fmod(released, pitch(CLIP)) == 0).all()
    assert not np.array_equal(one - total.numpy(), other)
