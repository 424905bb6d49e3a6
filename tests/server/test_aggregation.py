"""The server trusts no reply, and noises a sum once."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fedlens.accountant.noise import FixedSeedRefused, gaussian, private_source
from fedlens.client.messages import TrainReply
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.trimming import Trimming
from fedlens.server.round.aggregation import (
    ONE_USER,
    Answer,
    BoundedSum,
    Limits,
    combine,
    noised_mean,
)

SIZE, BINS, CLIP = 6, 64, 0.5
LIMITS = Limits(size=SIZE, norm=CLIP, evidence=True)


def answer(node=0, asked=2, total=None, norms=None):
    counts = np.zeros(BINS, dtype=np.int64)
    counts[-1] = asked
    total = np.full(SIZE, 0.01) if total is None else np.asarray(total, dtype=np.float64)
    return Answer(node, asked, TrainReply(total, counts if norms is None else norms))


@pytest.mark.law("6: the order of answers changes nothing")
def test_sound_replies_are_added_up_in_the_order_of_the_nodes():
    answers = [answer(1, total=np.full(SIZE, 0.2)), answer(0, total=np.full(SIZE, 0.1))]
    aggregate = combine(answers, LIMITS)
    assert aggregate.total.values.tolist() == pytest.approx([0.3] * SIZE)
    assert aggregate.norms[-1] == 4 and aggregate.refused == ()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (answer(1, total=np.zeros(SIZE + 1)), "shape"),
        (answer(1, total=np.zeros((SIZE, 1))), "shape"),
        (answer(1, total=[np.nan] * SIZE), "not finite"),
        (answer(1, total=[np.inf] * SIZE), "not finite"),
        (answer(1, total=[1e300] * SIZE), "not finite|norm"),
        (answer(1, asked=2, total=[1.0001, 0, 0, 0, 0, 0]), "above what clipped"),
        (answer(1, norms=np.full(BINS, -1)), "histogram"),
        (answer(1, norms=np.ones(BINS, dtype=np.int64)), "histogram"),
        (answer(1, norms=np.array([2])), "histogram"),
        (answer(1, norms=np.array([2**62] * 4 + [2] + [0] * 59)), "histogram"),
        (
            answer(1, total=[1.0, 0, 0, 0, 0, 0], norms=np.eye(1, BINS, dtype=np.int64)[0] * 2),
            "understates",
        ),
    ],
)
@pytest.mark.law("1: the server checks every reply")
def test_an_unsound_reply_is_left_out_whole_and_named_without_values(bad, reason):
    with np.errstate(over="ignore", invalid="ignore"):
        aggregate = combine([answer(0), bad], LIMITS)
    assert aggregate.total.values.tolist() == pytest.approx([0.01] * SIZE)
    assert aggregate.norms.sum() == 2
    ((node, said),) = aggregate.refused
    assert node == 1 and any(word in said for word in reason.split("|"))
    assert not any(
        character.isdigit() for character in said.replace(f"[{SIZE}]", "").replace(f"[{BINS}]", "")
    )


def test_a_sum_at_its_bound_is_accepted():
    total, norms = np.zeros(SIZE), np.zeros(BINS, dtype=np.int64)
    total[0], norms[-1] = 2 * CLIP, 2
    assert combine([answer(total=total, norms=norms)], LIMITS).refused == ()


def test_in_record_mode_a_change_beyond_the_weight_limits_is_refused():
    limits = Limits(size=SIZE, norm=3.0, evidence=False)
    empty = np.zeros(0, dtype=np.int64)
    huge = [
        answer(1, total=[1e100] * SIZE, norms=empty),
        answer(2, total=[1e308] * SIZE, norms=empty),
    ]
    sound = answer(0, total=np.full(SIZE, 1.0), norms=empty)
    aggregate = combine([sound, *huge], limits)
    assert aggregate.total.values.tolist() == [1.0] * SIZE
    assert [node for node, _ in aggregate.refused] == [1, 2]


def test_a_round_without_users_gives_zeros_that_are_noised_all_the_same():
    aggregate = combine([], Limits(4000, CLIP, evidence=True))
    assert not aggregate.total.values.any()
    release = noised_mean(
        aggregate.total,
        noise_multiplier=2.0,
        denominator=10.0,
        source=private_source(-1),
    )
    assert stats.kstest(release / (2.0 * CLIP / 10.0), "norm").pvalue > 1e-6


@pytest.mark.parametrize("sensitivity", [0.5, 2.0])
def test_noise_is_scaled_to_the_sensitivity_that_came_with_the_sum(sensitivity):
    total = BoundedSum(np.zeros(4000), sensitivity, ONE_USER)
    release = noised_mean(total, noise_multiplier=2.0, denominator=10.0, source=private_source(-1))
    assert stats.kstest(release / (2.0 * sensitivity / 10.0), "norm").pvalue > 1e-6


def test_a_sum_carries_the_bound_that_was_checked():
    assert combine([answer(0)], LIMITS).total.sensitivity == CLIP
    trimming = Trimming(2, 100, CLIP)
    enrolled = [replace(answer(node), enrolled=2) for node in range(5)]
    trimmed = combine(enrolled, LIMITS, trimming).total
    assert trimmed.sensitivity == trimming.sensitivity(SIZE) > CLIP


def test_what_nodes_noised_themselves_is_not_noised_again():
    limits = Limits(size=SIZE, norm=3.0, evidence=False)
    noised = combine([answer(0, norms=np.zeros(0, dtype=np.int64))], limits).total
    for z in (0.0, 1.0):
        with pytest.raises(WrongUse, match="takes no noise"):
            noised_mean(noised, noise_multiplier=z, denominator=1.0, source=private_source(-1))


@pytest.mark.law("1: the noise is exact, secret and drawn once")
def test_noise_is_gaussian_with_standard_deviation_z_times_c():
    noise = gaussian(1_000_000, noise_multiplier=3.0, sensitivity=0.5, source=private_source(-1))
    scaled = (noise / 1.5) ** 2
    # chi-square with 10^6 degrees of freedom: relative deviation of the variance is .14 %
    assert scaled.mean() == pytest.approx(1, abs=0.009)
    assert abs(noise.mean()) < 0.009


def test_no_two_draws_from_the_operating_system_are_equal_and_fixed_ones_are():
    draw = lambda *purpose: private_source(*purpose).words(4).tolist()  # noqa: E731
    assert draw(-1, 1) != draw(-1, 1)
    assert draw(3, 1) == draw(3, 1)
    assert draw(3, 1) != draw(3, 2) != draw(4, 1)


def test_a_fixed_seed_is_refused_outside_tests(monkeypatch):
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(FixedSeedRefused, match="tests only"):
        private_source(1)


@pytest.mark.law("1: sums are exact")
def test_what_one_node_sends_cannot_change_how_anothers_sum_is_rounded():
    """A reply that is off the lattice, as only another's can be, adds up exactly all the same."""
    source = np.random.default_rng(0)
    users = [np.rint(source.normal(size=SIZE) * 2**25) * 2.0**-31 for _ in range(2)]
    odd = answer(1, total=source.normal(size=SIZE) * 0.1)
    both, one = (
        combine([answer(0, total=total), odd], LIMITS).total.values
        for total in (sum(users), users[0])
    )
    assert np.array_equal(both - one, users[1])


def test_the_release_is_on_a_lattice_that_no_data_decides():
    step = 2.0**-37  # of C = 0.5: 2^36 steps
    for total in (np.zeros(500), np.full(500, 1 / 3), np.full(500, -1e-7)):
        release = noised_mean(
            BoundedSum(total, CLIP, ONE_USER),
            noise_multiplier=2.0,
            denominator=1.0,
            source=private_source(-1),
        )
        assert (np.fmod(release, step) == 0).all()


@pytest.mark.law("1: the denominator is fixed")
def test_the_denominator_is_not_the_number_of_replies():
    few = combine([answer(0)], LIMITS)
    release = noised_mean(
        few.total,
        noise_multiplier=0,
        denominator=50.0,
        source=private_source(-1),
    )
    assert release.tolist() == pytest.approx([0.01 / 50] * SIZE)
