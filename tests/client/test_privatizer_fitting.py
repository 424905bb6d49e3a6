"""Fitting a filter against fresh adversaries: what it ends at, where it is computable."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch.distributions import Categorical
from torch.nn import functional as F

from fedlens.data.attributes import load_private
from fedlens.models.classifiers import Mlp
from fedlens.privatizers import fitting
from fedlens.privatizers.classifiers import prior_of
from fedlens.privatizers.fitting import FitConfig, LeakageEstimate, fit_filter
from fedlens.privatizers.information import InformationPrivatizer, Objective
from fedlens.privatizers.networks.filters import LinearFilter
from fedlens.privatizers.protocol import PrivatizerError

BUDGET = 0.02


@pytest.fixture(scope="module")
def points():
    """Utility and sensitive attribute are two independent bits, one a coordinate each."""
    return load_private("mixture:1", seed=3).train


@pytest.fixture(scope="module")
def classifier(points):
    net = Mlp(2, 2, (16,), generator=torch.Generator().manual_seed(1))
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(100):
        loss = F.cross_entropy(net(points.records[:500]), points.utility[:500])
        adam.zero_grad()
        loss.backward()
        adam.step()
    return net


def fitted(points, classifier, *, rate=0.03, told=None, fit_config=None, held=None):
    source = torch.Generator().manual_seed(0)
    net = LinearFilter(2, generator=source)
    with torch.no_grad():
        net.theta.copy_(3 * torch.eye(2))

    def build(stage):
        return InformationPrivatizer(
            net,
            prior_of(points.sensitive, 2),
            Objective(budget=BUDGET, weight=stage.weight),
            adversary=Mlp(2, 2, (32,), generator=source),
            fixed_utility=classifier,
        )

    usual = FitConfig(BUDGET, steps=200, rate=rate, adversary_rate=5e-3, batch=256, seed=0)
    train = points.take(slice(1000, None))
    held = points.take(slice(0, 1000)) if held is None else held
    progress = None if told is None else lambda done, planned: told.append((done, planned))
    return fit_filter(build, train, held, fit_config or usual, progress)


def test_the_sensitive_attribute_goes_and_the_utility_stays(points, classifier):
    told: list[tuple[int, int]] = []
    network, leakage = fitted(points, classifier, told=told)
    theta = network.theta
    utility, sensitive = theta[:, 0].norm(), theta[:, 1].norm()
    assert sensitive < 0.7 < 2 < utility, (
        "the sensitive attribute's coordinate drowns in the noise, the utility's does not"
    )
    assert leakage.nats < 3 * BUDGET and 0.45 < leakage.share < 0.62
    assert not theta.requires_grad and not network.training
    done = [step for step, _ in told]
    assert done == sorted(done) and told[-1][0] == told[-1][1]


def test_the_first_stage_begins_gently_and_later_ones_do_not(points, classifier, monkeypatch):
    weights, real = [], InformationPrivatizer.local_step

    def looking(self, *args, filtering=True, **options):
        if filtering:
            weights.append(self.objective.weight)
        return real(self, *args, filtering=filtering, **options)

    monkeypatch.setattr(InformationPrivatizer, "local_step", looking)
    monkeypatch.setattr(fitting, "MOST", 1)
    monkeypatch.setattr(fitting, "LATER", replace(fitting.LATER, meeting=1))
    fitted(
        points,
        classifier,
        fit_config=FitConfig(-1.0, steps=20, rate=0.01, adversary_rate=5e-3, batch=64, seed=0),
    )
    first, later = weights[:20], weights[20:]
    assert first[0] == pytest.approx(fitting.GENTLE * fitting.FIRST.weight)
    assert first[:11] == sorted(set(first[:11])) and first[5] == pytest.approx(10.0)
    assert first[10:] == [pytest.approx(fitting.FIRST.weight)] * 10
    assert later == [fitting.LATER.weight] * 10


def test_what_is_held_is_not_trained_on(points, classifier, monkeypatch):
    trained, real = set(), fitting.train_privatizer

    def looking(method, data, *rest, **options):
        trained.add(len(data))
        real(method, data, *rest, **options)

    monkeypatch.setattr(fitting, "train_privatizer", looking)
    monkeypatch.setattr(fitting, "MOST", 0)
    fitted(points, classifier)
    assert trained == {len(points) - 1000}


@pytest.mark.parametrize("sharpness", [0.0, float("nan")])
def test_an_adversary_is_judged_by_what_it_says_of_held_records(points, classifier, sharpness):
    """One that says nothing reads 0 nats; one whose answers are no numbers is refused."""
    silent = Mlp(2, 2, (4,))
    with torch.no_grad():
        for value in silent.parameters():
            value.fill_(sharpness)
    net = LinearFilter(2)
    goal = Objective(budget=BUDGET)
    prior = prior_of(points.sensitive, 2)
    method = InformationPrivatizer(net, prior, goal, adversary=silent, fixed_utility=classifier)
    held = points.take(slice(0, 1001))
    work = fitting._Fitting(lambda _: method, points, held, FitConfig(BUDGET, 1, 1, 1, 8, 0), None)
    if sharpness:
        with pytest.raises(PrivatizerError, match="no numbers"):
            work._leakage(method)
        return
    found = work._leakage(method)
    entropy = Categorical(prior_of(held.sensitive, 2)).entropy()
    assert found.nats == pytest.approx(float(entropy) - math.log(2), abs=1e-5)
    assert found.share == pytest.approx(float((held.sensitive == 0).double().mean()))


def test_of_readings_below_nothing_the_share_decides(points, classifier, monkeypatch):
    left = [
        LeakageEstimate(0.3, 0.9),
        LeakageEstimate(-0.4, 0.6),
        LeakageEstimate(-0.1, 0.5),
        LeakageEstimate(0.1, 0.7),
    ]
    monkeypatch.setattr(fitting._Fitting, "_leakage", lambda *_: left.pop(0))
    monkeypatch.setattr(fitting, "LATER", replace(fitting.LATER, meeting=1))
    budget = FitConfig(-1.0, steps=2, rate=0.01, adversary_rate=5e-3, batch=64, seed=0)
    assert fitted(points, classifier, fit_config=budget)[1] == LeakageEstimate(-0.1, 0.5)


def test_a_held_part_without_a_class_is_refused_before_training(points, classifier, monkeypatch):
    monkeypatch.setattr(fitting, "train_privatizer", lambda *_, **__: pytest.fail("trained"))
    ones = points.take(points.sensitive == 1)
    with pytest.raises(PrivatizerError, match="class"):
        fitted(points, classifier, held=ones)


def test_a_rate_that_breaks_the_filter_is_refused(points, classifier):
    with pytest.raises(PrivatizerError, match="lower"):
        fitted(points, classifier, rate=3e37)
