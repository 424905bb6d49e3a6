"""Files are whole or not there; figures are never rounded to a better promise."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedlens.foundation.files import make_folder_durably, write_durably
from fedlens.foundation.json_values import json_value
from fedlens.foundation.rounding import rounded_up


def test_a_file_is_replaced_whole_and_nothing_is_left_beside(tmp_path: Path) -> None:
    path = tmp_path / "state"
    (tmp_path / "state.part").write_bytes(b"of a process that died")
    for content in (b"first", b"second"):
        write_durably(path, content)
        assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    write_durably(path, b"old")

    def full(_descriptor: int) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="disk full"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_private_file_is_its_owner_s_alone(tmp_path: Path) -> None:
    path = tmp_path / "norms"
    write_durably(path, b"", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_folders_are_made_with_those_they_lie_in(tmp_path: Path) -> None:
    for _ in range(2):
        make_folder_durably(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@given(st.floats(1e-300, 1e300), st.integers(1, 6))
def test_rounding_never_promises_more_and_stays_within_a_unit(value: float, digits: int) -> None:
    shown = rounded_up(value, digits)
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    assert value * (1 - 1e-8) <= shown <= value + 1.001 * unit
    assert float(f"{shown:.{digits}g}") == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.2301, 1.24), (1.23, 1.23), (0.0, 0.0), (math.inf, math.inf), (5e-324, 5e-324)],
)
def test_figures_rounded_to_three_digits(value: float, shown: float) -> None:
    assert rounded_up(value, 3) == shown


def test_what_is_not_finite_is_null_at_any_depth() -> None:
    value = {"a": (1.5, math.inf), "b": [{"c": -math.inf, "d": "text"}], "e": math.nan}
    found = json_value(value)
    assert found == {"a": [1.5, None], "b": [{"c": None, "d": "text"}], "e": None}
    json.dumps(found, allow_nan=False)
