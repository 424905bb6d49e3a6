"""Bounds that are chosen on other data sets than they are tried on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedlens_research.worth.bounds import (
    JudgedRun,
    Mistakes,
    best_bound,
    called_clear,
    clear_bound,
    clear_by_others,
    left_out_one_by_one,
    main,
    mistakes_of,
)

NOISE = [JudgedRun(data, 0.1, 0.05, 0.0) for data in "ab"]
GOOD = [JudgedRun(data, 0.7, 0.35, 0.9) for data in "ab"]
ODD = [JudgedRun("c", 0.8, 0.25, 0.0), JudgedRun("c", 0.9, 0.3, 0.8)]


def test_a_bound_lies_between_noise_and_good_runs() -> None:
    assert best_bound([*NOISE, *GOOD]) == pytest.approx(0.4)
    assert mistakes_of(0.4, [*NOISE, *GOOD]) == Mistakes(0, 2, 0, 2)


def test_runs_between_noise_and_good_count_as_neither() -> None:
    between = [JudgedRun("a", signal, 0.1, 0.3) for signal in (0.1, 0.9)]
    assert mistakes_of(0.5, between) == Mistakes()


def test_a_data_set_that_is_left_out_chooses_no_bound() -> None:
    found, bounds = left_out_one_by_one([*NOISE, *GOOD, *ODD])
    assert len(bounds) == 3 and bounds[2] == pytest.approx(0.4)
    assert found.taken >= 1  # the odd one's noise lies above what the others chose
    assert (found.noise, found.good) == (3, 3)


def test_clear_begins_above_whatever_is_not_good() -> None:
    runs = [*NOISE, *GOOD, *ODD]
    assert clear_bound(runs) == pytest.approx(0.275)
    assert called_clear(0.275, runs) == (3, 0)
    (good, wrong), bounds = clear_by_others(runs)
    assert bounds[2] == pytest.approx(0.2)  # the others know of no noise that is recognised
    assert (good, wrong) == (3, 1)


def test_the_table_in_use_is_read(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = repository / "research" / "results"
    main([results / "worth.csv", results / "rehearsals.csv"])
    said = capsys.readouterr().out
    assert "good ones called noise" in said and "good ones called clear" in said
