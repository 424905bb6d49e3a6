import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlens.accountant.account import Account
from fedlens.accountant.bayesian.accountant import MixedEvents, TooManyRounds
from fedlens.accountant.bayesian.fixed_order import FixedOrderFilter
from fedlens.accountant.bayesian.noised_norms import (
    PUBLIC_BINS,
    NoisedNorms,
    noised_norms,
    split_noise,
)
from fedlens.accountant.bayesian.norms import NormHistogram
from fedlens.accountant.bayesian.published import PublishedAccountant
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import GaussianRelease, SubsampledGaussian
from fedlens.accountant.ledger.evidence import EvidenceFile
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.noise.bits import FixedBits
from fedlens.accountant.statement import statement
from fedlens.accountant.wording import shown

EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.05, 1.5, 0.35)
NOISELESS = replace(EVENT, noise_multiplier=0.0)


USERS = 40_000


def released(seed=0, event=EVENT):
    """A round's noised norms: a twentieth of the users, none near the clip."""
    source = np.random.default_rng(seed)
    counts = NormHistogram.from_norms(source.uniform(0.05, 0.2, USERS // 20), 0.35).counts
    noise = split_noise(event.noise_multiplier, 0.02).norms
    return noised_norms(counts, clipping_norm=0.35, noise=noise, source=FixedBits(seed))


def make(**keywords):
    declared = {"total_rounds": 10, "delta_dp": 1e-5, "delta_bdp": 1e-10, "users": USERS}
    return Account(**{**declared, **keywords})


def charged(rounds=4, event=EVENT, evidence=None, **keywords):
    account = make(**keywords)
    for _ in range(rounds):
        account.charge(event, evidence)
    return account


@pytest.mark.law("5: both notions are shown together")
def test_spending_is_what_both_accountants_say():
    spending = charged(4, evidence=released()).spending()
    differential = DifferentialAccountant()
    bayesian = PublishedAccountant(10, 1e-10, USERS)
    differential.compose(EVENT, 4)
    for _ in range(4):
        bayesian.compose(EVENT, released())
    assert spending.rounds == 4
    best = differential.epsilon(1e-5)
    assert (spending.dp_epsilon, spending.dp_order) == (best.epsilon, best.order)
    assert spending.dp_method == best.method == "contour"
    assert spending.dp_epsilon_at_bdp_delta == differential.epsilon(1e-10).epsilon
    assert spending.bdp_as_published == bayesian.as_published().epsilon
    assert spending.bdp_corrected == min(bayesian.corrected().epsilon, spending.bdp_sound)
    assert spending.bdp_sound == spending.dp_epsilon_at_bdp_delta
    assert spending.confidence_failure == bayesian.confidence_failure
    assert spending.private


@pytest.fixture
def run_ledger(tmp_path):
    ledger = Ledger.create(tmp_path / "ledger.jsonl", {})
    evidence = EvidenceFile(tmp_path / "evidence.jsonl")
    account = make()
    for number in range(5):
        norms = released(number) if number != 2 else None
        sealed = evidence.seal(norms) if norms else None
        entry = ledger.append(
            EVENT,
            round=number,
            purpose="",
            evidence_digest=sealed.digest if sealed else None,
        )
        if sealed:
            evidence.append(entry.index, sealed)
        account.charge(EVENT, norms)
    return ledger.path, tmp_path / "evidence.jsonl", account.spending()


def test_a_replayed_ledger_gives_the_same_figures(run_ledger):
    ledger, evidence, spending = run_ledger
    account = make()
    account.replay(Ledger.open(ledger).entries, EvidenceFile(evidence))
    assert account.spending() == spending


def test_lost_evidence_costs_more_and_never_blocks(run_ledger):
    ledger, evidence, spending = run_ledger
    lines = evidence.read_text().splitlines(keepends=True)
    evidence.write_text("".join(lines[:-1]))
    entries = Ledger.open(ledger).entries
    figures = []
    for file in (EvidenceFile(evidence), EvidenceFile(evidence.with_name("none")), None):
        account = make()
        account.replay(entries, file)
        figures.append(account.spending())
    costs = [s.bdp_as_published for s in (spending, *figures[:2])]  # the one that is never capped
    assert costs[0] < costs[1] < costs[2]
    assert figures[1].bdp_corrected == spending.dp_epsilon_at_bdp_delta
    assert replace(figures[1], warnings=()) == replace(figures[2], warnings=())
    assert figures[1].rounds_with_norms == 0 < figures[0].rounds_with_norms
    assert figures[0].dp_epsilon == spending.dp_epsilon
    assert figures[0].warnings[0].startswith("1 ledger entries name norms that are missing")
    assert figures[1].bdp_corrected == charged(5).spending().bdp_corrected


def test_would_exceed_looks_ahead_by_one_event_whatever_the_norms():
    for evidence in (None, released()):
        account = charged(4, evidence=evidence)
        after = charged(5).spending().dp_epsilon
        assert not account.would_exceed(EVENT, after)
        assert account.would_exceed(EVENT, math.nextafter(after, 0))
        assert account.would_exceed(NOISELESS, 1e9)


def test_what_is_refused_changes_nothing():
    account = charged(10, evidence=released())
    before = account.spending()
    with pytest.raises(TooManyRounds):
        account.charge(EVENT, None)
    assert account.spending() == before
    account = charged(3)
    before = account.spending()
    with pytest.raises(MixedEvents, match="unit = 'record'"):
        account.charge(replace(EVENT, unit="record"), None)
    for other in (
        replace(released(), clipping_norm=1.0),
        replace(released(), noise=EVENT.noise_multiplier),
    ):
        with pytest.raises(ValueError, match="clipping norm"):
            account.charge(EVENT, other)
    assert account.spending() == before


def test_a_run_without_noise_is_infinite_and_says_so():
    spending = charged(2, NOISELESS).spending()
    assert spending.dp_epsilon == spending.dp_epsilon_at_bdp_delta == math.inf
    assert spending.bdp_corrected == spending.bdp_as_published == math.inf
    assert not spending.private
    assert statement(spending, 1000).startswith("No guarantee: no noise")


def test_one_round_without_noise_spoils_the_run():
    account = charged(2)
    account.charge(NOISELESS, None)
    assert account.spending().dp_epsilon == math.inf
    account.charge(EVENT, None)
    assert account.statement(1000).startswith("No guarantee")


@pytest.mark.law("2: noise never repeats")
def test_fixed_noise_is_no_guarantee():
    spending = charged(2, noise_source="fixed-seed").spending()
    assert not spending.private
    assert statement(spending, 1000).startswith("No guarantee: the noise was drawn from a fixed")
    with pytest.raises(ValueError, match="noise_source"):
        make(noise_source="dice")


def test_before_the_first_round_nothing_is_claimed():
    spending = make().spending()
    assert (spending.dp_epsilon, spending.bdp_corrected, spending.rounds) == (0, 0, 0)
    assert "Nothing has been released" in statement(spending, 1000)


@pytest.mark.law("5: both notions are shown together")
def test_the_statement_says_what_a_reader_must_know():
    spending = charged(4, evidence=released()).spending()
    text = statement(spending, 1000)
    for needed in (
        f"({shown(spending.dp_epsilon)}, 1e-05)-differential privacy",
        "adding or removing one user with all of their data",
        "4 rounds",
        "probability 0.05 by Poisson sampling",
        "noise 1.5 times the clipping norm",
        "How many users are enrolled is public: N = 1000",
        "δ is 0.01 of 1/N",
        f"ε = {shown(spending.bdp_corrected)} corrected",
        f"{shown(spending.bdp_sound)} sound",
        f"{shown(spending.bdp_as_published)} as published",
        f"differential privacy at that δ: {shown(spending.dp_epsilon_at_bdp_delta)}",
        "Corrected is an estimate",
        "inside the guarantee",
        "without a declared filter, differential privacy itself",
        "Not covered",
    ):
        assert needed in text, needed
    assert not re.search(r"\d{7}", text)


def test_the_statement_names_the_unit_the_sampler_and_what_weakens_it():
    event = replace(EVENT, unit="record", sampler="none", sampling_rate=1.0)
    text = charged(1, event).statement(1000)
    for needed in (
        "one record (not all of a user's)",
        "1 round, every record",
        "No norms were released",
        "records of a silo",
    ):
        assert needed in text, needed


@pytest.mark.law("5: a Bayesian budget needs a declared filter")
def test_a_declared_filter_is_what_the_sound_figure_claims():
    event = replace(EVENT, noise_multiplier=6.0)
    whole = charged(400, event, total_rounds=400).spending()
    budget = 0.8 * whole.dp_epsilon_at_bdp_delta
    declared = {"epsilon": budget, "delta": 1e-10, "users": USERS}
    account = make(total_rounds=400, norms_filter=FixedOrderFilter([(event, 400)], **declared))
    while not account.filter_forbids(event):
        account.charge(event, released(event=event))
    spending = account.spending()
    assert 0 < spending.rounds < 400 and budget < spending.dp_epsilon_at_bdp_delta
    assert spending.bdp_sound == pytest.approx(min(budget, spending.dp_epsilon_at_bdp_delta))
    account.charge(event, None)
    assert account.spending().bdp_sound == account.spending().dp_epsilon_at_bdp_delta
    assert "privacy filter, fixed beforehand" in account.statement(USERS)
    bare = charged(1, evidence=released()).spending()
    assert bare.bdp_sound == bare.dp_epsilon_at_bdp_delta
    assert set(bare.percentiles.values()) == {bare.bdp_sound}


def test_the_statement_tells_all_kinds_of_release():
    account = charged(2)
    account.charge(replace(EVENT, noise_multiplier=3.0, count=20), None)
    account.charge(GaussianRelease("user", "add-remove", 1.0, 7.0, released="class counts"), None)
    text = account.statement(1000)
    for needed in (
        "2 rounds, each user drawn with probability 0.05",
        "noise 1.5 times the clipping norm",
        "1 round of 20 noised releases each",
        "noise 3 times the clipping norm",
        "class counts released once, from all users' data, noise 7 times its sensitivity",
    ):
        assert needed in text, needed


def test_many_kinds_of_release_are_counted_not_listed():
    account = make()
    for noise in range(2, 9):
        account.charge(replace(EVENT, noise_multiplier=float(noise)), None)
    assert "3 more kinds of release, which the ledger lists" in account.statement(1000)


def test_a_delta_that_is_no_promise_is_called_out():
    assert "Caution: δ = 0.01 is not far below 1/N" in charged(1, delta_dp=0.01).statement(1000)


@pytest.mark.parametrize("name", ["total_rounds", "delta_dp", "delta_bdp"])
def test_bad_settings_are_refused_by_name(name):
    with pytest.raises(ValueError, match=name.replace("delta_bdp", "delta")):
        make(**{name: 0})


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [(0, "0"), (math.inf, "infinite"), (2.1601, "2.17"), (2.16, "2.16"), (0.0012301, "0.00124")],
)
def test_what_is_shown_is_never_less_than_what_was_spent(epsilon, words):
    assert shown(epsilon) == words


@given(st.floats(1e-9, 1e9))
def test_rounding_up_adds_less_than_a_hundredth(epsilon):
    assert epsilon * (1 - 1e-6) <= float(shown(epsilon)) <= epsilon * 1.01


class TestAnEndThatMayHaveBeenChosen:
    """An end that was chosen after looking at releases has the guarantee of the whole plan."""

    @pytest.mark.law("5: an early end is charged as the whole plan")
    def test_differential_privacy_is_that_of_the_whole_plan(self):
        plan, done = charged(10).spending(), charged(4, evidence=released())
        early, so_far = done.at_any_end(charged(10)), done.spending()
        assert (early.dp_epsilon, early.dp_order) == (plan.dp_epsilon, plan.dp_order)
        assert early.dp_epsilon_at_bdp_delta == early.bdp_sound == plan.dp_epsilon_at_bdp_delta
        assert early.percentiles["1"] == plan.percentiles["1"]
        assert early.dp_epsilon > so_far.dp_epsilon
        assert (early.rounds, early.rounds_planned) == (4, 10)
        assert early.bdp_as_published == so_far.bdp_as_published

    def test_the_corrected_figure_is_not_that_of_the_rounds_so_far(self):
        """Of norms all at the clip it is differential privacy's, which is the whole plan's."""
        event = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 4.0, 1.0)
        counts = (0.0,) * (PUBLIC_BINS - 1) + (10_000.0,)
        norms = NoisedNorms(1.0, split_noise(4.0, 0.02).norms, counts)
        plan, done = (Account(50, 1e-5, 1e-10, users=100_000) for _ in range(2))
        for _ in range(50):
            plan.charge(event, None)
        for _ in range(2):
            done.charge(event, norms)
        early = done.at_any_end(plan)
        assert early.bdp_corrected > 2 * done.spending().bdp_corrected
        assert early.bdp_corrected == pytest.approx(early.dp_epsilon_at_bdp_delta, rel=0.05)
        assert early.percentiles_corrected["0.5"] > 2 * done.spending().percentiles_corrected["0.5"]
        assert done.spending().rounds == early.rounds == 2

    def test_the_statement_says_so(self):
        early = charged(4, evidence=released()).at_any_end(charged(10))
        assert "ended after 4 of 10 releases" in statement(early, USERS)
        assert shown(early.dp_epsilon) in statement(early, USERS)
        assert "ended after" not in charged(4).statement(USERS)

    @pytest.mark.parametrize("rounds", [0, 10])
    def test_without_a_release_or_with_all_of_them_nothing_changes(self, rounds):
        account = charged(rounds)
        assert account.at_any_end(charged(10)) == account.spending()
