"""The paper's attacker by the labelling rule: what it reads, and how it takes "normal"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedlens.data.attributes import load_private
from fedlens.data.attributes.thickness import ROWS, AnnotatedRule
from fedlens.privatizers.private_data import PrivateData
from fedlens_research.metrics.labelling import READINGS, read_by_rule, rule_of

MEAN = 6
RULE = AnnotatedRule((MEAN,) * 10)


class _Zero(nn.Module):
    """Reads every image as a zero."""

    def forward(self, records: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(torch.zeros(len(records), dtype=torch.int64), 10).float()


class _Known(nn.Module):
    """Reads what it is told, in order."""

    def __init__(self, digits: Tensor) -> None:
        super().__init__()
        self.digits, self.at = digits, 0

    def forward(self, records: Tensor) -> Tensor:
        part = self.digits[self.at : self.at + len(records)]
        self.at += len(records)
        return torch.nn.functional.one_hot(part, 10).float()


def _zeros(widths: list[int], sensitive: list[int]) -> PrivateData:
    """Images with so many pixels of ink in the row of a zero."""
    records = -torch.ones(len(widths), 1, 28, 28)
    for place, width in enumerate(widths):
        records[place, 0, ROWS[0], :width] = 1
    digits = torch.zeros(len(widths), dtype=torch.int64)
    truth = torch.tensor(sensitive)
    return PrivateData("zeros", records, digits, truth, None, None, 10, 2, low=-1.0, high=1.0)


def test_it_reads_nearly_all_of_raw_images() -> None:
    split = load_private("embedded-amnist")
    found = read_by_rule(rule_of(split.attack), _Known(split.test.utility), split.test, [-0.999], 0)
    assert found["tca"] > 0.9
    own = read_by_rule(RULE, _Known(split.test.utility), split.test, [-0.999], 0)
    assert own["tca"] < found["tca"], "means of other images fit worse"


@pytest.mark.parametrize(("normal", "reading"), [(0, "thin"), (1, "thick")])
def test_the_reading_of_normal_that_pays_is_taken(normal: int, reading: str) -> None:
    extreme = {0: 0, 1: 20}
    widths = [MEAN] * 40 + [extreme[1 - normal]] * 40
    data = _zeros(widths, [normal] * 40 + [1 - normal] * 40)
    assert read_by_rule(RULE, _Zero(), data, [0.0], 0) == {"tca": 1.0, "tca_normal": reading}


def test_where_all_is_normal_it_is_a_coin_within_chance() -> None:
    data = _zeros([MEAN] * 2000, [0, 1] * 1000)
    found = read_by_rule(RULE, _Zero(), data, [0.0], 3)
    assert 0.5 <= found["tca"] < 0.54 and found["tca_normal"] in READINGS


def test_the_threshold_that_reads_more_counts() -> None:
    data = _zeros([0] * 50 + [20] * 50, [0] * 50 + [1] * 50)
    grey = replace(data, records=data.records * 0.5 - 0.45)  # Ink is at 0.05, paper at -0.95
    by = {low: read_by_rule(RULE, _Zero(), grey, [low], 0)["tca"] for low in (-0.99, 0.0, 0.5)}
    assert by[0.0] == 1.0 and by[-0.99] < 0.6 and by[0.5] < 0.6
    assert read_by_rule(RULE, _Zero(), grey, [-0.99, 0.0], 0)["tca"] == 1.0


def test_the_rule_has_the_raw_images_means() -> None:
    split = load_private("embedded-amnist")
    means = rule_of(split.attack).means
    digits = split.attack.utility.numpy()
    ink = (split.attack.records > -1).numpy()[:, 0]
    for digit in (0, 7):
        widths = ink[digits == digit][:, ROWS[digit]].sum(1)
        assert means[digit] == int(np.mean(widths))
