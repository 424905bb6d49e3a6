"""Fitting a filter against fresh adversaries: what it ends at, where it is computable."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from client.privatizers import fitting
from client.privatizers.fitting import Pace, fit_filter
from client.privatizers.information import InformationPrivatizer, Objective
from client.privatizers.networks import prior_of
from client.privatizers.protocol import PrivatizerError
from models.classifiers import Mlp
from models.filters import LinearFilter
from simulations.privatizers.sources import load_private

BUDGET = 0.02


@pytest.fixture(scope="module")
def points():
    """Use and secret are two independent bits, one a coordinate each."""
    return load_private("mixture:1", seed=3).train


@pytest.fixture(scope="module")
def reader(points):
    net = Mlp(2, 2, (16,), generator=torch.Generator().manual_seed(1))
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(100):
        loss = F.cross_entropy(net(points.records[:500]), points.utility[:500])
        adam.zero_grad()
        loss.backward()
        adam.step()
    return net


def fitted(points, reader, *, rate=0.03, told=None):
    source = torch.Generator().manual_seed(0)
    net = LinearFilter(2, generator=source)
    with torch.no_grad():
        net.theta.copy_(3 * torch.eye(2))

    def build(stretch):
        return InformationPrivatizer(
            net,
            prior_of(points.secret, 2),
            Objective(budget=BUDGET, weight=stretch.weight),
            secret=Mlp(2, 2, (32,), generator=source),
            fixed_use=reader,
        )

    pace = Pace(BUDGET, steps=200, rate=rate, adversary_rate=5e-3, batch=256, seed=0)
    train, held = points.take(slice(1000, None)), points.take(slice(0, 1000))
    progress = None if told is None else lambda done, planned: told.append((done, planned))
    return fit_filter(build, train, held, pace, progress)


def test_the_secret_goes_and_the_use_stays(points, reader):
    told: list[tuple[int, int]] = []
    network, reading = fitted(points, reader, told=told)
    theta = network.theta
    use, secret = theta[:, 0].norm(), theta[:, 1].norm()
    assert secret < 0.7 < 2 < use, "the secret's coordinate drowns in the noise, the use's does not"
    assert reading.nats < 3 * BUDGET and 0.45 < reading.share < 0.62
    assert not theta.requires_grad and not network.training
    done = [step for step, _ in told]
    assert done == sorted(done) and told[-1][0] == told[-1][1]


def test_what_is_held_is_not_trained_on(points, reader, monkeypatch):
    trained, real = set(), fitting.train_privatizer

    def looking(method, data, *rest, **options):
        trained.add(len(data))
        real(method, data, *rest, **options)

    monkeypatch.setattr(fitting, "train_privatizer", looking)
    monkeypatch.setattr(fitting, "MOST", 0)
    fitted(points, reader)
    assert trained == {len(points) - 1000}


def test_a_rate_that_breaks_the_filter_is_refused(points, reader):
    with pytest.raises(PrivatizerError, match="lower"):
        fitted(points, reader, rate=3e37)
