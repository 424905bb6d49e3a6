"""The convolutional critic on a node: one step against the mean of each class's fakes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fedlens.client.tasks.wgan import WganLocalTask
from fedlens.client.users.protocol import LocalData
from fedlens.models.critics import WganCritic
from fedlens.models.limits import clamp_weights, weight_limits

LOSSES = pytest.mark.parametrize("loss", ["wasserstein", "hinge"])


@LOSSES
def test_one_step_is_plain_sgd_against_the_mean_of_each_classs_fakes(users, make_request, loss):
    request = make_request(0, kind="wgan", loss=loss)
    local = WganLocalTask(users, request)
    data = users.user(0)
    updated = local.updates([data], [7])[0]

    critic = WganCritic(users.shape, users.classes)
    vector_to_parameters(torch.from_numpy(request.weights["critic"].copy()), critic.parameters())
    start = parameters_to_vector(critic.parameters()).detach().clone()
    real = critic(data.images, data.labels)
    value = F.relu(1 - real).mean() if loss == "hinge" else -real.mean()
    for label in data.labels.tolist():
        fakes = local._user_steps._fakes[label]
        fake = critic(fakes, torch.full((len(fakes),), label))
        part = F.relu(1 + fake).mean() if loss == "hinge" else fake.mean()
        value = value + part / len(data.labels)
    value.backward()
    with torch.no_grad():
        for p in critic.parameters():
            p -= 0.05 * p.grad
    clamp_weights(critic, weight_limits(critic, 2.0))
    plain = parameters_to_vector(critic.parameters()).detach() - start
    assert float((updated - plain).norm() / plain.norm()) < 2e-3


def test_a_user_whose_images_are_the_generators_changes_nothing(users, make_request):
    """What all users have in common with the generator takes up none of their clip."""
    free = {"local_batch": 25, "weight_limit": 0.0}
    request = make_request(0, kind="wgan", records_per_user=25, **free)
    local = WganLocalTask(users, request)
    fakes = LocalData(local._user_steps._fakes[3], torch.full((25,), 3))
    others = LocalData(users.user(0).images[:1].repeat(25, 1, 1, 1), torch.full((25,), 3))
    same, other = local.updates([fakes, others], [1, 2])
    assert float(same.norm()) < 1e-2 * float(other.norm())


@pytest.mark.parametrize("steps", [1, 2])
def test_no_update_leads_beyond_the_weights_limits(users, make_request, steps):
    settings = {"weight_limit": 0.5, "local_rate": 100.0}
    request = make_request(0, kind="wgan", local_steps=steps, **settings)
    request.weights["critic"] *= 0.2
    local = WganLocalTask(users, request)
    row = local.updates([users.user(0)], [1])[0]
    critic = WganCritic(users.shape, users.classes)
    reached = torch.from_numpy(request.weights["critic"]) + row
    vector_to_parameters(reached, critic.parameters())
    limits = weight_limits(critic, 0.5)
    largest = {k: float(p.detach().abs().max()) / limits[k] for k, p in critic.named_parameters()}
    assert max(largest.values()) == pytest.approx(1, abs=1e-4)
