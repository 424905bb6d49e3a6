"""Kept releases: what was released, bit for bit enough, beside what nodes were asked."""

from __future__ import annotations

import numpy as np
import pytest

from fedlens.server.config.mechanism import release_deviation
from fedlens.server.round import releases as kept
from fedlens.server.round.releases import ReleaseArchiveError, load_releases
from fedlens.server.run.directory import RunDirectory


def test_a_run_keeps_what_it_released_and_what_it_asked(small_config, run_small, tmp_path):
    config = small_config(tasks__critic__kind="frozen")
    run_small(config)
    found = load_releases(tmp_path / "run")
    assert [one.request.round for one in found] == [1, 2, 3]
    state = RunDirectory(tmp_path / "run").load_state()
    total = sum(one.release for one in found)
    assert np.allclose(total, state.arrays["tasks/critic/sum"], atol=1e-6)
    for one in found:
        task = config.tasks["critic"]
        assert one.deviation == release_deviation(config, task)
        assert one.request.mechanism.clipping_norm == task.clipping_norm
        assert (one.shape, one.classes) == ((1, 28, 28), 10)
        assert one.request.users == () and one.request.key == b""


def test_weights_of_later_rounds_come_back_whole_from_the_stretch_that_changed(
    small_config, run_small, tmp_path
):
    run_small(small_config(tasks__critic__kind="wgan"))
    first, _, third = load_releases(tmp_path / "run")
    assert first.request.weights.keys() == third.request.weights.keys()
    for name, vector in third.request.weights.items():
        assert vector.shape == first.request.weights[name].shape and np.isfinite(vector).all()
    assert any((third.request.weights[n] != v).any() for n, v in first.request.weights.items())


def test_a_stretch_is_what_differs():
    first = {"critic": np.arange(6, dtype=np.float32)}
    later = np.array([0, 1, 9, 3, 8, 5], np.float32)
    stretch, begin = kept._changed(later, first, "critic")
    assert begin == 2 and stretch.tolist() == [9, 3, 8]
    again = kept._Weights(first, {"critic": (begin, stretch)})
    assert (again["critic"] == later).all() and list(again) == ["critic"] and len(again) == 1
    assert again["critic"] is not again["critic"]  # nothing whole stays in memory
    with pytest.raises(ValueError, match="no such stretch"):
        kept._Weights(first, {"critic": (4, stretch)})
    assert kept._changed(first["critic"], first, "critic")[0].size == 0


def test_rounds_that_there_is_no_room_for_are_left_out_but_never_the_warm_ups(
    small_config, run_small, tmp_path, monkeypatch
):
    monkeypatch.setattr(kept, "MOST_BYTES", 1)
    run_small(small_config(tasks__critic__kind="wgan"))
    assert load_releases(tmp_path / "run") == []
    run_small(small_config(tasks__critic__kind="frozen"), name="warm")
    assert len(load_releases(tmp_path / "warm")) == 3


def test_a_sum_without_noise_is_no_release_and_is_not_kept(small_config, run_small, tmp_path):
    run_small(small_config(tasks__critic__kind="frozen", tasks__critic__noise_multiplier=0.0))
    assert load_releases(tmp_path / "run") == []


def test_a_damaged_file_is_named(small_config, run_small, tmp_path):
    run_small(small_config(tasks__critic__kind="frozen"))
    path = tmp_path / "run" / "releases" / "round-000002.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ReleaseArchiveError, match=r"round-000002\.safetensors is damaged"):
        load_releases(tmp_path / "run")
