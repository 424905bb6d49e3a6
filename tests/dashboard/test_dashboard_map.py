"""The map of samples by t-SNE: alike ones lie together, and what takes its place meanwhile."""

from __future__ import annotations

import time

import numpy as np
import pytest

from fedlens.dashboard.samples import embedding
from fedlens.dashboard.samples.embedding import Maps, find_map

pytest.importorskip("sklearn")
KINDS, EACH = 6, 40


@pytest.fixture
def features() -> np.ndarray:
    """Samples of six kinds, which their first two components hold apart badly."""
    random = np.random.default_rng(0)
    middles, kinds = 4 * np.eye(KINDS, 24, k=8), kinds_of()
    noise = random.normal(0, 1, (KINDS * EACH, 24)) * np.r_[6, 6, np.full(22, 0.3)]
    return (middles[kinds] + noise).astype(np.float32)


def kinds_of() -> np.ndarray:
    return np.random.default_rng(1).integers(0, KINDS, KINDS * EACH)


def share_beside_their_kind(placed: np.ndarray) -> float:
    far = np.linalg.norm(placed[:, None] - placed[None], axis=2)
    np.fill_diagonal(far, np.inf)
    kinds = kinds_of()
    return float((kinds[far.argmin(1)] == kinds).mean())


@pytest.mark.parametrize("landmarks", [1000, 120])
def test_alike_samples_lie_together_those_between_landmarks_too(
    features: np.ndarray, monkeypatch: pytest.MonkeyPatch, landmarks: int
) -> None:
    monkeypatch.setattr(embedding, "MOST_LANDMARKS", landmarks)
    placed = find_map(features)
    assert placed.shape == (len(features), 2) and np.isfinite(placed).all()
    assert share_beside_their_kind(placed) > share_beside_their_kind(features[:, :2]) + 0.2


def test_a_map_is_prepared_once_and_nothing_waits_for_it(features: np.ndarray) -> None:
    maps, deadline = Maps(), time.monotonic() + 400  # of a busy machine
    assert maps.get("these", features) == (None, True)
    while maps.get("these", features)[1]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    placed, later = maps.get("these", features)
    assert placed is not None and placed.shape == (len(features), 2) and not later
    assert maps.get("these", features)[0] is placed
    assert maps.get("few", features[:10]) == (None, False)


def test_without_scikit_learn_the_first_components_stay_the_map(
    features: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding, "find_spec", lambda _: None)
    assert Maps().get("these", features) == (None, False)
