"""The audits' statistics: against oracle values, and against the laws that they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import binom, norm

from fedlens.accountant.audit import membership, one_run, one_shot
from fedlens.accountant.audit.finding import false_alarm_bound
from fedlens.accountant.audit.noise import SINGLE, between_releases, noise_test
from fedlens.accountant.audit.norms import norms_test
from fedlens.accountant.audit.path_verdicts import (
    clipping_finding,
    lost_finding,
    noise_finding,
    sampling_finding,
    shared_noise_finding,
)
from fedlens.accountant.audit.sampling import sampling_test
from fedlens.accountant.audit.verdicts import (
    Claim,
    choose_guesses,
    membership_finding,
    one_run_finding,
    one_shot_finding,
)
from fedlens.accountant.dp.profiles import gaussian_epsilon

PUBLISHED = [
    # canaries, guesses, correct, delta, lower bound at 95%: computed independently of this code
    (1000, 100, 75, 1e-4, 0.672985),
    (1000, 1000, 750, 1e-5, 0.976367),
    (1000, 100, 100, 1e-5, 3.465376),
    (500, 100, 99, 1e-5, 3.011111),
    (200, 40, 40, 1e-5, 2.548240),
    (1000, 200, 200, 0.0, 4.193630),
    (64, 64, 64, 1e-6, 3.038020),
    (1000, 100, 50, 1e-5, 0.0),
]


@pytest.mark.parametrize(("m", "r", "v", "delta", "bound"), PUBLISHED)
def test_one_run_bound_agrees_with_independent_values(m, r, v, delta, bound):
    found = one_run.lower_bound(canaries=m, guesses=r, correct=v, delta=delta)
    assert found == pytest.approx(bound, abs=1e-5)


def test_one_run_bound_agrees_with_the_oracle_file(oracles):
    values = oracles["audit"]["one_run_lower_bound_oracle"]
    assert len(values) >= 8
    for text, bound in values.items():
        given = dict(part.split("=") for part in text.split(","))
        found = one_run.lower_bound(
            canaries=int(given["m"]),
            guesses=int(given["r"]),
            correct=int(given["v"]),
            delta=float(given["delta"]),
            confidence=1 - float(given["p"]),
        )
        assert found == pytest.approx(bound, abs=1e-5), text


def test_one_run_p_value_without_delta_is_the_binomial_tail():
    rate = math.e / (1 + math.e)
    p = one_run.p_value(1.0, canaries=50, guesses=20, correct=18, delta=0.0)
    assert p == pytest.approx(float(binom.sf(17, 20, rate)), rel=1e-12)


def test_one_run_bound_rises_with_evidence_and_falls_with_caution():
    def bound(correct, delta=1e-6, confidence=0.95):
        return one_run.lower_bound(
            canaries=400, guesses=100, correct=correct, delta=delta, confidence=confidence
        )

    by_evidence = [bound(v) for v in range(50, 101, 5)]
    assert by_evidence == sorted(by_evidence) and by_evidence[0] == 0 < by_evidence[-1]
    assert bound(90, delta=1e-4) < bound(90, delta=1e-6) < bound(90, delta=0.0)
    assert bound(90, confidence=0.999) < bound(90, confidence=0.95)
    assert one_run.cap(canaries=400, guesses=100, delta=1e-6) == by_evidence[-1]


def test_one_run_bound_holds_for_randomised_response():
    """The mechanism that attains it: each coin is told rightly with probability e^ε/(1 + e^ε)."""
    source, epsilon, repeats = np.random.default_rng(1), 1.0, 1000
    right = source.binomial(100, math.e / (1 + math.e), repeats)
    bounds = {v: one_run.lower_bound(canaries=100, guesses=100, correct=int(v), delta=0.0)
              for v in np.unique(right)}  # fmt: skip
    above = sum(bounds[v] > epsilon for v in right)
    assert 0 < above <= binom.isf(1e-6, repeats, 0.05)


@pytest.mark.parametrize(
    ("canaries", "guesses", "correct"), [(10, 11, 5), (10, 6, 7), (10, 6, -1), (10, 0, 0)]
)
def test_one_run_bound_refuses_impossible_counts(canaries, guesses, correct):
    with pytest.raises(ValueError, match="guesses"):
        one_run.lower_bound(canaries=canaries, guesses=guesses, correct=correct, delta=1e-5)


def test_guesses_take_both_ends():
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    included = np.array([True, False, True, False, False, True])
    assert one_run.count_correct(scores, included, 2) == 1  # 5 is in: right; 0 is in: wrong
    assert one_run.count_correct(scores, included, 4) == 2
    with pytest.raises(ValueError, match="even"):
        one_run.count_correct(scores, included, 3)


@pytest.mark.parametrize("mu", [0.3, 0.5, 1.0, 3.0, 12.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-10])
def test_gaussian_epsilon_inverts_the_hockey_stick(mu, delta):
    epsilon = gaussian_epsilon(delta, mu)
    if epsilon == 0:
        assert 2 * norm.cdf(mu / 2) - 1 <= delta
        return

    def gap(x):
        return norm.pdf(x, mu) * -math.expm1(min(0.0, epsilon - mu * x + mu * mu / 2))

    cross = (epsilon + mu * mu / 2) / mu
    found = quad(gap, cross, cross + 40, points=[mu] if mu > cross else None, limit=200)[0]
    assert found == pytest.approx(delta, rel=1e-5)


def test_gaussian_epsilon_agrees_with_the_exact_values(oracles):
    plain = [row for row in oracles["subsampled_gaussian"] if row["q"] == 1]
    assert len(plain) >= 3
    for row in plain:
        mu = math.sqrt(row["T"]) / row["sigma"]
        found = gaussian_epsilon(row["delta"], mu)
        assert found == pytest.approx(row["exact"]["eps_exact"], abs=2e-6), row["id"]


def test_gaussian_epsilon_of_nothing_and_of_everything():
    assert gaussian_epsilon(1e-5, 0.0) == gaussian_epsilon(1e-5, -3.0) == 0
    assert gaussian_epsilon(1e-5, 1e4) > 4e7


def test_separation_covers_the_truth():
    source, inside, hit = np.random.default_rng(2), np.arange(200) < 100, 0
    for _ in range(400):
        scores = source.normal(0, 3, 200) + 3 * inside
        low, high = one_shot.separation(scores, inside).interval(0.95)
        hit += low <= 1.0 <= high
    assert binom.ppf(1e-4, 400, 0.95) <= hit <= binom.isf(1e-6, 400, 0.95)


def test_separation_needs_both_sides():
    with pytest.raises(ValueError, match="both sides"):
        one_shot.separation(np.zeros(5), np.ones(5, dtype=bool))


def noise(seed=0, shape=(6, 20_000)):
    return np.random.default_rng(seed).normal(size=shape)


def p_values(test):
    return (
        test.p_variance,
        test.p_mean,
        test.p_shape,
        test.p_releases,
        test.p_coordinates,
        test.p_rounds,
        test.p_neighbours,
    )


def test_noise_as_claimed_passes_and_its_p_values_are_fair():
    found = [noise_test(noise(seed, (4, 500))) for seed in range(300)]
    for values in zip(*map(p_values, found), strict=True):
        small = sum(p < 0.1 for p in values)
        assert small <= binom.isf(1e-5, 300, 0.1)
        assert min(values) > 1e-5
    assert all(test.repeats == 0 for test in found)


def test_variance_p_values_are_uniform():
    found = np.array([noise_test(noise(seed, (2, 50))).p_variance for seed in range(500)])
    assert abs((found < 0.5).mean() - 0.5) < 0.12 and abs((found < 0.05).mean() - 0.05) < 0.05


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (lambda x: 0.98 * x, "p_variance"),
        (lambda x: 1.02 * x, "p_variance"),
        (lambda x: 0 * x, "p_variance"),
        (lambda x: x + 0.03, "p_mean"),
        (lambda x: np.sqrt(3) * np.tanh(x) / np.sqrt(3 * np.mean(np.tanh(x) ** 2)), "p_shape"),
        (lambda x: np.concatenate([x[:1], x[:1], x[2:]]), "p_rounds"),
        (lambda x: np.concatenate([x[:1], -x[:1], x[2:]]), "p_rounds"),
        (lambda x: 0.8 * x + 0.6 * np.roll(x, 1, axis=1), "p_neighbours"),
    ],
    ids=["weak", "strong", "none", "shifted", "bent", "reused", "mirrored", "smeared"],
)
def test_spoiled_noise_is_caught(spoil, name):
    assert getattr(noise_test(spoil(noise())), name) < 1e-6


def spoiled(places, factor, shape=(20, 4000)):
    x = noise(1, shape)
    x[:, places] *= factor
    return noise_test(x)


@pytest.mark.parametrize(
    ("places", "factor", "said"),
    [
        ([17, 1203, 2999, 3998], 0.0, "coordinate "),
        ([17], 0.05, "coordinate 17"),
        (slice(128, 192), 0.5, "coordinates 128 to 191"),
        (slice(3, None, 7), 0.8, "every one of 7 coordinates, from 3 on"),
        (slice(0, 2000), 1.05, "coordinates 0 to 2047"),
        (np.random.default_rng(2).permutation(4000)[:200], 0.5, "many coordinates"),
    ],
    ids=["1 in 1000", "one", "block", "stripe", "half too large", "scattered"],
)
@pytest.mark.law("audits: every fault of the suite is found")
def test_noise_that_is_small_somewhere_is_found_and_named(places, factor, said):
    found = spoiled(places, factor)
    assert found.p_coordinates < 1e-6 and found.place.words.startswith(said)
    whole = noise_finding(found, claim=Claim(2.0, 1e-5), priced=lambda ratio: 2.0)
    assert whole.verdict == "alarm" and found.place.words in whole.words


def test_a_release_without_noise_is_found_among_others():
    x = noise(3, (20, 300))
    x[7] = 0.0
    assert noise_test(x).p_releases < 1e-6


def test_noise_on_a_lattice_is_no_alarm():
    x = np.rint(noise(4, (20, 30_000)) * 2**38) / 2**38
    test = noise_test(x)
    assert test.repeats < test.most_repeats and min(p_values(test)) > 1e-5


def test_noise_that_two_mechanisms_share_is_found():
    one, two = noise(5, (10, 400)), noise(6, (10, 400))
    assert between_releases(one, two) > 1e-6
    two[4] = 0.7 * two[4] + 0.7 * one[8]
    chance = between_releases(one, two)
    finding = shared_noise_finding(chance, ("first", "second"), claim=Claim(1.0, 1e-5))
    assert finding.verdict == "alarm" and "first and second" in finding.words


@pytest.mark.law("audits: correct code is rarely accused")
def test_an_audit_of_correct_code_alarms_in_fewer_than_one_of_200():
    assert false_alarm_bound(5) <= 1 / 200


def test_repeats_are_counted_wherever_they_are():
    x = noise()
    x[3, 100:300] = x[1, 400:600]
    test = noise_test(x)
    assert test.repeats == 200 >= test.most_repeats


def test_single_precision_repeats_by_chance_are_no_alarm():
    x = noise(shape=(10, 50_000)).astype(np.float32).astype(np.float64)
    test = noise_test(x, resolution=SINGLE)
    assert 0 < test.repeats < test.most_repeats
    assert noise_test(x).repeats >= noise_test(x).most_repeats


def test_noise_interval_covers():
    ratios = [noise_test(1.7 * noise(seed, (2, 300))).interval for seed in range(300)]
    hit = sum(low <= 1.7 <= high for low, high in ratios)
    assert binom.ppf(1e-4, 300, 0.95) <= hit < 300


@pytest.mark.parametrize("values", [np.zeros((1, 9)), np.zeros(9), np.full((3, 9), np.nan)])
def test_noise_test_refuses_what_it_cannot_test(values):
    with pytest.raises(ValueError, match="shape"):
        noise_test(values)


def test_poisson_draws_pass():
    worst = 1.0
    for seed in range(60):
        draws = np.random.default_rng(seed).random((20, 300)) < 0.1
        found = sampling_test(draws, 0.1)
        worst = min(worst, found.p_rounds, found.p_total, found.p_users, found.p_overlap)
    assert worst > 1e-5
    everybody = sampling_test(np.ones((3, 50), dtype=bool), 1.0)
    assert everybody.p_rounds == everybody.p_total == everybody.p_users == 1.0


def test_other_draws_are_caught():
    source = np.random.default_rng(3)
    fixed = np.zeros((20, 300), dtype=bool)
    for row in fixed:
        row[source.choice(300, 60, replace=False)] = True
    again = np.repeat(source.random((1, 300)) < 0.1, 20, axis=0)
    favoured = source.random((50, 300)) < 0.1
    favoured[:, 7] = True
    together = np.repeat(source.random((40, 6)) < 0.1, 50, axis=1)
    nodes = np.repeat(np.arange(6), 50)
    assert sampling_test(together, 0.1, nodes).p_nodes < 1e-6
    assert sampling_test(fixed, 0.1).p_total < 1e-6
    assert sampling_test(again, 0.1).p_overlap < 1e-6
    assert sampling_test(favoured, 0.1).p_users < 1e-6
    assert sampling_test(np.ones((2, 50), dtype=bool) & (np.arange(50) > 0), 1.0).p_users == 0


def test_auc_against_all_pairs():
    source = np.random.default_rng(4)
    members, others = source.integers(0, 9, 40).astype(float), source.integers(0, 9, 30) * 0.9
    pairs = [(a > b) + 0.5 * (a == b) for a in members for b in others]
    assert membership.area_under_curve(members, others) == pytest.approx(np.mean(pairs))


@pytest.mark.parametrize(("hits", "trials"), [(0, 20), (3, 20), (20, 20)])
def test_binomial_interval_is_exact(hits, trials):
    low, high = membership.binomial_interval(hits, trials, 0.9)
    if hits:
        assert binom.sf(hits - 1, trials, low) == pytest.approx(0.05)
    if hits < trials:
        assert binom.cdf(hits, trials, high) == pytest.approx(0.05)
    assert (low == 0) == (hits == 0) and (high == 1) == (hits == trials)


def test_membership_bound_covers_a_known_epsilon():
    """N(0, 1) against N(1, 1) is (ε, δ)-DP for ε of the profile; the bound must keep below it."""
    source, truth = np.random.default_rng(5), gaussian_epsilon(1e-3, 1.0)
    found = [
        membership.split_bound(
            source.normal(1, 1, 200),
            source.normal(0, 1, 200),
            delta=1e-3,
            source=source,
            confidence=0.95,
        )
        for _ in range(30)
    ]
    assert max(found) <= truth and np.mean(np.array(found) > 0) > 0.5


def test_a_perfect_attack_reaches_the_cap_and_a_blind_one_finds_nothing():
    source = np.random.default_rng(6)
    perfect = membership.attack(
        np.ones(300) + source.random(300), source.random(300), delta=1e-5, source=source
    )
    assert perfect.auc == 1 and perfect.rate == 1
    assert perfect.lower_bound == pytest.approx(membership.cap(300, 300, delta=1e-5), abs=0.7)
    assert perfect.lower_bound > 3
    blind = membership.attack(source.random(300), source.random(300), delta=1e-5, source=source)
    assert abs(blind.auc - 0.5) < 0.1 and blind.lower_bound < 0.5


# Verdicts


def split(gap, m=400, seed=7):
    source = np.random.default_rng(seed)
    included = source.random(m) < 0.5
    return source.normal(size=m) + gap * included, included


def one_run_verdict(gap, claimed):
    claim = Claim(claimed, 1e-6)
    guesses = choose_guesses(400, claim)
    return one_run_finding(*split(gap), guesses=guesses, claim=claim, confidence=0.95)


def test_one_run_verdicts():
    assert one_run_verdict(0.3, 1.0).verdict == "nothing-found"
    alarm = one_run_verdict(30.0, 1.0)
    assert alarm.verdict == "alarm" and alarm.lower_bound > 1 and "above" in alarm.words
    blind = one_run_verdict(30.0, 9.0)
    assert blind.verdict == "cannot-detect" and blind.cap < 9 and "no more than" in blind.words


def test_more_is_guessed_where_the_claim_is_high_whatever_the_scores():
    few, many = choose_guesses(1000, Claim(0.5, 1e-6)), choose_guesses(1000, Claim(3.0, 1e-6))
    assert few == 100 < many


def one_shot_verdict(gap, claimed, most=50.0):
    return one_shot_finding(
        *split(gap), claim=Claim(claimed, 1e-5), confidence=0.95, expected=1.0, most=most
    )


def test_one_shot_verdicts():
    assert one_shot_verdict(1.0, 4.4).verdict == "nothing-found"
    assert one_shot_verdict(2.0, 4.4).verdict == "alarm"
    assert one_shot_verdict(1.0, 1e3, most=5.0).verdict == "cannot-detect"
    found = one_shot_verdict(1.0, 4.4)
    assert found.lower_bound is None and found.interval[0] < found.estimate < found.interval[1]
    assert "estimate" in found.words


def test_noise_verdicts_price_what_was_measured():
    priced = lambda ratio: 2.0 / ratio if ratio else math.inf  # noqa: E731
    claim = Claim(2.0, 1e-5)
    fair = noise_finding(noise_test(noise()), claim=claim, priced=priced)
    assert fair.verdict == "nothing-found" and fair.estimate == pytest.approx(2.0, rel=0.02)
    weak = noise_finding(noise_test(0.5 * noise()), claim=claim, priced=priced)
    assert weak.verdict == "alarm" and weak.estimate == pytest.approx(4.0, rel=0.02)
    assert weak.interval[0] < weak.estimate < weak.interval[1]
    silent = noise_finding(noise_test(0 * noise()), claim=claim, priced=priced)
    assert silent.verdict == "alarm" and silent.to_json()["estimate"] is None


def histogram_verdict(norms, sums):
    found = norms_test(norms, sums)
    claim = Claim(2.0, 1e-5)
    return noise_finding(noise_test(sums), claim=claim, priced=lambda r: 2.0, norms=found)


def test_histograms_of_norms_need_noise_of_their_own():
    norms, sums = noise(21, (20, 16)), noise(22, (20, 500))
    fair = histogram_verdict(norms, sums)
    assert fair.verdict == "nothing-found" and fair.figures["norms_values"] == 320
    for wrong in (0 * norms, norms / 3, np.tile(norms[:1], (20, 1)), sums[:, 100:116]):
        found = histogram_verdict(wrong, sums)
        assert found.verdict == "alarm" and "norms" in found.words


@pytest.mark.law("audits: correct code is rarely accused")
def test_canary_records_that_do_not_get_through_are_no_comfort():
    assert lost_finding("sampling", claim=Claim(2.0, 1e-5)).verdict == "cannot-detect"
    assert clipping(computed=0.0, sent=None, cosine=None) == "cannot-detect"


def clipping(computed=1.0, sent=1.0, cosine=1.0, taken=(), refused=0):
    return clipping_finding(
        {"an update": computed},
        sent=sent,
        cosine=cosine,
        taken=taken,
        refused=refused,
        claim=Claim(2.0, 1e-5),
    ).verdict


def test_clipping_verdicts():
    assert clipping() == clipping(computed=0.4) == "nothing-found"
    assert clipping(sent=None, cosine=None) == "nothing-found"
    assert clipping(computed=1.01) == clipping(sent=10.0) == clipping(refused=1) == "alarm"
    assert clipping(taken=("not finite",)) == "alarm"
    assert clipping(sent=0.0, cosine=0.0) == clipping(cosine=0.2) == "cannot-detect"


def test_sampling_verdicts():
    fair = np.random.default_rng(8).random((20, 300)) < 0.1

    def verdict(rate=0.1, **off):
        given = {"off": 0.0, "residual": 0.0, "refused": 0, **off}
        test = sampling_test(fair, rate)
        claim = Claim(2.0, 1e-5)
        found = sampling_finding(test, sampling_rate=rate, claim=claim, **given)
        assert f"% of the canaries were drawn, {100 * rate:g}% are claimed" in found.words
        return found.verdict

    assert verdict() == "nothing-found"
    assert (
        verdict(0.2) == verdict(off=1.0) == verdict(residual=0.3) == verdict(refused=1) == "alarm"
    )


def test_membership_verdicts():
    source = np.random.default_rng(9)
    replay = (10 + source.random(300), source.random(300))
    blind = (source.random(300), source.random(300))

    def verdict(real, control, claimed, cap=3.0):
        found, checked = (
            membership.attack(*pair, delta=1e-5, source=source) for pair in (real, control)
        )
        return membership_finding(
            found, checked, checked, found, cap=cap, claim=Claim(claimed, 1e-5)
        )

    assert verdict(blind, replay, 2.0).verdict == "nothing-found"
    assert verdict(replay, replay, 2.0).verdict == "alarm"
    assert verdict(blind, replay, 9.0).verdict == "cannot-detect"
    broken = verdict(blind, blind, 2.0)
    assert broken.verdict == "cannot-detect" and "broken" in broken.words
    assert broken.words.startswith("Simulation only")


@pytest.mark.parametrize("rate", [1.0, 0.3])
def test_expected_separation_against_simulation(rate):
    m, d, z, rounds = 200, 4000, 1.5, 8
    source = np.random.default_rng(10)
    found = []
    for _ in range(6):
        rows = source.normal(size=(m, d)) / math.sqrt(d)
        included = source.random(m) < 0.5
        drawn = (source.random((rounds, m)) < rate).sum(axis=0) * included
        total = drawn @ rows + source.normal(size=d) * z * math.sqrt(rounds)
        found.append(one_shot.separation(rows @ total, included).mu)
    expected = one_shot.expected_separation(
        canaries=m, dims=d, sampling_rate=rate, noise_multiplier=z, rounds=rounds
    )
    assert np.mean(found) == pytest.approx(expected, rel=0.12)
