"""Paper 003 as published: what it clips, what it measures, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from fedlens.cli.simulate import preset_names
from fedlens.data.registry import load
from fedlens.server.config.loading import read_config
from fedlens.server.config.tree import Config
from fedlens_research.framework.errors import TrialFailed
from fedlens_research.table1 import published, published_training
from fedlens_research.table1.rows import ROWS

SMALL = {
    "data.users": 2,
    "privacy.unit": "record",
    "tasks.critic.noise_multiplier": 0.1,
    "tasks.critic.clipping_norm": 1.0,
    "privacy.fixed_seed": 3,
    "privacy.delta": 1e-5,
    "tasks.critic.rounds": 4,
    "tasks.critic.kind": "wgan",
    "tasks.critic.width": 2,
    "tasks.critic.hidden": 8,
    "tasks.critic.local_batch": 64,
    "tasks.critic.rate": 0.02,
    "tasks.critic.generator_steps": 1,
    "generator.batch": 20,
    "generator.width": 8,
}


@pytest.fixture
def config():
    return Config().updated(SMALL)


def whole_gradient(training, images, labels):
    """By automatic differentiation of the mean, without any of the recipe's own code."""
    critic = training._critic
    score = -critic(images, labels).mean()
    parts = torch.autograd.grad(score, list(critic.parameters()))
    return torch.cat([part.reshape(-1) for part in parts])


def test_the_distances_are_those_of_means_with_one_record_left_out(config):
    """Without clip or sparsity in the way, they are what leaving records out by hand gives."""
    dataset = load("embedded")
    loose = config.updated({"tasks.critic.clipping_norm": 1e6})
    training = published_training.PublishedRecipe(loose, dataset)
    images, labels = next(training._batches())
    training._mask = lambda: torch.ones(sum(p.numel() for p in training._critic.parameters()))
    means = []
    for i in range(published_training.LEFT_OUT):
        rest = torch.arange(len(labels)) != i
        means.append(whole_gradient(training, images[rest], labels[rest]).double().numpy())
    training._critic_step(images, labels, 1)
    expected = [np.linalg.norm(a - b) for i, a in enumerate(means) for b in means[i + 1 :]]
    assert len(expected) == 28
    np.testing.assert_allclose(training._distances[0], expected, rtol=2e-2, atol=1e-5)


def test_one_record_can_turn_the_clipped_mean_round():
    """Why the sensitivity is 2C: the others cancel, so what is left of the mean is one record's."""
    row = torch.tensor([[3.0, 4.0]])
    turned = published_training._clip(row, 1.0) - published_training._clip(-row, 1.0)
    assert float(turned.norm()) == pytest.approx(2.0)
    short = torch.tensor([[0.3, 0.4]])
    torch.testing.assert_close(published_training._clip(short, 1.0), short)


def test_its_own_figure_is_small_and_differential_privacy_says_next_to_nothing(config, tmp_path):
    found = published.published(config, tmp_path / "out")
    assert found["steps"] == 4
    assert found["epsilon_bdp_as_published"] < 5 < 100 < found["epsilon_dp"]
    assert found["epsilon_dp"] < found["epsilon_dp_moments"]
    assert found["epsilon_dp"] < found["epsilon_dp_at_bdp_delta"]
    assert 0 < found["distances"]["median"] <= found["distances"]["largest"] < 0.5
    assert 0 <= found["student_accuracy"] <= 1
    Image.open(found["contact_sheet"]).verify()
    json.dumps(found, allow_nan=False)


def test_as_a_provider_it_trains_once_and_says_what_protects_a_record(config, tmp_path):
    told = []
    first = published.train(config, tmp_path, told.append)
    kept = (tmp_path / "published.npy").stat().st_mtime_ns
    again = published.train(config, tmp_path, told.append)
    assert first == again
    assert (tmp_path / "published.npy").stat().st_mtime_ns == kept
    assert first.bdp_sound == first.epsilon_dp_at_bdp_delta > 100 > first.bdp_as_published
    assert "no record's part" in first.statement
    labels = torch.arange(20) % 10
    sampler = published.source(tmp_path, config.release)
    assert torch.equal(
        sampler.draw(labels, 1), published.source(tmp_path, config.release).draw(labels, 1)
    )


def test_a_batch_larger_than_the_data_is_refused(config, tmp_path):
    large = config.updated({"tasks.critic.local_batch": 10**6})
    with pytest.raises(TrialFailed, match="local_batch = 1000000"):
        published.published(large, tmp_path)


def test_the_preset_has_the_notebooks_numbers_and_says_that_it_protects_nobody():
    row = ROWS["mnist-record-paper003"]
    text = row.preset_path.read_text(encoding="utf-8")
    assert row.preset not in preset_names()  # whose mechanism would be another one
    assert text.startswith("# PROTECTS NOBODY")
    config = read_config(row.preset_path)
    recipe = config.tasks["critic"]
    assert (recipe.local_batch, recipe.rounds) == (1024, 1856)
    assert recipe.sampling_rate == pytest.approx(1024 / 60_000, rel=1e-5)
    assert (recipe.noise_multiplier, recipe.clipping_norm) == (0.1, 1.0)
