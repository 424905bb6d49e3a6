"""Sensitivity is bounded whatever a user sends."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.client.update.clipping import clip_and_sum, histogram


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), min_size=3, max_size=3),
        min_size=1,
        max_size=6,
    ),
    st.floats(1e-3, 1e3),
)
@pytest.mark.law("1: one user moves a sum by at most the clip")
def test_adding_a_user_moves_the_sum_by_at_most_the_clipping_norm(rows, bound):
    updates = torch.tensor(rows)
    with_user, norms = clip_and_sum(updates, bound)
    without_user, _ = clip_and_sum(updates[:-1], bound)
    assert torch.isfinite(with_user).all()
    assert float((with_user - without_user).norm()) <= bound * (1 + 1e-12) * (1 + len(rows) * 1e-12)
    assert (norms <= bound).all() and (norms >= 0).all()


def test_short_updates_pass_unchanged_and_long_ones_keep_their_direction():
    updates = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    total, norms = clip_and_sum(updates, 1.0)
    assert total.tolist() == pytest.approx([0.6 + 0.3, 0.8 + 0.4])
    assert norms.tolist() == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.law("1: one user moves a sum by at most the clip")
def test_a_user_with_a_value_that_is_not_finite_contributes_nothing(poison):
    total, norms = clip_and_sum(torch.tensor([[poison, 1.0], [0.1, 0.0]]), 1.0)
    assert total.tolist() == pytest.approx([0.1, 0.0])
    assert norms.tolist() == pytest.approx([0.0, 0.1])


def test_updates_too_large_for_float32_squares_are_clipped_not_dropped():
    total, _ = clip_and_sum(torch.full((1, 4), 3e38), 1.0)
    assert total.tolist() == pytest.approx([0.5] * 4)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=50), st.floats(1e-3, 50))
def test_a_bin_never_understates_a_norm(shares, bound):
    norms = torch.tensor(shares, dtype=torch.float64) * bound
    counts = histogram(norms, bound, 64).numpy()
    counted = np.sort(norms[norms > 0].numpy())  # who contributes nothing counts nowhere
    assert counts.sum() == len(counted)
    edges = np.repeat(np.arange(1, 65) / 64 * bound, counts)
    assert (edges >= counted * (1 - 1e-12)).all()


def test_the_histogram_is_the_accountants():
    from fedlens.accountant.bayesian.norms import NormHistogram

    norms = torch.rand(500, dtype=torch.float64) * 0.35
    mine = tuple(histogram(norms, 0.35, 64).tolist())
    assert mine == NormHistogram.from_norms(norms.numpy(), 0.35).counts
