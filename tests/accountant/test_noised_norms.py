"""A round's two parts are one release: what each may cost, and what the histogram holds."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlens.accountant.bayesian.noised_norms import (
    PUBLIC_BINS,
    PUBLIC_EDGES,
    NoisedNorms,
    joint_shares,
    noised_norms,
    split_noise,
)
from fedlens.accountant.bayesian.norms import NORM_BINS, NormHistogram
from fedlens.accountant.noise.bits import FixedBits

NOISE = st.floats(1e-3, 1e3)
SHARE = st.floats(1e-6, 0.9)


@given(NOISE, SHARE)
@pytest.mark.law("5: an update and its norms are one release")
def test_both_parts_together_spend_what_the_ledger_states(z, share):
    """1/z_u² + 1/z_h² is all that a user can move the joined vector by, squared."""
    noise = split_noise(z, share)
    assert 1 / noise.update**2 + 1 / noise.norms**2 == pytest.approx(1 / z**2)
    assert (z / noise.norms) ** 2 == pytest.approx(share)


@given(NOISE, SHARE)
def test_a_user_is_charged_for_both_parts_and_never_more_than_the_round(z, share):
    noise = split_noise(z, share)
    moved = np.hypot(PUBLIC_EDGES / noise.update, 1 / noise.norms) * z
    np.testing.assert_allclose(joint_shares(z, noise.norms), moved, rtol=1e-9)
    assert joint_shares(z, noise.norms)[-1] == 1.0


def test_without_norms_all_the_noise_is_the_update_s():
    assert split_noise(4.0, 0.0).update == 4.0
    assert math.isinf(split_noise(4.0, 0.0).norms)
    assert split_noise(0.0, 0.02).update == 0.0
    assert math.isinf(split_noise(0.0, 0.02).norms)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="share"):
        split_noise(1.0, share)


def released(norms, noise=3.0, seed=0):
    counts = NormHistogram.from_norms(norms, 1.0).counts
    return noised_norms(counts, clipping_norm=1.0, noise=noise, source=FixedBits(seed))


@pytest.mark.law("5: an update and its norms are one release")
def test_a_user_changes_one_count_by_one():
    without = np.linspace(0.01, 1.0, 50)
    for norm in (1e-6, 1 / PUBLIC_BINS, 0.5, 1.0):
        moved = np.array(released(np.append(without, norm)).counts)
        moved -= np.array(released(without).counts)
        assert sorted(np.round(moved, 9)) == [0.0] * (PUBLIC_BINS - 1) + [1.0]


def test_a_norm_is_never_understated():
    for norm in np.linspace(0.001, 1.0, 97):
        place = int(np.argmax(released([norm] * 10**6).counts))
        assert PUBLIC_EDGES[place] - 1 / PUBLIC_BINS < norm <= PUBLIC_EDGES[place] + 1e-12


def test_the_noise_has_the_deviation_that_it_says():
    found = np.array([released([], noise=7.0, seed=seed).counts for seed in range(2000)])
    assert found.std() == pytest.approx(7.0, rel=0.02)
    assert abs(found.mean()) < 0.2


def test_it_survives_json_and_refuses_what_it_cannot_be():
    norms = released([0.2, 0.4])
    assert NoisedNorms.from_json(norms.to_json()) == norms
    good = norms.to_json()
    for wrong in (
        {},
        {**good, "counts": [1.0]},
        {**good, "counts": ["x"] * PUBLIC_BINS},
        {**good, "counts": [math.nan] * PUBLIC_BINS},
        {**good, "noise": 0.0},
        {**good, "clipping_norm": -1.0},
    ):
        with pytest.raises(ValueError, match=r"noised histogram|counts|noise|clipping_norm"):
            NoisedNorms.from_json(wrong)


@pytest.mark.parametrize("noise", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.law("4: norms are released with noise only")
def test_norms_are_never_released_without_noise(noise):
    with pytest.raises(ValueError, match="noise"):
        released([0.1], noise=noise)
    with pytest.raises(ValueError, match="bins"):
        noised_norms([1] * (NORM_BINS - 1), clipping_norm=1.0, noise=1.0, source=FixedBits(0))
