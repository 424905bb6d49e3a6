"""The focused critic: what users send, what the server makes of it, and whole runs with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_tasks import RECORD_ANNOTATED, context_of, planned

from fedlens.client.messages import TrainRequest
from fedlens.client.tasks.focused import FocusedLocalTask
from fedlens.client.tasks.frozen import FrozenLocalTask
from fedlens.client.users.protocol import DataOrigin, LocalData
from fedlens.server.config.mechanism import mechanism, release_deviation
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.tasks.focused import FocusedTask
from fedlens.server.tasks.frozen import FrozenTask

SHAPE, CLASSES, EACH = (1, 28, 28), 3, 6


class _Users:
    shape, classes, partition, origin = SHAPE, CLASSES, 0, DataOrigin()


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
        planned(
            {
                "tasks.critic.kind": "focused",
                "tasks.critic.components": 12,
                "tasks.warmup.rounds": 1,
                "tasks.critic.noise_multiplier": 0.0,
                "tasks.warmup.noise_multiplier": 0.0,
                "data.users": 10,
                "data.nodes": 1,
            }
        )
    )


def _cohort():
    images, labels = _images(10 * EACH, 5)
    return [LocalData(x, y) for x, y in zip(images.split(EACH), labels.split(EACH), strict=True)]


def _warm(config):
    """A frozen critic that has taken in what ten users release without noise."""
    critic = FrozenTask(context_of(config, "warmup", shape=SHAPE, classes=CLASSES))
    request = _request(config, "warmup", critic)
    rows = FrozenLocalTask(_Users, request).updates(_cohort(), [0] * 10)
    critic.apply_release(rows.sum(0).double().numpy() / 10)
    return critic


def _request(config, name, task):
    settings, asked = config.tasks[name], task.request()
    return TrainRequest(
        round=1,
        users=(),
        kind=settings.kind,
        mechanism=mechanism(config, settings),
        settings=asked.settings.model_dump(),
        weights=asked.weights,
        seed=0,
        enrolled=0,
        key=b"key",
        records_per_user=EACH,
    )


def _focused(config, warmup=None):
    earlier = {"warmup": warmup or _warm(config)}
    return FocusedTask(context_of(config, "critic", shape=SHAPE, classes=CLASSES, **earlier))


def _updates(config, critic):
    request = _request(config, "critic", critic)
    return FocusedLocalTask(_Users, request).updates(_cohort(), [0] * 10).view(10, CLASSES, 12)


def test_without_noise_the_target_is_the_real_class_means_whatever_the_centres(config):
    warmup = _warm(config)
    critic = _focused(config, warmup)
    for seed in (1, 2):  # two rounds with different centres
        critic.prepare(lambda seed=seed: _images(300, seed))
        critic.apply_release(_updates(config, critic).mean(0).reshape(-1).double().numpy())
    real = torch.from_numpy(warmup.means).float() @ critic._sharp().basis
    assert torch.allclose(critic._target, real, atol=1e-3)


def test_focused_updates_are_shorter_than_whole_ones(config):
    critic = _focused(config)
    critic.prepare(lambda: _images(300, 1))
    request = _request(config, "warmup", _warm(config))
    whole = FrozenLocalTask(_Users, request).updates(_cohort(), [0] * 10)
    lengths = _updates(config, critic).flatten(1).norm(dim=1) / whole.norm(dim=1)
    assert float(lengths.mean()) < 0.7


def test_images_like_the_real_ones_have_the_smaller_loss(config):
    critic = _focused(config)
    critic.prepare(lambda: _images(300, 1))
    critic.apply_release(_updates(config, critic).mean(0).reshape(-1).double().numpy())
    images, labels = _images(90, 7)
    order = torch.argsort(labels, stable=True)
    alike = critic.loss(images[order], labels[order])
    assert alike < critic.loss(images[order].flip(0), labels[order])


def test_a_state_is_taken_up_whole(config):
    warmup = _warm(config)
    critic = _focused(config, warmup)
    critic.restore(critic.state())  # before there is a focus
    critic.prepare(lambda: _images(300, 1))
    critic.apply_release(_updates(config, critic).mean(0).reshape(-1).double().numpy())
    other = _focused(config, warmup)
    other.restore(critic.state())
    images, labels = _images(90, 7)
    order = torch.argsort(labels, stable=True)
    assert torch.equal(
        other.loss(images[order], labels[order]), critic.loss(images[order], labels[order])
    )
    ours, theirs = (task.request().weights["critic"] for task in (critic, other))
    assert np.array_equal(ours, theirs)


def test_noise_that_the_focus_was_taken_from_is_no_signal(config):
    """A generator that learned the warm-up's noise gives a focus along which that noise is large.

    Classes are alike, all else is noise: what is called signal is chance, and 0 but for the cut.
    """
    noisy = {f"tasks.{name}.noise_multiplier": 4.0 for name in ("warmup", "critic")}
    config = config.updated(noisy | {"tasks.critic.components": COMPONENTS})
    found = [_signal_of_noise(config, np.random.default_rng(seed)) for seed in range(20)]
    assert np.mean(found) < 0.08


COMPONENTS = 100


def _signal_of_noise(config, source):
    warmup = FrozenTask(context_of(config, "warmup", shape=SHAPE, classes=CLASSES))
    rows = source.normal(0, release_deviation(config, config.tasks["warmup"]), warmup.size)
    rows = rows.reshape(CLASSES, -1)
    rows[:, -1] = 1 / CLASSES * warmup.features.mass
    warmup.apply_release(rows.reshape(-1))
    spread = warmup.means - warmup.means.mean(0)
    others = source.normal(size=(spread.shape[1], COMPONENTS - CLASSES + 1))
    basis, _ = np.linalg.qr(np.hstack([spread[1:].T, others]))
    critic = _focused(config, warmup)
    deviation = release_deviation(config, config.tasks["critic"]) / warmup.mass[0, 0]
    focus = np.concatenate([basis.reshape(-1), np.zeros(CLASSES * COMPONENTS)])
    critic.restore(
        {
            "focus": focus.astype(np.float32),
            "origin": np.zeros(COMPONENTS),
            "sum": source.normal(0, deviation, (CLASSES, COMPONENTS)),
            "releases": np.array(1),
        }
    )
    return critic.signal().mean()


def test_it_needs_a_frozen_task_before_it():
    with pytest.raises(ConfigError, match=r"tasks\.critic\.kind = 'focused'.* of kind 'frozen'"):
        Config().updated({"tasks.critic.kind": "focused"})


@pytest.mark.parametrize("mode", [{}, RECORD_ANNOTATED], ids=["user", "record"])
def test_a_whole_run_charges_and_repeats_itself(annotated, run_small, mode):
    focused = {
        "tasks.critic.kind": "focused",
        "tasks.critic.components": 8,
        "tasks.warmup.rounds": 1,
        "tasks.warmup.generator_steps": 2,
        "tasks.critic.rounds": 2,
    }
    first = run_small(annotated(focused, mode), "one")
    assert first.rounds == 5
    assert first.model_sha256 == run_small(annotated(focused, mode), "two").model_sha256


def _plain_loss(critic, rows, labels):
    """Kernel two-sample distance of Gretton et al. along the focus, by the definition."""
    focus, total = critic._focus, 0.0
    placed = rows[:, :-1] @ focus.basis
    for label in range(CLASSES):
        own = placed[labels == label] - critic._target[label]
        gram = own @ own.mT
        total = total + (gram.sum() - gram.trace()) / (len(own) * (len(own) - 1))
    return total


def test_its_loss_is_the_unbiased_distance(config):
    critic = _focused(config)
    critic.prepare(lambda: _images(60, 1))
    images, _ = _images(30 * CLASSES, 2)
    labels = torch.arange(CLASSES).repeat_interleave(30)
    images = torch.cat([images[c::CLASSES] for c in range(CLASSES)])
    rows = critic._warmup.features(images)
    expected = float(_plain_loss(critic, rows, labels))
    assert float(critic.loss(images, labels)) == pytest.approx(expected, rel=1e-3)


def test_two_losses_of_one_step_compute_features_once(config, monkeypatch):
    critic = _focused(config)
    critic.prepare(lambda: _images(60, 1))
    images, labels = _images(6 * CLASSES, 2)
    seen, warmup = [], critic._warmup
    real = warmup.features.forward
    monkeypatch.setattr(warmup.features, "forward", lambda x: (seen.append(1), real(x))[1])
    images.requires_grad_()
    for _ in range(2):
        (warmup.loss(images, labels) + critic.loss(images, labels)).backward()
        images = images.detach().clone().requires_grad_()
    assert len(seen) == 2
