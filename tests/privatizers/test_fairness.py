"""Fairness figures are the reference's; k-NN estimates are near closed forms in few dimensions."""

from __future__ import annotations

import math

import pytest
import torch

from fedlens.privatizers.private_data import PrivateDataError
from fedlens_research.metrics.fairness import FairnessError, fairness
from fedlens_research.metrics.indices import ite_style_index, knn_divergence, knn_information


def test_the_reference_vector(privatizer_oracles) -> None:
    given = privatizer_oracles["fairness_example"]
    found = fairness(*(torch.tensor(given[name]) for name in ("yhat", "y", "s")))
    assert found.demographic_parity == given["delta_DemP"]
    assert found.equalized_odds_worst == given["fairlearn_equalized_odds_difference_worst"]
    assert found.equalized_odds_mean == given["fairlearn_equalized_odds_difference_mean"]
    assert found.equalized_odds_sum == given["cloak_delta_EO_sum_over_y"]


def test_figures_by_hand() -> None:
    """Group 0: truths 1,1,0,0 answered 1,1,1,0. Group 1: truths 1,1,0,0 answered 1,0,0,0."""
    truth = torch.tensor([1, 1, 0, 0, 1, 1, 0, 0])
    answers = torch.tensor([1, 1, 1, 0, 1, 0, 0, 0])
    group = torch.tensor([0, 0, 0, 0, 7, 7, 7, 7])
    found = fairness(answers, truth, group)
    assert found.demographic_parity == 0.5  # 3/4 against 1/4
    assert found.row() == {
        "demographic_parity": 0.5,
        "equalized_odds_worst": 0.5,
        "equalized_odds_mean": 0.5,
        "equalized_odds_sum": 1.0,
    }


def test_equal_treatment_is_0_and_opposite_is_1() -> None:
    truth = torch.tensor([0, 1, 0, 1])
    group = torch.tensor([0, 0, 1, 1])
    assert fairness(truth, truth, group).equalized_odds_sum == 0
    assert fairness(group, truth, group).demographic_parity == 1
    assert fairness(group, truth, group).equalized_odds_sum == 2


def test_of_many_classes_the_worst_counts() -> None:
    truth = torch.zeros(6, dtype=torch.int64)
    answers = torch.tensor([0, 1, 2, 2, 2, 2])
    group = torch.tensor([0, 0, 0, 1, 1, 1])
    assert fairness(answers, truth, group).demographic_parity == pytest.approx(2 / 3)


def test_groups_that_cannot_be_compared_are_refused() -> None:
    truth, group = torch.tensor([0, 1, 0]), torch.tensor([0, 0, 1])
    with pytest.raises(FairnessError, match="group 1 has no record"):
        fairness(truth, truth, group)
    with pytest.raises(FairnessError, match="one group"):
        fairness(truth, truth, torch.zeros(3, dtype=torch.int64))
    with pytest.raises(FairnessError, match="as many"):
        fairness(truth, truth[:2], group)


def test_the_divergence_of_two_gaussians() -> None:
    source = torch.Generator().manual_seed(0)
    one, two = (torch.randn(3000, 2, generator=source).double() for _ in range(2))
    assert knn_divergence(one + torch.tensor([1.0, 0.0]), two) == pytest.approx(0.5, abs=0.1)
    assert knn_divergence(one, two) == pytest.approx(0.0, abs=0.05)


def test_the_information_of_correlated_gaussians() -> None:
    source = torch.Generator().manual_seed(0)
    x, z = (torch.randn(4000, 1, generator=source) for _ in range(2))
    rho = 0.8
    known = -0.5 * math.log(1 - rho**2)
    found = knn_information(x, rho * x + math.sqrt(1 - rho**2) * z, seed=0)
    assert found == pytest.approx(known, abs=0.1)


def test_the_index_is_0_of_the_records_and_1_of_noise() -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 1, 3, 3, generator=source)
    assert ite_style_index(x, x, seed=0).loss == 0
    noise = ite_style_index(x, torch.randn(1000, 1, 3, 3, generator=source), seed=0)
    assert 0.9 < noise.loss < 1.1
    assert noise.records == 1000
    grey, other = torch.randn(2, 400, 1, 3, 3, generator=source).unbind(0)
    colour = ite_style_index(torch.cat([grey, other], 1), torch.cat([grey, grey], 1), seed=0)
    each = [ite_style_index(raw, grey, seed=0).information for raw in (grey, other)]
    assert colour.information == pytest.approx(sum(each) / 2), "a mean over the channels"
    with pytest.raises(PrivateDataError, match="at least 20"):
        ite_style_index(x[:10], x[:10], seed=0)
