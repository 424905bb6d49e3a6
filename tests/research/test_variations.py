"""What a provider is asked about before there is a filter: records behind masks of every kind."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from fedlens.models.classifiers import Mlp
from fedlens.privatizers.networks.masks import NoiseMap
from fedlens.privatizers.protocol import PrivatizerError
from fedlens_research.filters.black_box import Explorer, Follower, ask, train_substitute
from fedlens_research.filters.variations import GREATEST_RATIO, Variations

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


def spread_of_sent(most: float) -> Tensor:
    """What is added to entries that are sent, over 600 records."""
    varied = Variations(images(50, 0), most)(torch.full((600, 1, 12, 10), FAR), seeded(3))
    return varied[varied > FAR / 2] - FAR


@pytest.mark.parametrize("most", [0.5, 2.0])
def test_what_is_sent_carries_noise_of_the_greatest_deviation_at_most(most: float) -> None:
    added = spread_of_sent(most)
    assert 0.2 * most < float(added.std()) < most
    assert float(added.abs().quantile(0.99)) < 3 * most


def test_what_is_sent_is_moved_as_well_as_noised() -> None:
    """Noise of nearly no deviation leaves entries side by side moved alike."""
    vary = Variations(images(50, 0), 1.0)
    varied = vary(torch.full((600, 1, 12, 10), FAR), seeded(5)).double()
    added = torch.where(varied > FAR / 2, varied - FAR, torch.nan)
    share = (added.abs() < 1e-6).double().mean()
    assert float(share) < 0.01
    left, right = added[..., :-1], added[..., 1:]
    both = ~(left.isnan() | right.isnan())
    still = both & ((left - right).abs() < 0.02)
    assert float(torch.stack([left[still], right[still]]).abs().mean()) > 0.02


def test_suppressed_entries_lie_around_the_mean_smooth_or_rough() -> None:
    met = images(50, 0)
    vary, far = Variations(met, 1.0), torch.full((300, 1, 12, 10), FAR)
    alike = []
    for seed in range(12):
        varied = vary(far, seeded(seed))
        away = torch.where(varied > FAR / 2, torch.nan, varied - met.mean(0))
        assert abs(float(away.nanmean())) < 0.1
        assert 0.2 < float(away[~away.isnan()].std()) < 0.7
        left, right = away[..., :-1], away[..., 1:]
        both = ~(left.isnan() | right.isnan())
        alike.append(float(torch.corrcoef(torch.stack([left[both], right[both]]))[0, 1]))
    assert min(alike) < 0.2, "some fields are drawn entry by entry"
    assert max(alike) > 0.8, "in others neighbours are alike"


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 10, 10), (3, 5, 7)])
def test_a_single_record_is_varied_like_any_other(shape: tuple[int, ...]) -> None:
    met = torch.rand(20, *shape, generator=seeded(0))
    vary, source = Variations(met, 1.0), seeded(1)
    for _ in range(50):
        varied = vary(met[:1], source)
        assert varied.shape == (1, *shape)
        assert float(varied.abs().max()) < 30


@pytest.mark.parametrize(
    ("count", "most"), [(1, 1.0), (5, 0.0), (5, float("nan")), (5, float("inf"))]
)
def test_too_few_records_and_no_noise_are_refused(count: int, most: float) -> None:
    with pytest.raises(PrivatizerError, match="give at least two records, all finite, and noise"):
        Variations(torch.zeros(count, 3), most)


def test_records_that_are_not_finite_or_of_another_shape_are_refused() -> None:
    with pytest.raises(PrivatizerError, match="all finite"):
        Variations(torch.full((5, 3), float("nan")), 1.0)
    with pytest.raises(PrivatizerError, match=r"records are \(3, 8, 8\).*\(1, 8, 8\)"):
        Variations(torch.zeros(5, 1, 8, 8), 1.0)(torch.zeros(2, 3, 8, 8), seeded(0))


def test_an_explorer_asks_about_others_each_time() -> None:
    records = torch.randn(100, 6, generator=seeded(0))

    def answers(rows: Tensor) -> Tensor:
        return rows.sum(1).gt(0).long()

    explore = Explorer(answers, records, Variations(records, 0.5), seeded(1))
    (first, said), (second, _) = explore(30), explore(30)
    assert first.shape == (30, 6)
    assert torch.equal(said, answers(first))
    assert not torch.equal(first, second)


def test_an_explorer_without_records_or_of_another_kind_is_refused() -> None:
    records = torch.randn(100, 6, generator=seeded(0))
    vary = Variations(records, 0.5)

    def soft(rows: Tensor) -> Tensor:
        return rows[:, :2].softmax(1)

    with pytest.raises(PrivatizerError, match="no record"):
        Explorer(soft, records[:0], vary, seeded(1))
    with pytest.raises(PrivatizerError, match="ask both in one way"):
        taught(records, soft(records).argmax(1), Explorer(soft, records, vary, seeded(1)), steps=1)


def taught(
    records: Tensor, said: Tensor, explore: Explorer | None, *, steps: int = 500
) -> torch.nn.Module:
    """A substitute that learned these answers, and those of ``explore``."""
    net = Mlp(records.shape[1], 2, (64,), generator=seeded(2))
    train_substitute(
        net,
        records,
        said,
        steps=steps,
        batch=128,
        rate=0.01,
        generator=seeded(3),
        explore=explore,
    )
    return net


def twins(count: int, seed: int) -> Tensor:
    """Records of two entries that are always the same, and four others."""
    records = torch.randn(count, 6, generator=seeded(seed))
    records[:, 1] = records[:, 0]
    return records


def differing(rows: Tensor) -> Tensor:
    """Tells how far the twins are apart, which on raw records they never are."""
    told = rows[:, 0] - rows[:, 1] + 0.2 * rows[:, 2]
    return torch.stack([told, -told], 1).mul(3).softmax(1)


@pytest.mark.parametrize("hard", [False, True])
def test_a_substitute_that_explored_knows_masks_of_which_raw_records_say_nothing(
    hard: bool,
) -> None:
    """As many raw records more, asked about in place of varied ones, do not help."""
    records = twins(2000, 0)

    def answers(rows: Tensor) -> Tensor:
        said = differing(rows)
        return said.argmax(1) if hard else said

    masked = twins(1000, 9)
    masked[:, 0] = 0.0
    losses = []
    for vary in (lambda rows, _: rows, Variations(records, 1.0)):
        net = taught(records, ask(answers, records), Explorer(answers, records, vary, seeded(1)))
        with torch.no_grad():
            losses.append(float(F.cross_entropy(net(masked), differing(masked))))
    assert losses[1] < losses[0] - 0.1


def test_a_follower_explores_too() -> None:
    """What it knows beyond what the filter releases comes of varied records alone."""
    records, source = twins(1000, 0), seeded(1)
    said = ask(differing, records)
    masked = twins(1000, 9)
    masked[:, 0] = 0.0
    losses = []
    for vary in (lambda rows, _: rows, Variations(records, 1.0)):
        net = taught(records, said, None)
        follow = Follower(
            net,
            differing,
            records,
            said,
            queries=200,
            steps=200,
            rate=0.01,
            generator=source,
            explore=Explorer(differing, records, vary, source),
        )
        quiet = NoiseMap((6,), 1.0, rho=-4.0)
        for _ in range(2):
            follow(quiet)
        with torch.no_grad():
            losses.append(float(F.cross_entropy(net(masked), differing(masked))))
    assert losses[1] < losses[0] - 0.05
