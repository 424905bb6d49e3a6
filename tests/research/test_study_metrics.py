"""Distances and covers against what they are in closed form or by hand."""

import math

import pytest
import torch

from fedlens_research.metrics.generation import coverage_and_density, frechet_distance


def normals(count, dim, seed, scale=1.0, shift=0.0):
    return torch.randn(count, dim, generator=torch.Generator().manual_seed(seed)) * scale + shift


def whitened(points):
    """Points of exactly zero mean and unit covariance."""
    centred = (points - points.mean(0)).double()
    factor = torch.linalg.cholesky(centred.mT @ centred / (len(points) - 1))
    return torch.linalg.solve_triangular(factor, centred.mT, upper=False).mT


def test_frechet_of_two_gaussians_is_its_closed_form():
    """With commuting covariances: |μ - ν|² + Σ (σᵢ - τᵢ)²."""
    points = whitened(normals(500, 3, 0))
    sigma, tau = torch.tensor([1.0, 2.0, 0.5]), torch.tensor([3.0, 2.0, 0.0])
    gap = torch.tensor([1.0, -2.0, 0.5])
    found = frechet_distance(points * sigma, points * tau + gap)
    assert found == pytest.approx(5.25 + 4 + 0.25, rel=1e-6)


def test_frechet_of_covariances_that_do_not_commute():
    """tr (A B)^½ of 2 x 2 matrices is √(tr AB + 2 √det AB)."""
    points = whitened(normals(500, 2, 1))
    one = torch.tensor([[2.0, 0.0], [1.0, 1.0]]).double()
    two = torch.tensor([[1.0, -1.5], [0.0, 0.5]]).double()
    a, b = one @ one.mT, two @ two.mT
    shared = math.sqrt(float((a @ b).trace()) + 2 * math.sqrt(float(torch.linalg.det(a @ b))))
    expected = float(a.trace() + b.trace()) - 2 * shared
    assert frechet_distance(points @ one.mT, points @ two.mT) == pytest.approx(expected, rel=1e-9)


def test_frechet_is_a_symmetric_distance_of_distributions():
    one, two = normals(300, 5, 2), normals(400, 5, 3, 1.4, 0.2)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(one, one[torch.randperm(300)]) == pytest.approx(0, abs=1e-9)
    assert frechet_distance(one, two) == pytest.approx(frechet_distance(two, one), rel=1e-9)
    assert frechet_distance(one, two + 1) > frechet_distance(one, two) > 0


def test_cover_of_a_set_made_by_hand():
    """Real points 0, 1, 3 on a line; with k = 1 they reach 1, 1 and 2."""
    real = torch.tensor([[0.0], [1.0], [3.0]])
    synthetic = torch.tensor([[0.5], [1.5], [9.0]])
    coverage, density = coverage_and_density(real, synthetic, k=1)
    assert coverage == 1.0  # the third reaches 1.5
    assert density == pytest.approx((2 + 2 + 0) / 3)  # 0.5 lies in two balls, 1.5 in two, 9 in none
    coverage, density = coverage_and_density(real, synthetic[2:], k=1)
    assert coverage == 0 and density == 0
    coverage, density = coverage_and_density(real, torch.tensor([[5.0]]), k=1)
    assert coverage == pytest.approx(1 / 3) and density == 1  # a ball holds its border


def test_the_same_distribution_is_covered_and_one_point_of_it_is_not():
    real, same = normals(1500, 4, 4), normals(1500, 4, 5)
    coverage, density = coverage_and_density(real, same)
    # of k neighbours of m = n points a ball is missed with probability 2^-k (Naeem et al. 2020)
    assert coverage == pytest.approx(1 - 2**-5, abs=0.02) and density == pytest.approx(1, abs=0.1)
    middle = torch.zeros(1500, 4)
    coverage, density = coverage_and_density(real, middle)
    assert coverage < 0.2 and density > 0.5, "collapsed samples are dense and cover little"


def test_images_at_the_edge_of_a_ball_are_in_it_far_from_the_origin_too():
    """Copies of real images lie exactly at the edge of k balls each, or at their middle."""
    real = normals(400, 8, 8)
    for moved in (real, real + 1000):
        coverage, density = coverage_and_density(moved, moved.clone())
        assert coverage == 1 and density == pytest.approx((5 + 1) / 5), "k neighbours and itself"


def test_covers_do_not_depend_on_how_many_are_computed_at_once(monkeypatch):
    real, synthetic = normals(50, 3, 6), normals(40, 3, 7)
    whole = coverage_and_density(real, synthetic)
    monkeypatch.setattr("fedlens_research.metrics.generation.CHUNK", 7)
    assert coverage_and_density(real, synthetic) == pytest.approx(whole)


def test_what_all_images_have_in_common_changes_no_cover():
    """Beside a large offset distances are small differences of large squares."""
    source = torch.Generator().manual_seed(4)
    real, synthetic = torch.randn(2, 400, 20, generator=source, dtype=torch.float64)
    plain = coverage_and_density(real, synthetic)
    assert coverage_and_density(real * 1e-4 + 100, synthetic * 1e-4 + 100) == pytest.approx(plain)


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (lambda: frechet_distance(torch.zeros(1, 2), torch.zeros(3, 2)), "real features"),
        (lambda: frechet_distance(torch.zeros(3, 2), torch.zeros(3, 4)), "2 dimensions"),
        (lambda: coverage_and_density(torch.zeros(5, 2), torch.zeros(3, 2)), "5 real"),
        (lambda: coverage_and_density(torch.zeros(9, 2), torch.zeros(0, 2)), "0 synthetic"),
    ],
)
def test_too_few_features_are_refused(measure, said):
    with pytest.raises(ValueError, match=said):
        measure()
