"""What a provider is asked about before there is a filter: records behind masks of every kind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from client.privatizers.black_box import Explorer, ask, train_substitute
from client.privatizers.protocol import PrivatizerError
from client.privatizers.variations import GREATEST_RATIO, Variations
from models.classifiers import Mlp

FAR = 1000.0
"""So far from the records that were met that what is sent of it cannot be taken for noise."""


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int, seed: int) -> Tensor:
    """Pictures in [-1, 1] whose upper half never changes."""
    drawn = torch.rand(count, 1, 12, 10, generator=seeded(seed)) * 2 - 1
    drawn[:, :, :6] = -1
    return drawn


def test_variations_are_repeated_by_an_equal_generator_and_by_no_other() -> None:
    vary, some = Variations(images(50, 0), 1.0), images(20, 1)
    first = vary(some, seeded(3))
    assert first.shape == some.shape
    assert first.dtype == torch.float32
    assert torch.equal(first, vary(some, seeded(3)))
    assert not torch.equal(first, vary(some, seeded(4)))


def test_what_stands_for_suppressed_entries_depends_on_no_record() -> None:
    vary = Variations(images(50, 0), 1.0)
    one, other = (vary(torch.full((400, 1, 12, 10), far), seeded(3)) for far in (FAR, -FAR))
    sent = one > FAR / 2
    assert torch.equal(sent, other < -FAR / 2)
    assert torch.equal(one[~sent], other[~sent])
    shares = sent.flatten(1).double().mean(1)
    assert float(shares.min()) >= 1 - GREATEST_RATIO - 1e-9
    assert float(shares.min()) < 0.15
    assert float(shares.max()) > 0.9


def test_entries_that_vary_are_sent_more_often_than_those_that_never_do() -> None:
    vary = Variations(images(50, 0), 1.0)
    sent = vary(torch.full((400, 1, 12, 10), FAR), seeded(3)) > FAR / 2
    often = sent.double().mean((0, 1))
    assert float(often[6:].mean()) > float(often[:6].mean()) + 0.2
    assert float(often[:6].min()) > 0.05  # none is left out of all masks


def test_records_without_neighbours_are_varied_too() -> None:
    records = torch.randn(100, 6, generator=seeded(0))
    varied = Variations(records, 0.5)(records, seeded(1))
    assert varied.shape == records.shape
    assert not torch.equal(varied, records)
    assert bool(varied.isfinite().all())


@pytest.mark.parametrize(("count", "most"), [(1, 1.0), (5, 0.0), (5, float("nan"))])
def test_too_few_records_and_no_noise_are_refused(count: int, most: float) -> None:
    with pytest.raises(PrivatizerError, match="give at least two records and noise above 0"):
        Variations(torch.zeros(count, 3), most)


def test_an_explorer_asks_about_others_each_time() -> None:
    records = torch.randn(100, 6, generator=seeded(0))

    def answers(rows: Tensor) -> Tensor:
        return rows.sum(1).gt(0).long()

    explore = Explorer(answers, records, Variations(records, 0.5), seeded(1))
    (first, said), (second, _) = explore(30), explore(30)
    assert first.shape == (30, 6)
    assert torch.equal(said, answers(first))
    assert not torch.equal(first, second)


def test_a_substitute_that_explored_knows_masks_that_it_never_met() -> None:
    """The provider's answers bend where no raw record lies."""
    records, generator = torch.randn(3000, 6, generator=seeded(0)) + 2, seeded(1)

    def answers(rows: Tensor) -> Tensor:
        told = (2 * rows[:, :2].sum(1)).sin()
        return torch.stack([told, -told], 1).mul(3).softmax(1)

    explore = Explorer(answers, records, Variations(records, 1.0), generator)
    masked = records[:1000].clone()
    masked[:, 0] = 0.8
    apart = []
    for questions in (None, explore):
        net = Mlp(6, 2, (64,), generator=seeded(2))
        train_substitute(
            net,
            records,
            ask(answers, records),
            steps=1500,
            batch=128,
            rate=0.01,
            generator=seeded(3),
            explore=questions,
        )
        with torch.no_grad():
            given = answers(masked)
            apart.append(float(F.cross_entropy(net(masked), given)))
    assert apart[1] < apart[0] - 0.05
