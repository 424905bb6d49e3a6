"""Studies keep rows as they come: one that is killed loses the row at work and no other."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from fedlens.foundation.tables import Row
from fedlens_research.framework.pieces import Piece, PieceStore
from fedlens_research.framework.study import SeedTrial, Study, run_seeds


@dataclass(frozen=True)
class Steps:
    """Settings of a study of three rows."""

    points: tuple[int, ...] = (1, 2, 3)


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A study whose rows are counted as they are made; it dies at the second, once."""
    made, deaths = list[int](), itertools.count()

    def run_seed(settings: Steps, trial: SeedTrial) -> list[Row]:
        rows: list[Row] = []
        for point in settings.points:

            def measure(point: int = point) -> Piece:
                if point == 2 and next(deaths) == 0:
                    raise Killed
                made.append(point)
                return Piece([{"point": point, "seed": trial.seed}], {"shown": torch.ones(point)})

            found = trial.piece({"point": point}, measure)
            assert found.shown["shown"].shape == (point,)
            rows += found.rows
        return rows

    module: Any = ModuleType("a_study_of_three_rows")
    module.COLUMNS, module.SETTINGS, module.run_seed = ("point",), Steps, run_seed
    module.draw = lambda rows, settings, out: None
    monkeypatch.setitem(sys.modules, module.__name__, module)
    yield made


def _run(out: Path, seeds: Sequence[int] = (0,), settings: Steps | None = None) -> list[Row]:
    study = Study("a_study_of_three_rows", "about nothing")
    return run_seeds(
        study, settings or Steps(), seeds=seeds, data_dir=None, out=out, report=lambda _: None
    )


def test_a_killed_study_goes_on_after_the_rows_that_it_had(
    counted: list[int], tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        _run(tmp_path)
    assert counted == [1]
    assert [row["point"] for row in _run(tmp_path)] == [1, 2, 3]
    assert counted == [1, 2, 3], "the first was not measured again"
    _run(tmp_path)
    assert counted == [1, 2, 3]


def test_other_settings_and_seeds_have_rows_of_their_own(
    counted: list[int], tmp_path: Path
) -> None:
    with pytest.raises(Killed):
        _run(tmp_path)
    assert [row["seed"] for row in _run(tmp_path, (1,), Steps((1,)))] == [1]
    assert counted == [1, 1]


@pytest.mark.parametrize("suffix", [".json", ".safetensors"])
def test_a_piece_that_was_cut_short_is_made_again(tmp_path: Path, suffix: str) -> None:
    store, made = PieceStore(tmp_path, {"study": "one"}), list[int]()

    def make() -> Piece:
        made.append(1)
        return Piece([{"value": float("nan")}], {"shown": torch.arange(4.0)})

    first = store.piece({"a": 1}, make)
    assert first.rows == [{"value": None}] and len(made) == 1
    (path,) = tmp_path.glob(f"*{suffix}")
    path.write_bytes(path.read_bytes()[:-10])
    again = store.piece({"a": 1}, make)
    assert again.rows == first.rows and len(made) == 2
    assert torch.equal(store.piece({"a": 1}, make).shown["shown"], torch.arange(4.0))
    assert len(made) == 2
