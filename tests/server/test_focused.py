"""The focused critic: what users send, what the server makes of it, and whole runs with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_parts import RECORD

from client.data import LocalData
from client.messages import TrainRequest
from client.tasks.focused import FocusedLocalCritic
from client.tasks.frozen import FrozenLocalCritic
from server.config.tree import Config, ConfigError
from server.tasks.focused import FocusedCritic
from server.tasks.frozen import FrozenCritic

SHAPE, CLASSES, EACH = (1, 28, 28), 3, 6


class _Users:
    shape, classes, partition = SHAPE, CLASSES, 0


def _images(n, seed):
    """Bars of one direction a class, at random places: class c is recognisable, images differ."""
    source = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % CLASSES
    images = torch.full((n, *SHAPE), -1.0)
    for i, label in enumerate(labels):
        at = int(torch.randint(6, 22, (), generator=source))
        if label == 0:
            images[i, 0, at - 1 : at + 1] = 1.0
        elif label == 1:
            images[i, 0, :, at - 1 : at + 1] = 1.0
        else:
            images[i, 0, at - 3 : at + 3, at - 3 : at + 3] = 1.0
    return images, labels


@pytest.fixture
def config():
    return Config().updated(
        {
            "critic.family": "focused",
            "critic.components": 12,
            "warmup.rounds": 1,
            "privacy.noise_multiplier": 0.0,
            "warmup.noise_multiplier": 0.0,
            "data.users": 10,
        }
    )


def _cohort():
    images, labels = _images(10 * EACH, 5)
    return [LocalData(x, y) for x, y in zip(images.split(EACH), labels.split(EACH), strict=True)]


def _warm(config):
    """A warm-up critic that has absorbed what ten users release without noise."""
    critic = FrozenCritic(config, SHAPE, CLASSES, config.warmup)
    request = TrainRequest(1, (), {"feature_seed": 123}, {}, 0)
    rows = FrozenLocalCritic(_Users, request).updates(_cohort(), [0] * 10)
    total = torch.zeros(CLASSES, rows.values.shape[1]).index_add_(0, rows.places, rows.values)
    critic.apply_release(total.reshape(-1).double().numpy() / 10)
    return critic


def _updates(critic):
    request = TrainRequest(2, (), {"feature_seed": 123}, {"critic": critic.weights()}, 0)
    blocks = FocusedLocalCritic(_Users, request).updates(_cohort(), [0] * 10)
    dense = torch.zeros(10, CLASSES, 12)
    dense[blocks.owners, blocks.places] = blocks.values
    return dense


def test_without_noise_the_target_is_the_real_class_means_whatever_the_centres(config):
    warmup = _warm(config)
    critic = FocusedCritic(config, SHAPE, CLASSES, warmup)
    for seed in (1, 2):  # two rounds with different centres
        critic.look(*_images(300, seed))
        critic.apply_release(_updates(critic).mean(0).reshape(-1).double().numpy())
    real = torch.from_numpy(warmup.means).float() @ critic._sharp().basis
    assert torch.allclose(critic._target, real, atol=1e-3)


def test_focused_updates_are_shorter_than_whole_ones(config):
    critic = FocusedCritic(config, SHAPE, CLASSES, _warm(config))
    critic.look(*_images(300, 1))
    request = TrainRequest(1, (), {"feature_seed": 123}, {}, 0)
    whole = FrozenLocalCritic(_Users, request).updates(_cohort(), [0] * 10)
    lengths = torch.zeros(10).index_add_(0, whole.owners, whole.values.square().sum(1)).sqrt()
    assert float((_updates(critic).flatten(1).norm(dim=1) / lengths).mean()) < 0.7


def test_images_like_the_real_ones_have_the_smaller_loss(config):
    critic = FocusedCritic(config, SHAPE, CLASSES, _warm(config))
    critic.look(*_images(300, 1))
    critic.apply_release(_updates(critic).mean(0).reshape(-1).double().numpy())
    images, labels = _images(90, 7)
    order = torch.argsort(labels, stable=True)
    alike = critic.loss(images[order], labels[order])
    assert alike < critic.loss(images[order].flip(0), labels[order])


def test_a_state_is_taken_up_whole(config):
    warmup = _warm(config)
    critic = FocusedCritic(config, SHAPE, CLASSES, warmup)
    critic.restore(critic.state())  # before there is a focus
    critic.look(*_images(300, 1))
    critic.apply_release(_updates(critic).mean(0).reshape(-1).double().numpy())
    other = FocusedCritic(config, SHAPE, CLASSES, warmup)
    other.restore(critic.state())
    images, labels = _images(90, 7)
    order = torch.argsort(labels, stable=True)
    assert torch.equal(
        other.loss(images[order], labels[order]), critic.loss(images[order], labels[order])
    )
    assert np.array_equal(other.weights(), critic.weights())


def test_it_needs_a_warm_up():
    with pytest.raises(ConfigError, match=r"warmup.rounds = 0"):
        Config().updated({"critic.family": "focused"})


@pytest.mark.parametrize("mode", [{}, RECORD], ids=["user", "record"])
def test_a_whole_run_charges_and_repeats_itself(parted, run_small, mode):
    focused = {
        "critic.family": "focused",
        "critic.components": 8,
        "warmup.rounds": 1,
        "warmup.steps": 2,
        "rounds.count": 2,
    }
    first = run_small(parted(focused, mode), "one")
    assert first.rounds == 5
    assert first.model_sha256 == run_small(parted(focused, mode), "two").model_sha256
