"""What no one thought of: changes of no library, and the test of what is left along them."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlens.diagnosis.deviation import Deviation, describe_place
from fedlens.diagnosis.diagnose import FOREIGN, sure_names
from fedlens.diagnosis.fitting import (
    LeftOver,
    _by_chance_left,
    by_chance,
    least_visible,
    other_changes,
    size_beyond_chance,
    strongest,
)
from fedlens.diagnosis.model import LinearModel
from fedlens.diagnosis.reference import like_all
from fedlens.diagnosis.report import Diagnosis, FoundFault, Omnibus, ReferenceFit
from fedlens.diagnosis.surprises import UNNAMED, surprises
from fedlens.models.faults import FAULTS
from fedlens.models.faults.protocol import FaultSetting


def test_surprises_are_public_changes_of_images_and_no_faults_of_the_library():
    images = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(1)) * 2 - 1
    labels, before = torch.arange(6), images.clone()
    changed = []
    for one in surprises():
        found, named = one.fault.applied(images, labels, FaultSetting(10, (), one.variant.amount))
        assert torch.equal(named, labels) and found.shape == images.shape
        assert float(found.min()) >= -1 and float(found.max()) <= 1
        assert one.fault.name == UNNAMED and UNNAMED not in FAULTS
        changed.append(found)
    assert torch.equal(images, before)
    again = [one.fault.applied(images, labels, FaultSetting(10))[0] for one in surprises()]
    assert all(torch.equal(a, b) for a, b in zip(changed, again, strict=True))
    different = {found.numpy().tobytes() for found in changed}
    assert len(different) == len(changed) and before.numpy().tobytes() not in different


def test_rows_of_changes_are_kept_apart():
    """They are kept by name and amount, and none has a name."""
    amounts = [one.variant.amount for one in surprises()]
    assert len(set(amounts)) == len(amounts)


def test_surprises_work_on_colour_images_of_another_size():
    images = torch.zeros(2, 3, 17, 20)
    for one in surprises():
        found, _ = one.fault.applied(images, torch.zeros(2).long(), FaultSetting(10))
        assert found.shape == images.shape and bool(torch.isfinite(found).all())


def _left(values, covariance):
    z = values / np.sqrt(np.diag(covariance))
    return LeftOver(z, covariance, values, covariance)


@pytest.mark.parametrize("alike", [0.0, 0.7])
def test_p_values_of_nothing_left_are_uniform_however_alike_scores_are(alike):
    count, source = 30, np.random.default_rng(4)
    covariance = (1 - alike) * np.eye(count) + alike
    root = np.linalg.cholesky(covariance)
    found = np.array(
        [
            _by_chance_left(_left(root @ source.standard_normal(count), covariance))
            for _ in range(400)
        ]
    )
    for level in (0.02, 0.05, 0.2, 0.5):
        assert (
            abs((found <= level).mean() - level) < 4 * math.sqrt(level * (1 - level) / 400) + 0.01
        )


def test_one_large_score_and_many_small_ones_are_both_seen():
    covariance, source = np.eye(40), np.random.default_rng(5)
    noise = source.standard_normal((2, 40))
    noise[0, 3] = 6.0
    noise[1] += np.where(source.random(40) < 0.5, -1.6, 1.6)
    assert np.abs(noise[1]).max() < 4.5
    assert all(_by_chance_left(_left(row, covariance)) < 0.02 for row in noise)
    untold = LeftOver(np.full(40, -np.inf), covariance, np.zeros(40), covariance)
    assert _by_chance_left(untold) == 1.0


def test_draws_have_the_covariance_that_is_asked_for():
    covariance = np.array([[4.0, 1.0], [1.0, 1.0]])
    assert np.corrcoef(by_chance(covariance).T)[0, 1] == pytest.approx(0.5, abs=0.06)


def test_the_bound_is_neyman_and_pearsons():
    """One normal mean: a test at 5% sees 2.93 standard errors nine times in ten."""
    assert least_visible(100.0) == pytest.approx(0.2926, abs=1e-3)
    assert least_visible(0.0) == math.inf


def test_a_reference_has_the_shares_of_classes_of_all():
    labels = np.repeat(np.arange(4), [400, 300, 200, 100])
    rows = like_all(labels, 50, np.random.default_rng(0))
    assert len(set(rows.tolist())) == 50
    assert np.abs(np.bincount(labels[rows]) - [20, 15, 10, 5]).max() <= 1
    assert sorted(like_all(labels, 5000, np.random.default_rng(0)).tolist()) == list(range(1000))
    assert not np.array_equal(rows, like_all(labels, 50, np.random.default_rng(1)))


def test_an_answer_says_what_no_fault_explains():
    found = FoundFault("invert", "", None, 0.3, 0.2, 0.4, 0.0, (1,))
    unknown = FoundFault("", "something", None, 0.3, None, None, 0.0, (1,), like="invert")
    fit = ReferenceFit("digits", 10, True, "", 0.0)
    place = Deviation("darker most below left", ())

    def said(findings, deviation=None):
        return Diagnosis(findings, Omnibus(0.001), {}, fit, ("warmup",), 1, 10, deviation)

    assert said((found,)).unexplained == said(()).unexplained == ""
    words = said((unknown,), place).unexplained
    assert words.startswith("in about 30% of users: something")
    assert words.endswith("images are darker most below left")
    assert said((unknown,), place).to_json()["unexplained"] == words
    hardly = said((replace(unknown, q_value=0.008),), place).unexplained
    assert hardly == f"{words}; by chance one sound run in 125 shows as much"


def test_a_name_is_sure_and_no_other_change_of_images_is_as_large():
    assert sure_names([1e-20, 1e-12], [0.3, 0.1], ["image", "label"], 1) == [True, True]
    assert sure_names([1e-20, 1e-3], [0.3, 0.04], ["image", "image"], 1) == [True, False]
    assert sure_names([1e-20, 1e-3], [0.06, 0.04], ["image", "image"], 1) == [False, False]
    assert sure_names([1e-20, 1e-3], [0.06, 0.04], ["image", "label"], 1) == [True, False]
    assert sure_names([1e-12], [0.1], ["image"], 0.1) == [False]
    assert sure_names([1e-40], [0.3], ["image"], 0.1) == [True]
    assert sure_names([1e-40], [0.3], ["image"], 0.01) == [False]


def _drawn_model(mixed, share, rng):
    """A fault and twenty other changes, each a bit like it, of which ``mixed`` is what users have.

    As a whitened linear model: every direction is seen with noise of one.
    """
    ways = rng.standard_normal((21, 60)) + rng.standard_normal(60)
    seen = share * 12 * mixed @ ways + rng.standard_normal(60)
    products = ways @ ways.T
    none = np.zeros((0, 21))
    return LinearModel(
        12**2 * products, 12**2 * products, 12 * ways @ seen, np.zeros(0), none, np.zeros(0)
    )


def test_another_change_that_resembles_a_fault_is_told_from_it():
    """Of the fault itself no more p values are small than by chance; of a mixture most are."""
    rng = np.random.default_rng(4)
    itself, mixture = np.eye(21)[0], np.r_[0, np.full(3, 0.7), np.zeros(17)]
    others = list(range(1, 21))
    sound = [other_changes(_drawn_model(itself, 0.1, rng), [0], others) for _ in range(200)]
    foreign = [other_changes(_drawn_model(mixture, 0.1, rng), [0], others) for _ in range(60)]
    assert np.mean(np.array(sound) <= 0.2) < 0.28
    assert np.mean(np.array(foreign) <= 0.2) > 0.8
    assert other_changes(_drawn_model(itself, 0.1, rng), [], others) == 1
    assert other_changes(_drawn_model(itself, 0.1, rng), [0], []) == 1


@pytest.mark.parametrize(("one", "best", "named"), [(5.0, 5.3, 0), (5.0, 6.5, 3), (0.0, 5.3, 3)])
def test_the_best_of_many_ways_of_a_fault_has_no_head_start(one, best, named):
    """Over another fault of one way that explains as much; what explains more is taken."""
    found = np.array([one, 1.0, 0.5, best, *np.zeros(8)])
    groups = ["copies", *["crowded"] * 11]
    none = np.zeros((0, 12))
    model = LinearModel(np.eye(12), np.eye(12), found, np.zeros(0), none, np.zeros(0))
    place, q_value = strongest(model, groups, [], 12) or (None, 1.0)
    assert place == named and q_value < 1e-4
    assert strongest(replace(model, found=found / 5), groups, [], 12) is None


def test_a_place_is_said_in_words():
    change = torch.zeros(28, 28)
    change[20:, :8] = -1.0
    assert describe_place(change) == "darker most below left"
    assert describe_place(torch.full((28, 28), 0.2)) == "brighter all over"


def test_what_is_in_no_library_is_seen_among_a_hundred_hypotheses_that_show_nothing():
    source = np.random.default_rng(7)
    z = source.standard_normal(200)
    z[150:] *= 1.6
    left = LeftOver(z, np.eye(200), z, np.eye(200))
    assert _by_chance_left(left, 150) < 0.01 < _by_chance_left(left)


def test_noise_alone_is_seldom_taken_for_a_reference_of_another_kind():
    variances, typical, source = np.ones(60), 80.0, np.random.default_rng(6)
    noise = source.standard_normal((1000, 60))
    sizes = np.array([size_beyond_chance(row, variances, typical) for row in noise])
    assert (sizes > FOREIGN).mean() < 0.06
    away = np.sqrt(typical / 60)  # as large, in all, as a median fault in all users
    foreign = [size_beyond_chance(row + away, variances, typical) for row in noise[:200]]
    assert min(foreign) > FOREIGN
    assert size_beyond_chance(noise[0], variances, 0.0) == 0.0
