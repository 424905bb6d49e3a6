"""Hostile nodes of the study send what is taken, and what they send arrives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import poisoning
from harness.hostile_nodes import ATTACKS


@pytest.fixture
def small(monkeypatch):
    few = {"data.users": 30, "data.nodes": 3, "data.samples_per_user": 3, "privacy.delta": 1e-3}
    monkeypatch.setattr(poisoning, "SETTINGS", {**poisoning.SETTINGS, **few})
    poisoning.mean_update.cache_clear()
    yield
    poisoning.mean_update.cache_clear()


def test_no_attack_is_refused_and_each_moves_the_sum(small, caplog):
    honest = poisoning.mean_update("none", 0.0, 0)
    clip, sent = 0.3, {name: poisoning.mean_update(name, 0.0, 0) for name in ATTACKS}
    moved = {name: float(np.linalg.norm(found - honest)) for name, found in sent.items()}
    assert "refused" not in caplog.text
    assert moved.pop("none") == 0 and min(moved.values()) > 1e-3
    assert max(moved.values()) <= 2 * clip / 3  # 2mC of 10 users in 30
    assert moved["trigger"] < moved["trigger, boosted"]
    assert moved["labels moved"] < moved["labels moved, boosted"]


def test_trimming_holds_what_it_may(small):
    honest = poisoning.mean_update("none", 0.0, 0)
    for name in ("trigger, boosted", "sum turned round"):
        plain, trimmed = (poisoning.mean_update(name, share, 0) for share in (0.0, 0.34))
        assert np.linalg.norm(trimmed - honest) < np.linalg.norm(plain - honest)
