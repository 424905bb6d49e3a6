"""What a user holds beyond the cap is never read, and which records are kept is the user's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.train import UserSeeds, train, train_cohort
from fedlens.client.users.protocol import ArrayUsers
from fedlens.client.users.records import shuffled
from fedlens.client.users.seeds import keyed_seed
from fedlens.client.users.views import cap_users, choose_rows, prepare_users

KEY = b"a run's own key"


class Watched:
    """Users, and how many records of them were read."""

    def __init__(self, users: ArrayUsers) -> None:
        self._users, self.read, self.most = users, 0, 0

    def __getattr__(self, name):
        return getattr(self._users, name)

    def __len__(self):
        return len(self._users)

    def user_id(self, position):
        return self._users.user_id(position)

    def held(self, position):
        return self._users.held(position)

    def user(self, position, rows=None):
        count = self.held(position) if rows is None else len(rows)
        self.read, self.most = self.read + count, max(self.most, count)
        return self._users.user(position, rows)


def enlarged(users: ArrayUsers, position: int, times: int) -> ArrayUsers:
    """One user with each record many times over."""
    own = users.indices[users.offsets[position] : users.offsets[position + 1]]
    parts = np.split(users.indices, users.offsets[1:-1])
    parts[position] = np.tile(own, times)
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])])
    return replace(users, indices=np.concatenate(parts), offsets=offsets)


@pytest.mark.parametrize("kind", ["frozen", "wgan", "wgan steps"])
@pytest.mark.law("6: everybody costs the same work")
def test_no_more_records_than_the_cap_are_read_and_others_are_as_before(users, make_request, kind):
    """Of a user with 300,000 records: a file of the node's, or a camera that never stops."""
    steps = {"local_steps": 2} if kind == "wgan steps" else {}
    request = make_request(0, 1, 2, kind=kind.split()[0], clipping_norm=0.01, **steps)
    many = Watched(enlarged(users, 1, 30_000))
    assert many.held(1) == 300_000
    found = train_cohort(prepare_users(many, request), request).total
    assert many.read == 30
    others = replace(request, users=(0, 2))
    without = train_cohort(prepare_users(users, others), others).total
    assert np.linalg.norm(found - without) <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["frozen", "wgan", "wgan steps"])
@pytest.mark.law("6: everybody costs the same work")
def test_record_mode_reads_the_records_that_it_draws_a_few_at_a_time(users, make_request, kind):
    steps = 3 if kind == "wgan steps" else 1
    local = {"local_steps": steps} if kind != "frozen" else {}
    record = {"unit": "record", "fixed_seed": 3, "sampling_rate": 0.002, **local}
    request = make_request(0, kind=kind.split()[0], **record)
    many = Watched(enlarged(users, 1, 30_000))
    assert train(many, request).total.any()
    expected = steps * 0.002 * 300_041
    assert abs(many.read - expected) < 5 * np.sqrt(expected)
    assert many.most <= 128


def test_a_users_kept_records_are_the_same_for_the_whole_run_and_others_in_another(users):
    many = enlarged(users, 1, 50)
    first, again, other = (
        cap_users(source, 7, key).user(1).images
        for source, key in ((many, KEY), (replace(many), KEY), (replace(many), b"another run's"))
    )
    assert len(first) == 7 and np.array_equal(first, again) and not np.array_equal(first, other)
    moved = replace(many, ids=np.array([9, 1, 5, 4, 3, 2, 0]), partition=3)
    assert np.array_equal(cap_users(moved, 7, KEY).user(1).images, first)


def test_each_set_of_records_is_kept_as_often_as_another():
    counts = np.zeros(6)
    sets = set()
    for seed in range(3000):
        rows = choose_rows(6, 2, seed)
        assert len(rows) == 2 and rows[0] < rows[1]
        counts[rows] += 1
        sets.add(tuple(rows))
    assert len(sets) == 15
    assert counts == pytest.approx(1000, abs=5 * np.sqrt(1000 * 2 / 3))


@pytest.mark.parametrize("held", [0, 1, 5])
def test_fewer_records_than_the_cap_are_all_kept(held):
    assert choose_rows(held, 5, 3).tolist() == list(range(held))


@pytest.mark.law("1: seeds belong to the user")
def test_seeds_go_with_the_user_and_not_with_the_place(users):
    named = replace(users, ids=np.arange(7) * 10)
    turned = replace(users, ids=np.arange(7)[::-1] * 10)
    seeds = list(UserSeeds(named, KEY, 3, range(7)))
    assert len(set(seeds)) == 7
    assert list(UserSeeds(turned, KEY, 3, range(7))) == seeds[::-1]
    assert list(UserSeeds(named, KEY, 3, [5])) == [seeds[5]]
    assert not set(UserSeeds(named, KEY, 4, range(7))) & set(seeds)
    assert not set(UserSeeds(named, b"another run's", 3, range(7))) & set(seeds)


def test_keyed_seeds_keep_purposes_and_parts_apart():
    seeds = [
        keyed_seed(KEY, "batches", 1, 23),
        keyed_seed(KEY, "records", 1, 23),
        keyed_seed(KEY, "batches", 12, 3),
        keyed_seed(KEY, "batches", 1, 2, 3),
        keyed_seed(KEY, "batches", 1, b"23"),
        keyed_seed(KEY, "batches", 1, -23),
        keyed_seed(b"another", "batches", 1, 23),
    ]
    assert len(set(seeds)) == len(seeds) and all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize(("held", "wanted"), [(1, 5), (3, 7), (5, 5), (5, 2), (0, 4)])
def test_a_batch_takes_each_record_as_often_as_another(held, wanted):
    rows = shuffled(held, wanted, 5, np.random.default_rng(0))
    counts = np.bincount(rows, minlength=max(1, held))
    assert len(rows) == wanted and counts.max() - counts.min() <= 1


@pytest.mark.law("6: one user fails nobody else")
def test_a_user_who_cannot_be_computed_contributes_zeros_and_fails_no_one(
    users, make_request, monkeypatch
):
    honest = train_cohort(users, make_request(0, 2))
    updates = CLIENT_TASKS["frozen"].updates

    def breaking(self, cohort, seeds):
        if any(len(data.labels) == 1 for data in cohort):
            raise MemoryError("too large")
        return updates(self, cohort, seeds)

    monkeypatch.setattr(CLIENT_TASKS["frozen"], "updates", breaking)
    found = train_cohort(users, make_request(0, 2, 5))
    assert np.array_equal(found.total, honest.total)
    assert np.array_equal(found.norms, honest.norms)
