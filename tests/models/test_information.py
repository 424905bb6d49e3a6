"""Closed forms against the oracle file and against each other."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.privatizers.networks.information import (
    InformationError,
    entropy,
    gaussian_information_bound,
    mutual_information,
)

EXACT = 1e-9


def float64(table):
    return torch.tensor(table, dtype=torch.float64)


def test_the_gaussian_bound_is_the_correct_one_not_the_printed_one(privatizer_oracles):
    case = privatizer_oracles["cloak"]
    bound = gaussian_information_bound(torch.diag(float64(case["lambda"])), float64(case["sigma"]))
    assert float(bound) == pytest.approx(case["gaussian_MI_bound_correct_nats"], abs=EXACT)
    assert float(bound) < case["eq5_as_printed_nats"] - 4


def test_the_gaussian_bound_holds_for_covariances_that_do_not_commute_with_the_noise():
    covariance = float64([[2.0, 0.9], [0.9, 1.0]])
    sigma = float64([0.5, 2.0])
    direct = torch.logdet(covariance + torch.diag(sigma**2)) - torch.log(sigma**2).sum()
    assert float(gaussian_information_bound(covariance, sigma)) == pytest.approx(float(direct) / 2)


def test_erasure_meets_the_least_sum_only_where_the_oracle_says(privatizer_oracles):
    for name, case in privatizer_oracles["erasure_mechanism"].items():
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


def test_perfect_privacy_costs_what_the_oracle_says(privatizer_oracles):
    """The utility is told with probability k, so that no answer favours a sensitive attribute; the
    rest is lost."""
    cases = privatizer_oracles["gmm_perfect_privacy_closed_form"]
    for k in (0.0, 0.4, 1.0):
        joint = mixture(k)
        told = torch.zeros(2, 2, 3, dtype=torch.float64)  # [u, s, q], q = u or lost
        for utility in range(2):
            told[utility, :, utility] = k / 4
        told[:, :, 2] = joint - told[:, :, :2].sum(2)
        assert float(mutual_information(told.sum(0))) == pytest.approx(0, abs=EXACT)
        lost = float(entropy(joint.sum(1)) - mutual_information(told.sum(1)))
        assert lost == pytest.approx(cases[f"k={k:g}"], abs=EXACT)
    searched = privatizer_oracles["unrestricted_discrete_optimum"]["k=0.4,perfect_privacy_minA"]
    assert searched["A"] == pytest.approx(cases["k=0.4"], abs=1e-4)  # a search, and no closed form


def test_the_papers_theorem_is_false_and_ours_is_not(privatizer_oracles):
    case = privatizer_oracles["theorem33_counterexample_k0.4"]["optimum"]["0.1"]
    least = float(mutual_information(mixture(0.4)))
    assert case["A"] < 0.1 * least  # an achieved point that Theorem 3.3 forbids
    assert case["A"] + case["B"] >= least
    assert 0.9 * case["A"] ** 2 + 0.1 * case["B"] ** 2 >= 0.1 * 0.9 * least**2


def mixture(k):
    return float64([[k, 2 - k], [2 - k, k]]) / 4


def tables(rows, columns):
    entry = st.floats(0, 1, allow_subnormal=False)
    cells = st.lists(entry, min_size=rows * columns, max_size=rows * columns)
    return cells.filter(lambda values: sum(values) > 0.1).map(
        lambda values: float64(values).reshape(rows, columns) / sum(values)
    )


@settings(max_examples=60, deadline=None)
@given(tables(3, 4))
def test_information_is_never_negative_and_never_above_the_entropy(joint):
    told = float(mutual_information(joint))
    assert -1e-9 <= told <= float(entropy(joint.sum(1))) + 1e-9


def test_gradients_are_those_of_finite_differences():
    logits = float64([[0.2, -0.3, 1.0], [0.0, 0.5, -1.0]]).requires_grad_()

    def value(free):
        return mutual_information(torch.softmax(free.flatten(), 0).reshape(2, 3))

    assert torch.autograd.gradcheck(value, (logits,), atol=1e-4, eps=1e-5)


def test_gradients_stay_finite_beside_impossible_cells():
    joint = float64([[0.5, 0.0, 0.0], [0.2, 0.3, 0.0]]).requires_grad_()
    mutual_information(joint).backward()
    assert bool(torch.isfinite(joint.grad).all())


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
