"""The convolutional critic on the server: its steps, their falling rate, and its state."""

from __future__ import annotations

import numpy as np
import pytest
from run_tasks import context_of

from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.tasks.wgan import WganTask

SHAPE, CLASSES = (1, 28, 28), 10
FREE = {"tasks.critic.kind": "wgan", "tasks.critic.weight_limit": 0.0, "tasks.critic.width": 2}


def critic_of(**changes: object) -> WganTask:
    settings = {k.replace("__", "."): v for k, v in changes.items()}
    config = Config().updated({**FREE, **settings})
    return WganTask(context_of(config, "critic", shape=SHAPE, classes=CLASSES))


def steps(critic: WganTask, rounds: int) -> list[float]:
    """Lengths of the steps that releases of length 1 lead to."""
    release = np.full(critic.size, 1 / np.sqrt(critic.size))
    lengths = []
    for _ in range(rounds):
        before = critic.weights()
        critic.apply_release(release)
        lengths.append(float(np.linalg.norm(critic.weights() - before)))
    return lengths


def test_the_rate_falls_along_a_cosine_to_its_share_at_the_last_round():
    critic = critic_of(
        tasks__critic__optimiser="sgd",
        tasks__critic__rate=0.5,
        tasks__critic__last_rate=0.2,
        tasks__critic__rounds=5,
    )
    expected = [0.5 * (0.2 + 0.8 * (1 + np.cos(np.pi * k / 4)) / 2) for k in range(5)]
    np.testing.assert_allclose(steps(critic, 5), expected, rtol=1e-3)


def test_without_a_last_rate_no_rate_falls():
    critic = critic_of(
        tasks__critic__optimiser="sgd", tasks__critic__rate=0.5, tasks__critic__rounds=4
    )
    np.testing.assert_allclose(steps(critic, 4), 0.5, rtol=1e-3)


@pytest.mark.parametrize("optimiser", ["sgd", "momentum", "adam"])
def test_a_restored_critic_goes_on_where_it_was(optimiser):
    settings = {
        "tasks__critic__optimiser": optimiser,
        "tasks__critic__last_rate": 0.1,
        "tasks__critic__rounds": 6,
    }
    one, other = critic_of(**settings), critic_of(**settings)
    source = np.random.default_rng(4)
    releases = source.normal(0, 0.01, (6, one.size))
    for release in releases[:3]:
        one.apply_release(release)
    other.restore(one.state())
    for release in releases[3:]:
        one.apply_release(release)
        other.apply_release(release)
    assert np.array_equal(one.weights(), other.weights())


def test_plain_descent_keeps_the_ratio_of_signal_to_noise_and_adam_does_not():
    """One coordinate in a hundred holds a steady signal, four times the noise of each."""

    def gained(optimiser: str) -> float:
        critic = critic_of(tasks__critic__optimiser=optimiser, tasks__critic__rate=0.001)
        source, start = np.random.default_rng(1), critic.weights()
        signal = np.zeros(critic.size)
        signal[::100] = 4.0
        for _ in range(50):
            critic.apply_release(signal + source.normal(0, 1, critic.size))
        moved = critic.weights() - start
        spread = float(np.sqrt((moved[signal == 0] ** 2).mean()))
        return float(moved[signal > 0].mean()) / spread

    assert gained("sgd") > 3 * gained("adam") > 0


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(ConfigError, match=r"tasks\.critic\.last_rate"):
        Config().updated({**FREE, "tasks.critic.last_rate": share})


def test_its_request_carries_critic_and_generator_and_the_settings_of_both():
    config = Config().updated({**FREE, "generator.width": 16, "generator.latent": 8})
    weights = np.arange(3, dtype=np.float32)
    critic = WganTask(context_of(config, "critic", generator_weights=lambda: weights))
    asked = critic.request()
    assert np.array_equal(asked.weights["generator"], weights)
    assert np.array_equal(asked.weights["critic"], critic.weights())
    settings = asked.settings.model_dump()
    assert (settings["generator_width"], settings["generator_latent"]) == (16, 8)
    assert settings["weight_limit"] == 0.0 and settings["width"] == 2
