"""Bounds that are chosen on other data sets than they are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlens_research.worth.bounds import (
    JudgedRun,
    Mistakes,
    best_bound,
    left_out_one_by_one,
    main,
    mistakes_of,
)

NOISE = [JudgedRun(data, 0.1, 0.0) for data in "ab"]
GOOD = [JudgedRun(data, 0.7, 0.9) for data in "ab"]
ODD = [JudgedRun("c", 0.8, 0.0), JudgedRun("c", 0.9, 0.8)]


def test_a_bound_lies_between_noise_and_good_runs() -> None:
    assert best_bound([*NOISE, *GOOD]) == pytest.approx(0.4)
    assert mistakes_of(0.4, [*NOISE, *GOOD]) == Mistakes(0, 2, 0, 2)


def test_runs_between_noise_and_good_count_as_neither() -> None:
    assert mistakes_of(0.5, [JudgedRun("a", 0.1, 0.3), JudgedRun("a", 0.9, 0.3)]) == Mistakes()


def test_a_data_set_that_is_left_out_chooses_no_bound() -> None:
    found, bounds = left_out_one_by_one([*NOISE, *GOOD, *ODD])
    assert len(bounds) == 3 and bounds[2] == pytest.approx(0.4)
    assert found.taken >= 1  # the odd one's noise lies above what the others chose
    assert (found.noise, found.good) == (3, 3)


def test_the_table_in_use_is_read(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = repository / "research" / "results"
    main([results / "worth.csv", results / "rehearsals.csv"])
    assert "good ones called noise" in capsys.readouterr().out
