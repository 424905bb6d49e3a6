"""The run's key: drawn once, kept for as long as the run is, and the same over a resume."""

from __future__ import annotations

import pytest

from fedlens.server.config.tree import Config
from fedlens.server.run.directory import FILE, RunDirectory, RunKeyError, load_key, new_key


def test_a_key_is_drawn_once_and_kept_for_its_owner_alone(tmp_path):
    (tmp_path / "other").mkdir()
    first, again = (load_key(Config(), RunDirectory(tmp_path)) for _ in "ab")
    assert first == again and len(first) == 16
    assert load_key(Config(), RunDirectory(tmp_path / "other")) != first
    assert (tmp_path / FILE).stat().st_mode & 0o077 == 0


def test_in_test_mode_it_follows_from_the_seeds():
    keys = [
        new_key(Config().updated({"seed": seed, "privacy.fixed_seed": fixed}))
        for seed, fixed in ((1, 0), (1, 0), (2, 0), (1, 3))
    ]
    assert keys[0] == keys[1] and len(set(keys)) == 3


@pytest.mark.parametrize("text", ["", "00", "not hex at all"])
def test_a_damaged_key_is_refused_rather_than_drawn_anew(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RunKeyError, match="damaged"):
        load_key(Config(), RunDirectory(tmp_path))
