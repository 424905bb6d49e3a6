"""Noise maps keep their limits and their gradients; masks keep what has little noise."""

from __future__ import annotations

import pytest
import torch

from fedlens.models.shapes import ShapeError
from fedlens.privatizers.networks.masks import (
    FILLS,
    Fill,
    MaskError,
    MaskFilter,
    NoiseMap,
    kept,
    masked,
    threshold_of,
)
from fedlens_research.lenet import LeNet5


def noise_map(*rho: float) -> NoiseMap:
    found = NoiseMap((len(rho),), 1.5, least=0.01)
    with torch.no_grad():
        found.rho.copy_(torch.tensor(rho))
        found.shift.fill_(0.25)
    return found


def test_sigma_is_the_papers_without_its_rounding(privatizer_oracles) -> None:
    table = privatizer_oracles["cloak"]["sigma_at_rho"]
    rho = torch.tensor([float(key) for key in table])
    sigma = NoiseMap((len(rho),), 1.5, least=0.0).deviation(rho)
    assert torch.allclose(sigma, torch.tensor(list(table.values())), rtol=1e-5)


def test_a_shift_in_smaller_units_moves_slower_and_is_what_the_mask_takes_over() -> None:
    """Adam steps alike in every parameter; what moves in steps of a tenth goes a tenth as far."""
    records, zero = torch.zeros(4, 3), torch.zeros(4, 3)
    moved = []
    for unit in (1.0, 0.1):
        found = NoiseMap((3,), 1.5, shift_unit=unit)
        optimiser = torch.optim.Adam(found.parameters(), lr=0.01)
        for _ in range(5):
            optimiser.zero_grad()
            torch.autograd.backward((found(records, zero) - 7).square().sum())
            optimiser.step()
        moved.append(found(records, zero).detach()[0])
        taken = masked(found, threshold_of(found.sigma(), 0.0), "noise")
        assert torch.allclose(taken(records, zero)[0], moved[-1], atol=1e-7)
    assert torch.allclose(moved[0], 10 * moved[1], rtol=1e-3)
    with pytest.raises(MaskError, match="shift_unit=0"):
        NoiseMap((3,), 1.5, shift_unit=0.0)


def test_noise_stays_between_its_limits_and_can_grow_from_the_start() -> None:
    for rho in (-1000.0, -50.0, 50.0):
        sigma = NoiseMap((3,), 2.0, least=0.01, rho=rho).sigma()
        assert bool(((sigma >= 0.01) & (sigma <= 2.0)).all())
    fresh = NoiseMap((3,), 2.0)
    torch.autograd.backward(fresh.sigma().sum())
    assert fresh.rho.grad is not None
    assert float(fresh.rho.grad.min()) > 1e-4  # the authors' tanh form at -10 has 0


def test_released_records_are_shifted_and_have_the_noise_asked_for() -> None:
    found = noise_map(-1.0, 0.0, 1.0)
    noise = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0))
    out = found(torch.ones(20_000, 3), noise)
    assert torch.allclose(out.mean(0), torch.full((3,), 1.25), atol=0.04)
    assert torch.allclose(out.std(0), found.sigma(), rtol=0.03)


def test_the_mask_keeps_what_has_little_noise() -> None:
    sigma = torch.tensor([0.1, 1.4, 0.7])
    assert kept(sigma, 0.7).tolist() == [True, False, False]  # the paper prints the opposite


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.25, 0.4, 0.5, 0.9])
def test_a_ratio_is_suppressed_exactly_where_noise_differs(ratio: float) -> None:
    sigma = torch.rand(40, generator=torch.Generator().manual_seed(1))
    mask = kept(sigma, threshold_of(sigma, ratio))
    assert int((~mask).sum()) == -(-round(ratio * 40, 6) // 1)
    if ratio:
        assert float(sigma[mask].max()) < float(sigma[~mask].min())


def test_what_is_suppressed_is_the_same_whatever_the_record() -> None:
    found = noise_map(-2.0, 2.0, -2.0, 2.0)
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(1, 4, generator=generator)
    for fill in FILLS[1:]:
        mask = masked(found, 0.75, fill, mean=torch.full((4,), 0.5))
        one, two = (mask(torch.randn(1, 4, generator=generator), noise) for _ in range(2))
        assert torch.equal(one[:, [1, 3]], two[:, [1, 3]])
        assert not torch.isclose(one[:, [0, 2]], two[:, [0, 2]]).any()
        assert mask.ratio == 0.5


@pytest.mark.parametrize(
    ("fill", "wanted"), [("zeros", -1.0), ("mean", 0.5), ("trained", 0.75), ("noise", None)]
)
def test_each_fill_sends_what_it_says(fill: Fill, wanted: float | None) -> None:
    found = noise_map(-2.0, 2.0)
    record, noise = torch.tensor([[0.2, 0.3]]), torch.tensor([[1.0, -1.0]])
    out = masked(found, 0.75, fill, mean=torch.full((2,), 0.5), blank=-1.0)(record, noise)
    if wanted is None:
        assert torch.allclose(out, found(record, noise))
        return
    low = float(found.sigma()[0].detach())
    assert torch.allclose(out, torch.tensor([[0.2 + low, wanted]]))


def test_a_shifted_mask_adds_the_shift_to_what_is_kept() -> None:
    found = noise_map(-2.0, 2.0)
    record, noise = torch.tensor([[0.2, 0.3]]), torch.zeros(1, 2)
    plain, moved = (
        masked(found, 0.75, "zeros", shifted=shifted)(record, noise) for shifted in (False, True)
    )
    assert (moved - plain)[0].tolist() == pytest.approx([0.25, 0.0])


def test_a_suppressed_entry_that_is_no_number_stays_on_the_device() -> None:
    mask = masked(noise_map(-2.0, 2.0), 0.75, "zeros")
    out = mask(torch.tensor([[0.2, float("nan")]]), torch.zeros(1, 2))
    assert bool(torch.isfinite(out).all())


def test_entries_given_up_stay_so_and_are_a_constant_at_once() -> None:
    found = noise_map(-2.0, 0.0, 1.0, 2.0)
    found.give_up(0.5, torch.full((4,), 0.5))
    noise = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    out = found(torch.tensor([[0.0] * 4, [1.0] * 4]), noise)
    assert torch.allclose(out[:, 2:], torch.full((2, 2), 0.75))
    with torch.no_grad():
        found.rho[3] = -4.0  # what a gradient of nothing but the privacy term could do
    assert kept(found.sigma(), 1.5).tolist() == [True, True, False, False]
    found.give_up(0.75, torch.zeros(4))
    assert found.keep.tolist() == [True, False, False, False]
    assert masked(found, 1.0, "trained").values.tolist() == pytest.approx([0.25] * 4)


def test_only_trained_values_learn() -> None:
    found = noise_map(-2.0, 2.0)
    assert [name for name, _ in masked(found, 0.75, "trained").named_parameters()] == ["values"]
    assert not list(masked(found, 0.75, "zeros").parameters())


def test_who_chose_nothing_sends_the_record_as_it_is() -> None:
    found = noise_map(-2.0, 2.0)
    records, noise = torch.ones(2, 2), torch.ones(2, 2)
    choice = torch.tensor([[0.0], [1.0]])
    for filter_ in (found, masked(found, 0.75, "zeros")):
        out = filter_(records, noise, choice)
        assert out[0].tolist() == [1.0, 1.0]
        assert torch.equal(out[1], filter_(records, noise)[1])


def test_masks_without_meaning_are_refused() -> None:
    found = noise_map(-2.0, 2.0)
    with pytest.raises(MaskError, match=r"keeps nothing.*above it"):
        masked(found, 0.01, "zeros")
    with pytest.raises(MaskError, match="ratio=1"):
        threshold_of(found.sigma(), 1.0)
    with pytest.raises(MaskError, match="keeps nothing"):
        threshold_of(torch.ones(5), 0.2)  # all share their noise: none is left below it
    with pytest.raises(MaskError, match="unknown"):
        masked(found, 0.75, "blur")  # type: ignore[arg-type]
    with pytest.raises(MaskError, match="needs mean"):
        masked(found, 0.75, "mean")
    with pytest.raises(MaskError, match="least=2"):
        NoiseMap((2,), 1.5, least=2.0)
    with pytest.raises(MaskError, match="keeps nothing"):
        MaskFilter(torch.ones(2), torch.zeros(2, dtype=torch.bool), torch.zeros(2))
    with pytest.raises(MaskError, match="record's shape"):
        MaskFilter(torch.ones(2), torch.ones(3, dtype=torch.bool), torch.zeros(2))
    with pytest.raises(MaskError, match="base is"):
        found.give_up(0.5, torch.zeros(3))


def test_lenet_sees_28_pixels_as_32_with_a_border() -> None:
    small, large = LeNet5((1, 28, 28), 2), LeNet5((1, 32, 32), 2)
    images = torch.rand(3, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    framed = torch.nn.functional.pad(images, (2, 2, 2, 2), value=-1.0)
    assert torch.allclose(small(images), large(framed), atol=1e-6)
    with pytest.raises(ShapeError):
        LeNet5((1, 30, 30), 2)
