"""A private split through real nodes: one user moves one side's sum by the clip, the other by 0."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from people import KINDS, MOST, ODD, People, a_split, person

from fedlens.client.users.views import score_users
from fedlens.server.round.step import NoUsableReply

UNFILTERED = [kind for kind in KINDS if kind not in ("privatizer", "filtered")]
FORMS = ("as they are", "emptied", "one record", "enlarged", "labels above", "unreadable")
"""Of one user's data; `test_neighbours` goes through all that a user can be."""
SIDES = ("below", "from")
OTHERS = [person(number, 2) for number in range(10, 13)]


def there() -> list:
    return [person(number, [3, 2, MOST, 0, 1][number]) for number in range(5)]


def scored(people):
    """The scores of some people on a node of their own."""
    return score_users(People(list(people), 0), a_split("below"))


@pytest.mark.parametrize("kind", ["frozen", "annotator", "wgan"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.law("2: nothing tells on which side a user is")
def test_a_user_moves_one_side_by_the_clip_at_most_and_the_other_by_nothing(stage_of, kind, form):
    """With the roster as it is, and with the user off it too."""
    stage, people = stage_of(kind), there()
    one = ODD[form](person(4, MOST))
    moved = []
    for side in SIDES:
        split = a_split(side)
        found = stage.total([*people[:-1], one], OTHERS, split=split)
        emptied = stage.total([*people[:-1], person(4, 0)], OTHERS, split=split)
        missing = stage.total(people[:-1], OTHERS, split=split)
        assert np.array_equal(emptied.total, missing.total)
        assert np.array_equal(emptied.norms, missing.norms)
        assert found.requests == emptied.requests and found.replies == emptied.replies
        moved.append(np.linalg.norm(found.total - emptied.total))
        counted = np.abs(found.norms - emptied.norms).sum()
        assert counted == (moved[-1] > 0)
    assert min(moved) == 0 and max(moved) <= stage.clip * (1 + 1e-9)
    if form in ("as they are", "one record", "enlarged"):
        assert max(moved) > 0


@pytest.mark.parametrize("kind", UNFILTERED)
def test_a_user_on_the_other_side_is_as_one_without_records(stage_of, kind):
    stage, people = stage_of(kind), there()
    high = scored(people) >= 0.5
    assert 0 < high.sum() < len(high)  # people are on both sides, or this tells nothing
    whole = stage.total(people, split=None)
    sums = {}
    for side, inside in (("below", ~high), ("from", high)):
        some = [p if here else person(p.number, 0) for p, here in zip(people, inside, strict=True)]
        found, plain = stage.total(people, split=a_split(side)), stage.total(some)
        assert np.array_equal(found.total, plain.total)
        assert np.array_equal(found.norms, plain.norms)
        sums[side] = found
    np.testing.assert_array_equal(sums["below"].total + sums["from"].total, whole.total)
    np.testing.assert_array_equal(sums["below"].norms + sums["from"].norms, whole.norms)


@pytest.mark.law("2: nothing tells on which side a user is")
def test_messages_are_of_one_size_whatever_the_sides_and_the_cohort(stage_of):
    stage, people = stage_of("frozen"), there()
    plain = stage.total(people, OTHERS, split=a_split("below"))
    odd = [ODD["emptied"](someone) for someone in people]
    for seen in (
        stage.total(odd, OTHERS, split=a_split("below")),
        stage.total(people, OTHERS, split=a_split("below"), cohort=set()),
        stage.total(people, OTHERS, split=a_split("below"), cohort={2}),
    ):
        assert (seen.requests, seen.replies) == (plain.requests, plain.replies)


def test_a_side_is_the_same_for_every_run_place_and_neighbour():
    crowd = [person(number, 40, seed=1) for number in range(6)]
    alone = [scored([someone])[0] for someone in crowd]
    assert list(scored(crowd)) == alone == list(scored(crowd[::-1]))[::-1]
    assert len(set(alone)) > 1  # of three records each, by the split's own draw
    others = a_split("below", threshold=0.6)
    assert list(score_users(People(crowd, 0), others)) != alone  # another split draws other records


def test_what_a_node_cannot_split_it_refuses(stage_of):
    wrong = a_split("below")
    wrong = replace(wrong, model=wrong.model[:-1])
    with pytest.raises(NoUsableReply):
        stage_of("frozen").total(there(), OTHERS, split=wrong)
    with pytest.raises(NoUsableReply):
        stage_of("filtered").total(there(), OTHERS, split=a_split("below"))
