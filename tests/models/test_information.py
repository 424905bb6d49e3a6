"""Closed forms against the oracle file and against each other."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from privatizers.networks.information import (
    InformationError,
    arimoto_conditional_entropy,
    arimoto_entropy,
    arimoto_information,
    arimoto_uncertainty,
    conditional_mutual_information,
    entropy,
    gaussian_information_bound,
    least_sum,
    mutual_information,
)

SHARED = Path(os.environ.get("FEDLENS_SHARED", Path(__file__).resolve().parents[3] / "shared"))
ORACLES = SHARED / "oracles" / "privatizers.json"
needs_oracles = pytest.mark.skipif(not ORACLES.exists(), reason=f"no oracle file at {ORACLES}")
EXACT = 1e-9


def float64(table):
    return torch.tensor(table, dtype=torch.float64)


@pytest.fixture(scope="module")
def oracles():
    return json.loads(ORACLES.read_text())


@needs_oracles
def test_arimoto_quantities_are_the_oracles(oracles):
    compared = 0
    for case in oracles["arimoto"].values():
        joint = float64(case["joint_rows_S_cols_Z"])
        for key, ours in (
            ("H_alpha_S", lambda order, joint=joint: arimoto_entropy(joint.sum(1), order)),
            ("H_alpha_S_given_Z", lambda order, j=joint: arimoto_conditional_entropy(j, order)),
            ("I_alpha_arimoto", lambda order, joint=joint: arimoto_information(joint, order)),
        ):
            for order, value in case[key].items():
                assert float(ours(float(order))) == pytest.approx(value, abs=EXACT), (key, order)
                compared += 1
    assert compared > 100


@needs_oracles
def test_binary_symmetric_channels_are_the_oracles(oracles):
    for name, by_order in oracles["bsc_closed_form"].items():
        error = float(name.removeprefix("e="))
        joint = float64([[1 - error, error], [error, 1 - error]]) / 2
        for order, value in by_order.items():
            assert float(arimoto_information(joint, float(order))) == pytest.approx(
                value, abs=EXACT
            )


@needs_oracles
def test_the_gaussian_bound_is_the_correct_one_not_the_printed_one(oracles):
    case = oracles["cloak"]
    bound = gaussian_information_bound(torch.diag(float64(case["lambda"])), float64(case["sigma"]))
    assert float(bound) == pytest.approx(case["gaussian_MI_bound_correct_nats"], abs=EXACT)
    assert float(bound) < case["eq5_as_printed_nats"] - 4


def test_the_gaussian_bound_holds_for_covariances_that_do_not_commute_with_the_noise():
    covariance = float64([[2.0, 0.9], [0.9, 1.0]])
    sigma = float64([0.5, 2.0])
    direct = torch.logdet(covariance + torch.diag(sigma**2)) - torch.log(sigma**2).sum()
    assert float(gaussian_information_bound(covariance, sigma)) == pytest.approx(float(direct) / 2)


@needs_oracles
def test_erasure_meets_the_least_sum_only_where_the_oracle_says(oracles):
    for name, case in oracles["erasure_mechanism"].items():
        k, share = (float(part.split("=")[1]) for part in name.split(","))
        joint = mixture(k)
        raw_utility = entropy(joint.sum(1))
        erased = torch.zeros(2, 2, 3, dtype=torch.float64)  # [u, s, q], q = u or lost
        for utility in range(2):
            erased[utility, :, utility] = (1 - share) * joint[utility]
        erased[:, :, 2] = share * joint
        lost = raw_utility - mutual_information(erased.sum(1))
        leaked = mutual_information(erased.sum(0))
        assert float(lost) == pytest.approx(case["A"], abs=EXACT)
        assert float(leaked) == pytest.approx(case["B"], abs=EXACT)
        assert float(lost + leaked) >= float(mutual_information(joint)) - EXACT


@needs_oracles
def test_perfect_privacy_costs_what_the_oracle_says(oracles):
    """The utility is told with probability k, so that no answer favours a sensitive attribute; the
    rest is lost."""
    cases = oracles["gmm_perfect_privacy_closed_form"]
    for k in (0.0, 0.4, 1.0):
        joint = mixture(k)
        told = torch.zeros(2, 2, 3, dtype=torch.float64)  # [u, s, q], q = u or lost
        for utility in range(2):
            told[utility, :, utility] = k / 4
        told[:, :, 2] = joint - told[:, :, :2].sum(2)
        assert float(mutual_information(told.sum(0))) == pytest.approx(0, abs=EXACT)
        lost = float(entropy(joint.sum(1)) - mutual_information(told.sum(1)))
        assert lost == pytest.approx(cases[f"k={k:g}"], abs=EXACT)
    searched = oracles["unrestricted_discrete_optimum"]["k=0.4,perfect_privacy_minA"]
    assert searched["A"] == pytest.approx(cases["k=0.4"], abs=1e-4)  # a search, and no closed form


@needs_oracles
def test_the_papers_theorem_is_false_and_ours_is_not(oracles):
    case = oracles["theorem33_counterexample_k0.4"]["optimum"]["0.1"]
    least = float(mutual_information(mixture(0.4)))
    assert case["A"] < 0.1 * least  # an achieved point that Theorem 3.3 forbids
    assert case["A"] + case["B"] >= least
    assert 0.9 * case["A"] ** 2 + 0.1 * case["B"] ** 2 >= 0.1 * 0.9 * least**2


def mixture(k):
    return float64([[k, 2 - k], [2 - k, k]]) / 4


def test_use_xor_sensitive_attribute_tells_nothing_alone_and_all_together():
    joint = torch.zeros(2, 2, 2, dtype=torch.float64)  # s, q, u with q = u xor s
    for utility in range(2):
        for sensitive in range(2):
            joint[sensitive, utility ^ sensitive, utility] = 0.25
    assert float(mutual_information(joint.sum(2))) == pytest.approx(0, abs=EXACT)
    assert float(conditional_mutual_information(joint)) == pytest.approx(math.log(2), abs=EXACT)


def tables(rows, columns):
    entry = st.floats(0, 1, allow_subnormal=False)
    cells = st.lists(entry, min_size=rows * columns, max_size=rows * columns)
    return cells.filter(lambda values: sum(values) > 0.1).map(
        lambda values: float64(values).reshape(rows, columns) / sum(values)
    )


@settings(max_examples=60, deadline=None)
@given(tables(3, 4), st.sampled_from([0.2, 0.5, 0.99, 1.0, 1.5, 2.0, 20.0, math.inf]))
def test_information_is_never_negative_and_never_above_the_entropy(joint, order):
    told = float(arimoto_information(joint, order))
    assert -1e-9 <= told <= float(arimoto_entropy(joint.sum(1), order)) + 1e-9


@settings(max_examples=30, deadline=None)
@given(tables(3, 8))
def test_no_release_of_x_beats_the_least_sum(parts):
    joint = parts.reshape(3, 2, 4)  # u, s, x
    channel = torch.softmax(3 * torch.sin(torch.arange(12.0).double()).reshape(4, 3), 1)  # x -> q
    released = joint @ channel
    told = mutual_information(joint.sum(1)) - mutual_information(released.sum(1))
    leaked = mutual_information(released.sum(0))
    assert float(told + leaked) >= float(least_sum(joint)) - 1e-9


@pytest.mark.parametrize("order", [0.3, 1 - 1e-6, 1.0, 1 + 1e-6, 2.0, math.inf])
def test_gradients_are_those_of_finite_differences(order):
    logits = float64([[0.2, -0.3, 1.0], [0.0, 0.5, -1.0]]).requires_grad_()

    def value(free):
        return arimoto_information(torch.softmax(free.flatten(), 0).reshape(2, 3), order)

    assert torch.autograd.gradcheck(value, (logits,), atol=1e-4, eps=1e-5)


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0])
def test_gradients_stay_finite_beside_impossible_cells(order):
    joint = float64([[0.5, 0.0, 0.0], [0.2, 0.3, 0.0]]).requires_grad_()
    arimoto_information(joint, order).backward()
    assert bool(torch.isfinite(joint.grad).all())


@pytest.mark.parametrize("order", [0.5, 1.0, 3.0, math.inf])
def test_a_batch_of_true_posteriors_has_the_tables_uncertainty(order):
    joint = float64([[0.1, 0.3], [0.4, 0.2]])
    posteriors = (joint / joint.sum(0)).T
    rows = posteriors.repeat_interleave(torch.tensor([5, 5]), 0).log()
    wanted = float(arimoto_conditional_entropy(joint, order))
    assert float(arimoto_uncertainty(rows, order)) == pytest.approx(wanted, abs=EXACT)


def test_single_precision_takes_the_limit_instead_of_rounding_errors():
    rows = torch.log_softmax(torch.randn(500, 4, generator=torch.Generator().manual_seed(1)), 1)
    shannon = float(arimoto_uncertainty(rows, 1.0))
    assert float(arimoto_uncertainty(rows, 1 + 5e-5)) == pytest.approx(shannon, abs=1e-3)


@pytest.mark.parametrize("order", [0.0, -1.0, math.nan])
def test_an_order_that_is_not_positive_is_refused(order):
    with pytest.raises(InformationError, match="must be above 0"):
        arimoto_information(float64([[0.5, 0.0], [0.0, 0.5]]), order)


def test_what_is_no_distribution_is_refused():
    with pytest.raises(InformationError, match="sums to 2"):
        mutual_information(float64([[1.0, 0.5], [0.5, 0.0]]))
    with pytest.raises(InformationError, match="below 0"):
        entropy(float64([1.5, -0.5]))
    with pytest.raises(InformationError, match="axes"):
        mutual_information(float64([0.5, 0.5]))
    with pytest.raises(InformationError, match="floor above 0"):
        gaussian_information_bound(torch.eye(2), torch.tensor([1.0, 0.0]))
    with pytest.raises(InformationError, match=r"\[d, d\]"):
        gaussian_information_bound(torch.eye(3), torch.ones(2))
