"""The kernel study: a bounded embedding, and a generator that is trained to it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlens.data.embedded import load_embedded
from fedlens_research.framework.errors import StudyError
from fedlens_research.papers import KERNEL
from fedlens_research.papers.kernel import (
    Embedding,
    KernelFeatures,
    KernelSettings,
    embed,
    train_generator,
    weights_of,
)

SMALL = {"features": 60, "steps": 30, "batch": 40, "images": 200, "widths": [0.5]}


@pytest.fixture(scope="module")
def settings() -> KernelSettings:
    found: KernelSettings = KERNEL.settings(quick=True, changes=SMALL)
    return found


@pytest.fixture(scope="module")
def digits():
    whole = load_embedded()
    users = np.arange(len(whole.train_labels)) % 700
    return replace(whole, user_ids=users.astype(np.int64))


def features_of(settings: KernelSettings, width: float = 0.5) -> KernelFeatures:
    return KernelFeatures(28 * 28, settings, width, seed=0)


@pytest.mark.parametrize("unit", ["user", "record"])
def test_one_unit_changes_the_sum_by_its_sensitivity(settings, digits, unit: str) -> None:
    features = features_of(settings)
    weights, units = weights_of(digits, unit)
    assert units == (700 if unit == "user" else len(digits.train_labels))
    gone = digits.user_ids == 5 if unit == "user" else np.arange(len(weights)) == 5
    without = np.where(gone, 0.0, weights)
    change = embed(digits, features, weights) - embed(digits, features, without)
    size = float(np.linalg.norm(change))
    assert size <= 1 + 1e-5
    assert size > (0.99 if unit == "record" else 0.2)  # a user's rows point different ways


def test_users_need_ids(digits) -> None:
    with pytest.raises(StudyError, match="no user_ids"):
        weights_of(replace(digits, user_ids=None), "user")


def test_an_embedding_without_noise_is_that_of_the_classes(settings, digits) -> None:
    features = features_of(settings)
    weights, units = weights_of(digits, "record")
    found = Embedding.of(embed(digits, features, weights), units)
    mine = digits.train_labels == 3
    images = torch.from_numpy(digits.train_images[mine].copy()).float() / 127.5 - 1
    assert torch.allclose(found.means[3], features.rows(images).mean(0), atol=1e-4)
    assert float(found.shares.mean()) == pytest.approx(1)


def test_the_distance_is_told_apart_from_what_chance_adds(settings, digits) -> None:
    """Of samples of the data themselves it is about 0, however few; of others it is not."""
    features = features_of(settings)
    weights, units = weights_of(digits, "record")
    target = Embedding.of(embed(digits, features, weights), units)
    source = np.random.default_rng(0)

    def mean_distance(shift: int) -> float:
        found = []
        for _ in range(20):
            places = [
                source.choice(np.flatnonzero(digits.train_labels == (c + shift) % 10), 4)
                for c in range(10)
            ]
            pixels = digits.train_images[np.concatenate(places)]
            images = torch.from_numpy(pixels.copy()).float() / 127.5 - 1
            found.append(float(target.distance(features.rows(images))))
        return float(np.mean(found))

    assert abs(mean_distance(0)) < mean_distance(1) / 10


def test_a_generator_comes_nearer_to_what_was_released(settings, digits) -> None:
    features = features_of(settings)
    weights, units = weights_of(digits, "record")
    target = Embedding.of(embed(digits, features, weights), units)
    labels = torch.arange(10).repeat_interleave(20)

    def distance(steps: int) -> float:
        made = train_generator(replace(settings, steps=steps), digits, features, target, 0)
        return float(target.distance(features.rows(made.draw(labels, 1))))

    assert distance(30) < distance(1) / 2
