"""Partitions: disjoint, complete, non-empty, skewed as asked, reproducible and fast."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.simulations.federation.partitions import PartitionError, partition

LABELS = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 600))


def check_sound(split, records, users):
    """What every partition promises."""
    assert split.users == users
    assert split.offsets[0] == 0
    assert split.offsets[-1] == len(split.indices)
    assert split.sizes.min() >= 1
    assert len(np.unique(split.indices)) == len(split.indices)
    assert split.indices.min() >= 0
    assert split.indices.max() < records
    assert split.indices.dtype == split.offsets.dtype == np.int64


def mixes(split, labels=LABELS, classes=10):
    """Share of each class for each user."""
    table = np.zeros((split.users, classes))
    np.add.at(table, (np.repeat(np.arange(split.users), split.sizes), labels[split.indices]), 1)
    return table / table.sum(1, keepdims=True)


@settings(max_examples=60, deadline=None)
@given(
    labels=st.lists(st.integers(0, 6), min_size=1, max_size=80),
    users=st.integers(1, 20),
    scheme=st.sampled_from(["iid", "dirichlet", "classes"]),
    sizes=st.sampled_from(["equal", "power-law"]),
    alpha=st.sampled_from([1e-6, 0.1, 1.0, 1e6]),
    own=st.integers(1, 3),
    each=st.sampled_from([None, 1, 3]),
    seed=st.integers(0, 5),
)
def test_any_partition_is_sound_or_refused_with_numbers(
    labels, users, scheme, sizes, alpha, own, each, seed
):
    arguments = {
        "users": users,
        "scheme": scheme,
        "sizes": sizes,
        "alpha": alpha,
        "classes_per_user": own,
        "samples_per_user": each,
        "seed": seed,
    }
    labels = np.array(labels)
    total = len(labels) if each is None else users * each
    try:
        split = partition(labels, **arguments)
    except PartitionError as error:
        assert any(character.isdigit() for character in str(error))
        assert users > total or total > len(labels) or scheme == "classes"
        return
    check_sound(split, len(labels), users)
    again = partition(labels, **arguments)
    np.testing.assert_array_equal(split.indices, again.indices)
    if scheme == "classes":
        assert (mixes(split, labels, 7) > 0).sum(1).max() <= own
    else:
        assert len(split.indices) == total


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "classes"])
def test_another_seed_is_another_split(scheme):
    one = partition(LABELS, users=50, scheme=scheme, seed=1)
    two = partition(LABELS, users=50, scheme=scheme, seed=2)
    assert not np.array_equal(one.indices, two.indices)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet"])
def test_equal_sizes_differ_by_one_at_most(scheme):
    split = partition(LABELS, users=700, scheme=scheme)
    check_sound(split, 6000, 700)
    assert set(split.sizes.tolist()) == {8, 9}
    assert len(split.indices) == 6000
    assert set(partition(LABELS, users=50, scheme=scheme, samples_per_user=7).sizes) == {7}


def test_power_law_sizes_have_a_heavy_tail_around_the_mean_asked_for():
    split = partition(LABELS, users=300, sizes="power-law", samples_per_user=10)
    check_sound(split, 6000, 300)
    assert split.sizes.sum() == 3000
    assert np.median(split.sizes) < 10 < split.sizes.max() / 5


def test_iid_users_look_alike():
    split = partition(LABELS, users=20)
    assert np.abs(mixes(split) - 0.1).max() < 0.09


def test_dirichlet_skew_grows_as_alpha_falls_and_has_the_law_s_spread():
    spreads = [
        float(mixes(partition(LABELS, users=100, scheme="dirichlet", alpha=alpha)).std())
        for alpha in (0.01, 0.3, 3.0, 1000.0)
    ]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[0] > 0.25
    assert spreads[3] < 0.02
    # A symmetric Dirichlet coordinate with mean 1/10 has variance .1 x .9 / (10 alpha + 1);
    # few users with many records to choose from come close to it.
    many = np.tile(LABELS, 20)
    few = mixes(partition(many, users=400, scheme="dirichlet", samples_per_user=30), many)
    assert few.std() == pytest.approx(np.sqrt(0.09 / 4), rel=0.15)


def test_dirichlet_follows_uneven_class_shares():
    labels = np.repeat([0, 1], [900, 100])
    split = partition(labels, users=10, scheme="dirichlet", alpha=1e5)
    assert np.abs(mixes(split, labels, 2)[:, 1] - 0.1).max() <= 0.02


@pytest.mark.parametrize("own", [1, 2, 10])
def test_users_hold_the_number_of_classes_asked_for(own):
    split = partition(LABELS, users=100, scheme="classes", classes_per_user=own)
    check_sound(split, 6000, 100)
    held = (mixes(split) > 0).sum(1)
    assert held.max() <= own
    assert (held == own).mean() > 0.9
    assert len(split.indices) > 0.85 * 6000
    pairs = {tuple(np.flatnonzero(row)) for row in mixes(split) > 0}
    assert own != 2 or len(pairs) > 20


def test_users_of_a_column_keep_their_records():
    ids = np.random.default_rng(1).integers(100, 140, 6000)
    split = partition(LABELS, users=40, scheme="column", user_ids=ids)
    check_sound(split, 6000, 40)
    for number, name in enumerate(np.unique(ids)):
        assert sorted(split.user(number)) == np.flatnonzero(ids == name).tolist()
    some = partition(LABELS, users=5, scheme="column", user_ids=ids, samples_per_user=3, seed=4)
    check_sound(some, 6000, 5)
    assert set(some.sizes) == {3}
    assert [len(set(ids[some.user(i)])) for i in range(5)] == [1] * 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"users": 0}, "users=0"),
        ({"users": 6001}, "6001 users cannot share 6000 records"),
        ({"users": 100, "samples_per_user": 61}, "need 6100 records, but there are 6000"),
        ({"users": 10, "samples_per_user": 0}, "samples_per_user=0"),
        ({"users": 10, "scheme": "random"}, "scheme='random'"),
        ({"users": 10, "sizes": "odd"}, "sizes='odd'"),
        ({"users": 10, "scheme": "dirichlet", "alpha": 0.0}, r"alpha=0\.0"),
        ({"users": 10, "scheme": "dirichlet", "alpha": float("nan")}, "alpha=nan"),
        ({"users": 10, "scheme": "classes", "classes_per_user": 11}, r"must lie in 1\.\.10"),
        ({"users": 10, "scheme": "column"}, "this data set has none"),
        ({"users": 10, "scheme": "column", "user_ids": np.zeros(3)}, "this data set has 3"),
        ({"users": 2, "scheme": "column", "user_ids": np.zeros(6000)}, "has 1 user ids"),
        (
            {"users": 1, "scheme": "column", "user_ids": np.zeros(6000), "sizes": "power-law"},
            "ids decide sizes",
        ),
    ],
)
def test_impossible_splits_are_refused_with_the_numbers(arguments, said):
    with pytest.raises(PartitionError, match=said):
        partition(LABELS, **arguments)


def test_labels_must_be_class_numbers():
    with pytest.raises(PartitionError, match="class numbers"):
        partition(np.array([], np.int64), users=1)
    with pytest.raises(PartitionError, match="class numbers"):
        partition(np.array([0, -1]), users=1)


def test_there_is_no_user_beyond_the_last():
    split = partition(LABELS, users=3)
    with pytest.raises(PartitionError, match="from 0 to 2"):
        split.user(3)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "classes"])
def test_a_hundred_thousand_users_take_seconds_at_most(scheme):
    labels = np.tile(LABELS, 50)
    started = time.process_time()
    split = partition(labels, users=100_000, scheme=scheme, sizes="power-law")
    assert time.process_time() - started < 5
    check_sound(split, len(labels), 100_000)
