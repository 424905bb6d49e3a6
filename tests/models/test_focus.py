"""Principal directions and the focus: full decompositions, travel, and what they shorten."""

import pytest
import torch

from fedlens.models.focus import focus_from, focus_on
from fedlens.models.principal import principal


def _rows(n=400, dim=60, seed=0):
    source = torch.Generator().manual_seed(seed)
    spread = torch.linspace(3.0, 0.05, dim) ** 2
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=source))[0]
    return (torch.randn(n, dim, generator=source) * spread) @ turn.mT


def test_directions_agree_with_a_full_decomposition():
    rows = _rows() - _rows().mean(0)
    variances, directions = principal(rows, 12)
    values = torch.linalg.eigvalsh(rows.mT @ rows / len(rows)).flip(0)
    assert torch.allclose(variances, values[:12], rtol=1e-3)
    assert torch.allclose(directions.mT @ directions, torch.eye(12), atol=1e-5)
    assert torch.equal(directions, principal(rows, 12)[1])


def test_rows_of_few_dimensions_and_rows_that_are_all_the_same_do_no_harm():
    flat, directions = principal(torch.zeros(5, 8), 8)
    assert bool((flat == 0).all()) and bool(torch.isfinite(directions).all())


@pytest.mark.parametrize("count", [0, 61])
def test_as_many_directions_as_features_at_most(count):
    with pytest.raises(ValueError, match=f"count={count}"):
        principal(_rows(), count)


def test_a_focus_travels_as_a_vector():
    labels = torch.arange(400) % 4
    focus = focus_on(_rows(), labels, 4, 7)
    back = focus_from(focus.to_vector(), 60, 4)
    assert torch.equal(back.basis, focus.basis) and torch.equal(back.centers, focus.centers)
    with pytest.raises(ValueError, match="no focus"):
        focus_from(focus.to_vector()[:-1], 60, 4)


def test_rows_of_the_same_kind_are_near_their_centres_and_shorter_than_whole_ones():
    labels = torch.arange(400) % 4
    apart = torch.randn(4, 60, generator=torch.Generator().manual_seed(3)) * 5
    rows = _rows() + apart[labels]
    focus = focus_on(rows, labels, 4, 20)
    others = _rows(seed=1)[:100] * 0 + rows[:100].roll(4, 0)
    away = focus.apart(others, labels[:100].roll(4, 0))
    assert float(away.norm(dim=1).mean()) < 0.7 * float(others.norm(dim=1).mean())
    sums = torch.zeros(4, 20).index_add_(0, labels, focus.apart(rows, labels))
    assert float(sums.norm()) < 1e-2


def test_new_centres_keep_the_directions():
    labels = torch.arange(400) % 4
    focus = focus_on(_rows(), labels, 4, 7)
    moved = focus.centred(_rows() + 1.0, labels)
    assert torch.equal(moved.basis, focus.basis)
    assert torch.allclose(moved.centers - focus.centers, focus.basis.sum(0).expand(4, 7), atol=1e-3)
