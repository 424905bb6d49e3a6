"""Privacy noise: exactly distributed, on a lattice, from sound bits that never come again."""

from __future__ import annotations

import math
import os
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from fedlens.accountant.noise import (
    NoiseUnsound,
    add_noise,
    chosen,
    decisions,
    gaussian,
    health,
    lattice,
    most_chosen,
    normal,
    pitch,
    private_source,
)
from fedlens.accountant.noise import bits as bits_module
from fedlens.accountant.noise.bits import FixedBits, SystemBits
from fedlens.foundation.errors import WrongUse

CLIP = 0.3


class Queue:
    """Words handed out in the order given, and zeros after these."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> np.ndarray:
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken + [0] * (count - len(taken)), dtype=np.uint64)


def words_of(number: int, length: int) -> list[int]:
    return [number >> at & (2**64 - 1) for at in range(length - 64, -1, -64)]


@pytest.mark.parametrize("scale", [1, 2, 3, 10])
@pytest.mark.law("1: the noise is exact, secret and drawn once")
def test_small_scales_have_the_exact_probabilities(scale):
    draws = normal.rounded_normal(400_000, scale, FixedBits(scale))
    reach = np.arange(-4 * scale, 4 * scale + 1)
    inner = stats.norm.cdf((reach + 0.5) / scale) - stats.norm.cdf((reach - 0.5) / scale)
    counts = np.array([(draws == j).sum() for j in reach])
    expected = np.append(inner, 1 - inner.sum()) * len(draws)
    found = np.append(counts, len(draws) - counts.sum())
    kept = expected > 5
    statistic = ((found - expected)[kept] ** 2 / expected[kept]).sum()
    assert stats.chi2.sf(statistic, kept.sum() - 1) > 1e-4


@pytest.mark.parametrize("scale", [2**36, 2**36 + 12345, 3 * 2**40 + 7, 2**52])
def test_large_scales_are_normal_up_to_high_moments_and_far_tails(scale):
    draws = normal.rounded_normal(500_000, scale, FixedBits(scale)) / scale
    assert stats.kstest(draws, "norm").pvalue > 1e-4
    for order, exact in ((2, 1), (4, 3), (6, 15), (8, 105)):
        spread = math.sqrt(math.prod(range(1, 2 * order, 2)) - exact**2)  # of X^order
        assert abs((draws**order).mean() - exact) < 5 * spread / math.sqrt(len(draws))
    for far in (2, 3, 4):
        expected = 2 * stats.norm.sf(far) * len(draws)
        assert abs((abs(draws) > far).sum() - expected) < 5 * math.sqrt(expected)


@pytest.mark.parametrize("k", range(8))
def test_each_unit_of_the_tail_has_the_share_and_the_shape_of_the_normal_law(k):
    edges = [0.0, *(float(edge) / 2.0**64 for edge in normal._BELOW[:-1])]
    heights = np.exp(-(np.arange(40) ** 2) / 2)
    assert edges[k + 1] - edges[k] == pytest.approx(heights[k] / heights.sum(), rel=1e-3 * 3**k / 9)
    source, count, places = FixedBits(k), 60_000, normal._Places.of(2**41)
    words = source.words(3 * count)
    words[:count] = int(normal._BELOW[k]) - 5  # a word of this cell
    found = np.abs(normal._kept(words, places, source)) / 2.0**40
    law = stats.truncnorm(k, k + 1)
    assert len(found) > count / 20 and stats.kstest(found, law.cdf).pvalue > 1e-4


def test_what_floats_decide_is_what_exact_arithmetic_decides():
    words, places = FixedBits(1).words(3 * 3000), normal._Places.of(2**37 + 3)
    fast = normal._kept(words, places, FixedBits(2))
    exact = normal._kept(words, places, FixedBits(2), doubt=2.0)  # no comparison left to floats
    assert np.array_equal(fast, exact)


@pytest.mark.parametrize("k", [1, 3, 9, 12])
def test_a_word_at_the_border_of_two_cells_is_told_by_further_bits(k):
    with localcontext() as context:
        context.prec = 200
        border = int(decisions.shares_below(k, 200)[k] * 2**448)
    for shift, cell in ((-1, k - 1), (1, k)):
        first, *more = words_of(border + shift, 448)
        assert decisions.cell(first, Queue(*more)) == cell
        if k < 10:
            assert normal.cells_of(np.array([first], dtype=np.uint64), Queue(*more)) == [cell]


def test_a_chance_at_the_border_of_acceptance_is_told_by_further_bits():
    k, place, places = 2, 3**38, 2**62
    with localcontext() as context:
        context.prec = 200
        inside = Decimal(place) / Decimal(places)
        border = int((-inside * (2 * k + inside) / 2).exp() * 2**256)
    for shift, accepted in ((-1, True), (1, False)):
        first, *more = words_of(border + shift, 256)
        spare = [word for one in more for word in (0, one)]  # F stays, V gets the border's bits
        assert decisions.accepted(k, place, places, first, Queue(*spare)) is accepted


def test_low_bits_are_uniform_whatever_the_sum():
    for total in (0.0, CLIP, -7.123 * CLIP):
        released = add_noise(
            np.full(200_000, total),
            noise_multiplier=1.0,
            sensitivity=CLIP,
            source=FixedBits(7),
        )
        low = (released / pitch(CLIP)).astype(np.int64) & 63
        assert stats.chisquare(np.bincount(low, minlength=64)).pvalue > 1e-4


def impossible_for(values: np.ndarray, total: float) -> int:
    """Values that tell that their sum was another: too fine to be float noise plus ``total``.

    Mironov's attack: y = fl(total + n) is a multiple of the spacing of floats at the larger of y
    and total (half of it where they nearly cancel).
    """
    coarse = np.spacing(np.maximum(np.abs(values), abs(total)) / 4)
    return int((np.fmod(values, coarse) != 0).sum())


@pytest.mark.law("1: the noise is exact, secret and drawn once")
def test_what_may_be_released_does_not_depend_on_the_sum():
    common = {"noise_multiplier": 1.0, "sensitivity": 1.0}
    without = add_noise(np.zeros(100_000), source=private_source(-1), **common)
    with_user = add_noise(np.full(100_000, 1.0), source=private_source(-1), **common)
    for released in (without, with_user):
        assert impossible_for(released, 1.0) == impossible_for(released, 0.0) == 0
        assert (np.fmod(released, pitch(1.0)) == 0).all()
    plain = np.random.default_rng(0).normal(0.0, 1.0, 100_000)  # noise as floats has them
    assert impossible_for(plain, 1.0) > 5000 and impossible_for(1.0 + plain, 1.0) == 0


@pytest.mark.parametrize("size", [1, 50, 7850])
@pytest.mark.law("1: the noise is exact, secret and drawn once")
def test_on_the_lattice_neighbours_are_no_further_apart_than_the_noise_is_for(size):
    source, step = np.random.default_rng(size), pitch(CLIP)
    allowed = lattice.sensitivity_in_pitches(CLIP, size)
    for _ in range(20):
        one = source.normal(size=size) * 10
        move = source.normal(size=size)
        worst = np.sign(move) * (0.5 - 1e-6)  # both ends just rounded away from each other
        one = (np.rint(one / step) - worst) * step
        other = one + CLIP * move / np.linalg.norm(move) + 2 * worst * step
        placed = [np.rint(values / step) for values in (one, other)]
        moved = np.linalg.norm(placed[1] - placed[0])
        assert moved <= allowed - lattice.FLOAT32_MARGIN
    assert CLIP / step <= allowed <= CLIP / step * (1 + 7e-5)


@pytest.mark.parametrize("z", [1e-3, 0.7, 5.2, 1000.0])
@pytest.mark.parametrize("clip", [1e-6, 0.3, 1.0, 123.4])
def test_the_noise_is_never_below_the_multiplier_times_the_sensitivity(z, clip):
    scale, units = (
        lattice.noise_scale(z, clip, 10_000),
        lattice.sensitivity_in_pitches(clip, 10_000),
    )
    assert scale >= Fraction(z) * units >= Fraction(z) * Fraction(clip) / Fraction(pitch(clip))
    assert scale <= z * clip / pitch(clip) * (1 + 7e-5) + 1
    assert 2**36 <= clip / pitch(clip) < 2**37 and math.log2(pitch(clip)).is_integer()


def test_noise_has_the_claimed_deviation():
    for z, clip in ((3.0, 0.5), (0.01, 7.0)):
        noise = gaussian(200_000, noise_multiplier=z, sensitivity=clip, source=private_source(-1))
        assert stats.kstest(noise / (z * clip), "norm").pvalue > 1e-6


@pytest.mark.parametrize(
    ("z", "clip"),
    [(1e6, 1.0), (math.inf, 1.0), (math.nan, 1.0), (-1.0, 1.0), (1.0, 0.0), (1.0, 1e300)],
)
def test_noise_that_integers_cannot_hold_is_refused(z, clip):
    with pytest.raises(WrongUse, match="give"):
        add_noise(np.zeros(3), noise_multiplier=z, sensitivity=clip, source=SystemBits())


@pytest.mark.law("1: the noise is exact, secret and drawn once")
def test_no_sum_makes_the_mechanism_fail_or_overflow():
    total = np.array([1e300, -1e300, math.inf, -math.inf, math.nan, 0.0])
    for z in (1.0, 30_000.0):
        out = add_noise(total, noise_multiplier=z, sensitivity=1.0, source=SystemBits())
        assert (out[[0, 2]] > 1e6).all() and (out[[1, 3]] < -1e6).all()
        assert np.isfinite(out).all() and abs(out[4:]).max() < 20 * z


def test_sums_on_the_lattice_add_up_without_rounding():
    source = np.random.default_rng(3)
    replies = [lattice.on_lattice(source.normal(size=100) * 50, CLIP) for _ in range(300)]
    whole = sum(replies)
    assert np.array_equal(whole, sum(replies[::-1]))
    assert np.array_equal(whole - replies[7], sum(replies[:7] + replies[8:]))


@pytest.mark.law("1: each user is drawn with probability q")
def test_a_cohort_is_drawn_with_the_probability_and_never_above_it():
    drawn = chosen(1_000_000, 0.3, FixedBits(1))
    assert stats.binomtest(len(drawn), 1_000_000, 0.3).pvalue > 1e-4
    assert (np.diff(drawn) > 0).all()
    assert len(chosen(9000, 1.0, Queue(*[2**64 - 1] * 9000))) == 9000
    assert len(chosen(9000, 0.0, Queue())) == 0
    threshold = int(Fraction(0.3) * 2**64)
    assert chosen(3, 0.3, Queue(threshold - 1, threshold, threshold + 1)).tolist() == [0]
    with pytest.raises(WrongUse, match="probability"):
        chosen(3, 1.5, SystemBits())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.law("2: noise never repeats")
def test_a_forked_process_draws_other_noise():
    source = private_source(-1)

    def draw() -> bytes:
        return gaussian(8, noise_multiplier=1.0, sensitivity=1.0, source=source).tobytes()

    mine, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, draw())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(mine, 64) != draw()
    os.close(mine), os.close(theirs)


def repeating(count: int) -> bytes:
    return (bytes(range(256)) * (count // 256 + 1))[:count]


def leaning(count: int) -> bytes:
    return bytes(a | b & 1 for a, b in zip(os.getrandom(count), os.getrandom(count), strict=True))


@pytest.mark.parametrize("broken", [bytes, repeating, leaning])
@pytest.mark.law("2: noise never repeats")
def test_a_broken_source_of_bits_is_refused_before_any_noise_is_drawn(monkeypatch, broken):
    health._test_process.cache_clear()
    monkeypatch.setattr(bits_module.os, "urandom", broken)
    with pytest.raises(NoiseUnsound, match="self-test of privacy noise failed"):
        private_source(-1)


def halved(draw):
    return lambda size, scale, bits: draw(size, scale, bits) // 2


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [
        (health, "rounded_normal", halved(normal.rounded_normal)),
        (normal, "_BELOW", normal._BELOW[1:]),
        (normal, "DOUBT", -1.0),
        (health, "chosen", lambda count, *_: np.arange(count)),
    ],
)
def test_an_installation_that_draws_something_else_is_refused(monkeypatch, where, name, broken):
    if name == "DOUBT":
        monkeypatch.setattr(np, "exp", lambda x: 1 + x)  # a wrong exponential
    else:
        monkeypatch.setattr(where, name, broken)
    health._test_process.cache_clear()
    with pytest.raises(NoiseUnsound, match="known bits"):
        private_source(-1)


def test_sound_bits_pass_and_are_tested_once_in_a_process(monkeypatch):
    health._test_process.cache_clear()
    private_source(-1)
    monkeypatch.setattr(health, "known_answers_fault", lambda: 1 / 0)
    private_source(-1)
    assert not any(health.bits_fault(SystemBits()) for _ in range(100))
    assert not any(health.noise_fault(SystemBits()) for _ in range(20))


@pytest.mark.parametrize("fault", ["constant", "alternating", "half"])
def test_noise_that_is_not_noise_is_found(monkeypatch, fault):
    def drawn(size, scale, bits):
        draws = normal.rounded_normal(size, scale, bits)
        made = {"constant": draws * 0 + scale, "alternating": np.sort(draws), "half": draws // 2}
        return made[fault]

    monkeypatch.setattr(health, "rounded_normal", drawn)
    assert "noise" in health.noise_fault(SystemBits())


@pytest.fixture(autouse=True)
def tested_anew():
    yield
    health._test_process.cache_clear()


@pytest.mark.parametrize(("count", "rate"), [(13, 0.1), (100, 0.1), (10_000, 0.01), (500, 1.0)])
def test_more_are_drawn_than_the_most_once_in_two_to_the_forty(count, rate):
    most = most_chosen(count, rate)
    assert stats.binom.sf(most, count, rate) <= 2.0**-40
    assert most <= count and most <= count * rate + 40 + 10 * math.sqrt(count * rate)


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_no_rate_outside_its_range_has_a_most(rate):
    with pytest.raises(WrongUse):
        most_chosen(10, rate)
