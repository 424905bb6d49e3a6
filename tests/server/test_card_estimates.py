"""What a card says of itself is true: intervals hold, equal people show no change, verdicts err
no more often than they say. Users are made up; the noise is numpy's.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from fedlens.diagnosis.cards.changes import compare_cards, holm
from fedlens.diagnosis.cards.estimates import WIDE, estimate_card
from fedlens.diagnosis.cards.estimates import card_of as released_card
from fedlens.diagnosis.cards.verdicts import judge
from fedlens.foundation.errors import WrongUse
from fedlens.models.cards.expectations import parse_expectations
from fedlens.models.cards.statistics import card_layout
from fedlens.models.cards.vectors import card_vector

USERS, HELD, NOISE = 200, 6, 0.01
LAYOUT = card_layout((1, 28, 28), 4)
TRIALS = 300


def made_up(seed, users=USERS, copies=0.0, dim=1.0, classes=(0.25, 0.25, 0.25, 0.25)):
    """Users' vectors, float64 [users, size]: blobs of light."""
    source = np.random.default_rng(seed)
    place = np.mgrid[:28, :28] / 28
    rows = []
    for _ in range(users):
        middle = source.uniform(0.35, 0.65, (HELD, 2, 1, 1))
        light = source.uniform(0.5, 1, (HELD, 1, 1))
        blob = light * dim * np.exp(-((place - middle) ** 2).sum(1) / 0.04)
        images = torch.tensor(blob * 2 - 1, dtype=torch.float32)[:, None]
        if source.random() < copies:
            images = images[:1].expand(HELD, 1, 28, 28)
        labels = torch.from_numpy(source.choice(4, HELD, p=classes))
        rows.append(card_vector(images, labels, torch.ones(HELD, dtype=torch.bool), LAYOUT))
    return torch.stack(rows).double().numpy()


@pytest.fixture(scope="module")
def people():
    return made_up(0, 2000)


def card_of(vectors, source, noise=NOISE):
    mean = vectors.mean(0) + noise * source.normal(size=LAYOUT.size)
    return estimate_card(mean, noise, len(vectors), LAYOUT)


def drawn(people, source):
    return people[source.choice(len(people), USERS)]


def test_nearly_all_intervals_hold_what_they_are_of(people):
    source = np.random.default_rng(1)
    true = estimate_card(people.mean(0), 1e-12, len(people), LAYOUT)
    inside, medians = [], []
    for _ in range(TRIALS):
        card = card_of(drawn(people, source), source)
        for one, real in zip(card.histograms, true.histograms, strict=True):
            inside.append(np.abs(one.shares - real.shares) <= one.errors)
            if one.statistic.numeric:
                found, exact = one.quantity(), real.quantity().value
                medians.append(found.low <= exact <= found.high)
    assert np.mean(np.concatenate(inside)) >= 0.945  # those of the draw are bounds: wider
    assert np.mean(medians) >= 0.945


def test_the_noise_is_as_wide_as_is_said(people):
    source = np.random.default_rng(2)
    cards = [card_of(people, source, 0.02) for _ in range(TRIALS)]
    for place, one in enumerate(cards[0].histograms):
        shares = np.array([card.histograms[place].shares for card in cards])
        said = np.mean([np.diag(card.histograms[place].noise) for card in cards], 0)
        np.testing.assert_allclose(shares.var(0), said, rtol=0.4, err_msg=one.statistic.name)


def test_equal_people_show_a_change_in_few_comparisons(people):
    source = np.random.default_rng(3)
    changed = 0
    for _ in range(TRIALS):
        first, second = (card_of(drawn(people, source), source) for _ in range(2))
        changed += any(one.named for one in compare_cards(second, first))
    assert changed / TRIALS <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / TRIALS)


def test_what_changed_is_named_and_nothing_beside_it(people):
    source = np.random.default_rng(4)
    copied = made_up(5, copies=0.2)
    rows = compare_cards(
        card_of(copied, source, 0.005), card_of(drawn(people, source), source, 0.005)
    )
    (row,) = [one for one in rows if one.name == "duplicates"]
    assert row.named and row.bin in ("none", "exact")
    assert abs(abs(row.difference) - 0.2) <= row.half_width + 0.06
    dimmed = compare_cards(card_of(made_up(6, dim=0.5), source), card_of(people, source))
    named = {one.name for one in dimmed if one.named}
    assert {"brightness", "highest"} <= named and not named & {"classes", "records", "duplicates"}


def test_holm_is_what_its_author_wrote():
    # Holm 1979, with 4, 3, 2, 1 times the sorted p-values, never falling
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9]) == [0.9] and holm([0.6, 0.7]) == [1.0, 1.0]


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("duplicates < 10%", "holds"),
        ("duplicates > 10%", "falls"),
        ("duplicates < 0.5%", "cannot tell"),
        ("brightness < 0.5", "holds"),
        ("brightness > 0.5", "falls"),
        ("classes = uniform", "holds"),
        ("classes[0] < 60%", "holds"),
        ("records < 4", "falls"),
        ("records < 10", "holds"),
    ],
)
def test_verdicts_on_sound_people(people, text, outcome):
    card = card_of(people, np.random.default_rng(7))
    (found,) = judge(card, parse_expectations(text))
    assert found.outcome == outcome and 0 < found.error <= 0.1


def test_uneven_classes_fall_and_drowned_ones_cannot_be_told(people):
    source, expected = np.random.default_rng(8), parse_expectations("classes = uniform")
    uneven = made_up(9, 400, classes=(0.55, 0.15, 0.15, 0.15))
    assert judge(card_of(uneven, source), expected)[0].outcome == "falls"
    assert judge(card_of(people, source, 0.2), expected)[0].outcome == "cannot tell"


@pytest.mark.parametrize("text", ["classes = uniform", "duplicates < 0.001%", "classes[1] > 26%"])
def test_verdicts_are_wrong_no_more_often_than_they_say(people, text):
    source, expected = np.random.default_rng(10), parse_expectations(text)
    true = estimate_card(people.mean(0), 1e-12, len(people), LAYOUT)
    assert abs(true["classes"].shares - 0.25).max() < 0.01
    wrong = "holds" if text.startswith("classes[1]") else "falls"
    found = [judge(card_of(drawn(people, source), source), expected)[0] for _ in range(TRIALS)]
    rate = np.mean([one.outcome == wrong for one in found])
    assert rate <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / TRIALS)


def test_what_a_card_has_not_is_refused_by_name(people):
    card = card_of(people, np.random.default_rng(11))
    with pytest.raises(WrongUse, match="'red' is not in this card"):
        judge(card, parse_expectations("red < 1"))
    with pytest.raises(WrongUse, match=r"classes\[9\]: name one of its bins"):
        judge(card, parse_expectations("classes[9] < 1"))
    with pytest.raises(WrongUse, match="do not add up"):
        judge(card, parse_expectations("records = uniform"))
    with pytest.raises(WrongUse, match="classes: name one of its bins"):
        judge(card, parse_expectations("classes < 1"))
    with pytest.raises(WrongUse, match="medians of records are told from 1 to 257"):
        judge(card, parse_expectations("records < 300"))  # those with 1,000 are in the last bin


@pytest.mark.parametrize("noise", [0.02, 0.002, 0.0005])
def test_a_rare_share_is_called_below_its_limit_no_more_often_than_said(noise):
    """Users of whom exactly as many hold copies as the limit says: 1,000, each in one bin."""
    source, wrong, trials, level = np.random.default_rng(12), 0, 2000, 0.01
    expected = parse_expectations("duplicates < 2%" + ", brightness < 0.9" * 4)  # a fifth of 5%
    for _ in range(trials):
        mean = np.zeros(LAYOUT.size)
        for one in LAYOUT.statistics:
            mean[LAYOUT.places[one.name]] = 0.0 if one.of_users else one.weight / one.bins
        mean[LAYOUT.places["duplicates"].start] = 1.25 * source.binomial(1000, 0.02) / 1000
        mean += noise * source.normal(size=LAYOUT.size)
        wrong += judge(estimate_card(mean, noise, 1000, LAYOUT), expected)[0].outcome == "holds"
    assert wrong / trials <= level + 3 * np.sqrt(level * (1 - level) / trials)


def test_a_damaged_release_is_refused():
    layout = card_layout((1, 28, 28), 10)
    mechanism = SimpleNamespace(denominator=100.0)
    for value, deviation in ((np.nan, 0.01), (0.1, np.nan), (0.1, 0.0)):
        release = SimpleNamespace(
            release=np.full(layout.size, value), deviation=deviation, shape=(1, 28, 28), classes=10,
            request=SimpleNamespace(kind="card", mechanism=mechanism),
        )  # fmt: skip
        with pytest.raises(WrongUse, match="damaged"):
            released_card([release])


def test_the_interval_is_the_usual_one():
    assert pytest.approx(1.95996, abs=1e-4) == WIDE
