"""Readers of a use find what images tell, whichever kind of reader it takes."""

from __future__ import annotations

import torch
from torch import Tensor

from fedlens.privatizers.attacks.attackers.reading_nets import (
    accuracy,
    linear_reader,
    read_images,
)
from fedlens.privatizers.private_data import PrivateData

SIDE = 16


def pictures(records: Tensor, use: Tensor, classes: int, owners: Tensor | None) -> PrivateData:
    return PrivateData(
        name="made up",
        records=records,
        utility=use,
        sensitive=torch.arange(len(records)) % 2,
        side=None,
        owners=owners,
        utility_classes=classes,
        sensitive_classes=2,
        low=-9.0,
        high=9.0,
    )


def faint(people: int, seed: int) -> PrivateData:
    """Of 30 pictures a person: a pattern or its negative in noise, over the person's own picture.

    The pattern's sign is read by a projection on it to Phi(3) = 99.9%, once what a person's
    pictures have in common is out of the way.
    """
    source = torch.Generator().manual_seed(seed)
    pattern = torch.randn(SIDE * SIDE, generator=torch.Generator().manual_seed(99))
    pattern *= 3 / pattern.norm()
    owners = torch.arange(people).repeat_interleave(30)
    use = torch.randint(2, (len(owners),), generator=source)
    own = 0.5 * torch.randn(people, SIDE * SIDE, generator=source)
    noise = torch.randn(len(owners), SIDE * SIDE, generator=source)
    rows = own[owners] + noise + (2.0 * use[:, None] - 1) * pattern
    return pictures(rows.view(-1, 1, SIDE, SIDE), use, 2, owners)


def alike(n: int, seed: int) -> PrivateData:
    """Whether two halves of a picture are both bright or both dark: nothing linear tells."""
    source = torch.Generator().manual_seed(seed)
    left, right = torch.randint(2, (2, n), generator=source)
    rows = 0.3 * torch.randn(n, 1, SIDE, SIDE, generator=source)
    rows[..., : SIDE // 2] += (2.0 * left - 1)[:, None, None, None]
    rows[..., SIDE // 2 :] += (2.0 * right - 1)[:, None, None, None]
    return pictures(rows, (left == right).long(), 2, None)


def test_few_pictures_of_few_people_are_read_by_a_line_where_a_network_fails() -> None:
    known, test = faint(12, 1), faint(12, 2)
    line = accuracy(linear_reader(known, 0), test.records, test.utility)
    found = accuracy(read_images(known, 30, 0), test.records, test.utility)
    assert line > 0.8
    assert found == line


def test_what_no_line_reads_is_read_by_the_network() -> None:
    known, test = alike(1000, 1), alike(500, 2)
    assert accuracy(linear_reader(known, 0), test.records, test.utility) < 0.65
    assert accuracy(read_images(known, 150, 0), test.records, test.utility) > 0.95


def test_a_line_never_answers_a_use_that_it_has_not_seen() -> None:
    source = torch.Generator().manual_seed(5)
    use = 2 * torch.randint(2, (400,), generator=source)  # 0 or 2 of 0, 1, 2
    rows = 0.1 * torch.randn(400, 1, SIDE, SIDE, generator=source) + use[:, None, None, None]
    reader = linear_reader(pictures(rows, use, 3, None), 0)
    assert torch.equal(reader(rows).argmax(-1), use)
    assert bool((reader(torch.ones(1, 1, SIDE, SIDE))[0].argmax() != 1).item())


def test_one_person_is_enough_for_a_reader() -> None:
    known = alike(300, 3)
    alone = pictures(known.records, known.utility, 2, torch.zeros(300, dtype=torch.int64))
    assert accuracy(read_images(alone, 150, 0), alone.records, alone.utility) > 0.9
