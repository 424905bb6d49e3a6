"""Noise that near records share: its law, what it lets through of near ones, what is counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedlens.privatizers.certificate import (
    Releases,
    best_accuracy,
    certified,
    nats_beside_known,
    nats_of_burst,
    worst_case_epsilon,
)
from fedlens.privatizers.networks.information import InformationError, gaussian_capacity, radius_of
from fedlens.privatizers.noise_field import LENGTH, OWN, NoiseField, draw_near_noise

SIZE = 4
RADIUS = radius_of(3.0, SIZE)


def records(n: int) -> torch.Tensor:
    return torch.rand(n, 6, generator=torch.Generator().manual_seed(3))


def key(number: int) -> bytes:
    return number.to_bytes(32, "big")


def ladder(distances: list[float]) -> torch.Tensor:
    """Codes at these distances from the first, each in a direction of its own."""
    source = torch.Generator().manual_seed(1)
    found = torch.zeros(len(distances) + 1, SIZE)
    for row, distance in enumerate(distances, 1):
        direction = torch.randn(SIZE, generator=source)
        found[row] = distance * direction / direction.norm()
    return found


@pytest.fixture(scope="module")
def many() -> np.ndarray:
    """Noise of 1,500 devices at codes near and far, [devices, codes, k]."""
    codes = ladder([1e-4, 0.1, 1.0, 8.0])
    return np.stack(
        [NoiseField(key(one), SIZE).noise(codes, records(5)).numpy() for one in range(1500)]
    )


def test_over_devices_the_noise_is_standard_normal_at_each_code(many: np.ndarray) -> None:
    count = many.shape[0] * SIZE
    assert abs(many.mean((0, 2))).max() < 5 / math.sqrt(count)
    assert abs((many**2).mean((0, 2)) - 1).max() < 5 * math.sqrt(2 / count)
    assert abs((many**4).mean((0, 2)) - 3).max() < 5 * math.sqrt(96 / count)
    coordinates = np.cov(many[:, 0].T) - np.eye(SIZE)
    assert abs(coordinates).max() < 5 * math.sqrt(2 / len(many))


def test_noises_of_two_codes_are_the_more_alike_the_nearer_they_are(many: np.ndarray) -> None:
    found = (many[:, :1] * many).mean((0, 2))[1:]
    wanted = (1 - OWN) * np.exp(-np.array([1e-4, 0.1, 1.0, 8.0]) / LENGTH)
    assert abs(found - wanted).max() < 5 * math.sqrt(2 / (1500 * SIZE))


@pytest.mark.law("7: a filter's certificate holds by construction")
def test_ten_near_records_average_to_no_less_noise_than_one(many: np.ndarray) -> None:
    codes, near = torch.full((1, SIZE), 0.5), records(10)
    means = [
        NoiseField(key(one), SIZE).noise(codes.repeat(10, 1), near).mean(0) for one in range(600)
    ]
    left = float((torch.stack(means) ** 2).mean())
    assert left == pytest.approx(1, abs=5 * math.sqrt(2 / (600 * SIZE)))


def test_equal_records_have_one_noise_and_other_records_at_one_code_their_own() -> None:
    noise = NoiseField(key(1), SIZE).noise(torch.zeros(3, SIZE), records(2)[[0, 0, 1]])
    assert torch.equal(noise[0], noise[1]) and not torch.equal(noise[0], noise[2])
    assert not torch.equal(noise, NoiseField(key(2), SIZE).noise(torch.zeros(3, SIZE), records(3)))


def test_a_fields_own_correlations_are_those_of_its_noise() -> None:
    """Given its frequencies, over heights: the certificate counts with these."""
    codes, field = ladder([0.2, 1.5]), NoiseField(key(5), SIZE)
    source, drawn = np.random.default_rng(0), []
    for _ in range(3000):
        field._cosines, field._sines = source.normal(size=(2, *field._cosines.shape))
        drawn.append(field._shared(codes.double().numpy()))
    found = np.einsum("nak,nbk->ab", *[np.stack(drawn)] * 2) / (3000 * SIZE)
    wanted = field.correlations(codes.double().numpy())
    off = ~np.eye(3, dtype=bool)
    assert abs(((1 - OWN) * found - wanted)[off]).max() < 5 * math.sqrt(2 / (3000 * SIZE))


def test_the_simulated_noise_has_the_law_of_the_devices(many: np.ndarray) -> None:
    codes = ladder([1e-4, 0.1, 1.0, 8.0]).expand(1500, 5, SIZE)
    drawn = draw_near_noise(codes, torch.Generator().manual_seed(2)).numpy()
    one, two = (np.einsum("nak,nbk->ab", x, x) / (1500 * SIZE) for x in (drawn, many))
    assert abs(one - two).max() < 7 * math.sqrt(2 / (1500 * SIZE))


# What is counted.


def told(codes: np.ndarray, near: np.ndarray) -> Releases:
    found = Releases(RADIUS, SIZE)
    for row, code in enumerate(codes):
        found.add(code, near[row, :row])
    return found


def exponential(codes: np.ndarray) -> np.ndarray:
    apart = np.linalg.norm(codes[:, None] - codes[None], axis=2)
    return (1 - OWN) * np.exp(-apart / LENGTH) + OWN * np.eye(len(codes))


def test_one_release_costs_its_capacity_and_far_ones_as_much_each() -> None:
    whole, far = gaussian_capacity(RADIUS, SIZE), np.eye(SIZE) * 100
    assert told(far[:1], np.eye(1)).nats == pytest.approx(whole)
    assert told(far, np.eye(SIZE)).nats == pytest.approx(SIZE * whole)


@pytest.mark.parametrize("spread", [1e-4, 0.05, 0.5, 2.0])
def test_the_count_is_above_the_information_of_gaussian_codes(spread: float) -> None:
    """A burst at a place drawn from the whole ball: there the information is a log-determinant."""
    source = np.random.default_rng(7)
    codes = source.normal(size=(6, SIZE)) * spread / math.sqrt(2 * SIZE)
    codes -= codes[0]
    near = exponential(codes)
    # the codes are g + u_i, g normal with E|g|² = r² and u_i known: only g is told
    ones = np.ones(6)
    gained = ones @ np.linalg.solve(near, ones) * RADIUS**2 / SIZE
    assert told(codes, near).nats >= SIZE / 2 * math.log1p(gained) - 1e-9


def test_a_burst_of_fifty_tells_little_more_than_one_picture() -> None:
    whole = gaussian_capacity(4.8, 10)
    assert whole < nats_of_burst(4.8, 10, 50, 0.001) < 1.01 * whole
    assert nats_of_burst(4.8, 10, 10, 50.0) == pytest.approx(10 * whole)
    growing = [nats_of_burst(4.8, 10, 10, spread) for spread in (0.01, 0.1, 1.0, 10.0)]
    assert growing == sorted(growing)


def test_a_count_that_goes_on_is_the_count_in_one_go() -> None:
    codes = np.random.default_rng(2).normal(size=(7, SIZE))
    near = exponential(codes)
    whole, first = told(codes, near), told(codes[:4], near[:4, :4])
    later = Releases.after(RADIUS, first.codes, near[:4, :4], first.nats)
    for row in range(4, 7):
        later.add(codes[row], near[row, :row])
    assert later.nats == pytest.approx(whole.nats)


def test_who_knows_a_near_record_reads_more() -> None:
    whole = gaussian_capacity(RADIUS, SIZE)
    assert nats_beside_known(RADIUS, SIZE, 50.0) == pytest.approx(whole)
    assert nats_beside_known(RADIUS, SIZE, 0.1) > 1.5 * whole


# What nats mean.


@pytest.mark.parametrize(("nats", "most"), [(0.0, 0.5), (0.01, 0.5705), (0.6931472, 1.0), (6, 1.0)])
def test_a_coin_is_named_no_oftener_than_nats_allow(nats: float, most: float) -> None:
    """1 − h⁻¹(1 − I/ln 2): of a fair coin both bounds are Fano's; .5705 is from its table."""
    assert best_accuracy(nats, [0.5, 0.5]) == pytest.approx(most, abs=2e-4)


def test_no_channel_beats_the_bound() -> None:
    """Random joint tables: the best guess, against what their own information allows."""
    source = np.random.default_rng(0)
    for _ in range(300):
        table = source.dirichlet(np.full(12, 0.4)).reshape(3, 4) + 1e-12
        table /= table.sum()
        prior, seen = table.sum(1), table.sum(0)
        nats = float((table * np.log(table / np.outer(prior, seen))).sum())
        assert table.max(0).sum() <= best_accuracy(max(0.0, nats), prior) + 1e-9


def test_a_persons_certificate_says_where_it_forbids_nothing() -> None:
    record, burst, person = certified(radius_of(2.0, 10), 10, [0.01] * 100)
    assert record.nats == pytest.approx(2.0) and person.nats == pytest.approx(20.0)
    assert record.nats < burst.nats < 1.2 * record.nats
    assert record.secret is not None and 0.1 < record.secret < 1
    assert person.secret == 1.0 and person.person == 1.0, "20 nats are more than either has"
    assert certified(1.0, 4)[0].secret is None
    assert burst.worst is None and person.worst is None
    assert record.worst is not None and record.nats < record.worst, "an average is below it"


def test_shares_that_are_none_are_refused() -> None:
    for nats, shares in ((-1.0, [0.5, 0.5]), (1.0, [1.0]), (1.0, [0.5, 0.2])):
        with pytest.raises(InformationError, match="add up to 1"):
            best_accuracy(nats, shares)


def test_the_worst_case_is_the_gaussian_mechanisms() -> None:
    # σ = 1, sensitivity 1
    assert worst_case_epsilon(0.5, delta=1e-5) == pytest.approx(4.377, abs=5e-3)
