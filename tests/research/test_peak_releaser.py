"""The rule that shows peaks: what goes out, what stands for the rest, and how it meets a budget."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from fedlens.data.attributes import load_private
from fedlens.models.shapes import ShapeError
from fedlens.privatizers.attacks.filter_files import load_filter, save_filter
from fedlens.privatizers.networks.peaks import PeakReleaser, fit_peaks, normalised, worth_of
from fedlens.privatizers.protocol import PrivatizerError


def _days(*days: list[float]) -> torch.Tensor:
    return torch.tensor(days)[..., None]


def _sent(net: PeakReleaser, records: torch.Tensor) -> torch.Tensor:
    released: torch.Tensor = net(records, torch.zeros(len(records), 0))
    return released


def test_a_days_worth_is_its_power_over_hours_in_use() -> None:
    found = worth_of(_days([3.0, 1.0, 0.1, 0.0], [0.1, 0.1, 0.1, 0.1]), 0.4)
    torch.testing.assert_close(found.flatten(), torch.tensor([10.01 / 2, 0.04]))


def test_peaks_go_out_and_everything_else_is_a_level() -> None:
    records = _days([3.0, 1.0, 0.1, 2.0], [1.5, 1.5, 1.5, 0.0], [0.2, 0.3, 0.1, 0.0])
    net = PeakReleaser(least=1.2, counted=0.4, worth=3.0, quiet=0.3, busy=0.6)
    wanted = _days([3.0, 0.6, 0.6, 2.0], [0.3] * 4, [0.3] * 4)
    assert torch.equal(_sent(net, records), wanted)


def test_what_is_below_the_peaks_changes_nothing_that_goes_out() -> None:
    """But through a day's worth: here it stays on its side of the threshold."""
    records = _days([3.0, 1.0, 0.1, 2.0])
    other = _days([3.0, 0.9, 0.3, 2.0])
    net = PeakReleaser(least=1.2, counted=0.4, worth=3.0)
    assert torch.equal(_sent(net, records), _sent(net, other))


@pytest.mark.parametrize("budget", [0.2, 0.3, 0.5])
def test_it_meets_its_budget_and_shows_no_more_than_that_takes(budget: float) -> None:
    records = load_private("embedded-household").train.records
    net = fit_peaks(records, budget, least=1.2, counted=0.4)
    assert budget - 0.02 < normalised(records, net) <= budget
    looser = fit_peaks(records, budget + 0.1, least=1.2, counted=0.4)
    assert looser.shown(records).sum() < net.shown(records).sum()
    assert bool((net.shown(records) | ~looser.shown(records)).all()), "days come in one order"


def test_a_budget_for_everything_shows_nothing_and_one_for_too_little_is_refused() -> None:
    records = load_private("embedded-household").train.records
    net = fit_peaks(records, 1.0, least=1.2, counted=0.4)
    assert math.isinf(float(net.worth)) and not net.shown(records).any()
    assert len(_sent(net, records).unique()) == 1
    with pytest.raises(PrivatizerError, match=r"every step above 1\.2 is released"):
        fit_peaks(records, 0.001, least=1.2, counted=0.4)


@pytest.mark.parametrize("name", ["least", "counted", "worth"])
def test_numbers_that_are_none_are_refused(name: str) -> None:
    usual = {"least": 1.2, "counted": 0.4, "worth": 2.0}
    with pytest.raises(ShapeError, match=f"{name}=-1"):
        PeakReleaser(**{**usual, name: -1.0})


def test_it_is_kept_in_a_file(tmp_path: Path) -> None:
    records = load_private("embedded-household").test.records[:50]
    net = fit_peaks(records, 0.3, least=1.2, counted=0.4)
    path = save_filter(net, (24, 1), tmp_path / "f.safetensors")
    again, shape = load_filter(path)
    assert shape == (24, 1) and isinstance(again, PeakReleaser)
    assert torch.equal(_sent(again, records), _sent(net, records))
