"""The annotator on nodes: users' mean gradients, and rows kept between rounds for no one else."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from fedlens.client.tasks import CLIENT_TASKS, feature_cache
from fedlens.client.tasks.feature_cache import FeatureCache
from fedlens.client.train import train_cohort
from fedlens.client.users.cache import WeakCache
from fedlens.client.users.protocol import ArrayUsers, LocalData
from fedlens.client.users.records import CohortData
from fedlens.models.annotators import Annotator
from fedlens.models.weights import to_vector

SHAPE, CLASSES, COMPONENTS = (1, 28, 28), 10, 12
FEATURES = "orientations"  # the faster ones


@pytest.fixture(autouse=True)
def nothing_cached():
    feature_cache.ROWS.clear()
    yield
    feature_cache.ROWS.clear()


@pytest.fixture(scope="module")
def framed_annotator() -> Annotator:
    source = torch.Generator().manual_seed(1)
    made = Annotator(SHAPE, CLASSES, COMPONENTS, FEATURES)
    made.fit_frame(torch.rand(60, *SHAPE, generator=source) * 2 - 1, 0.5)
    made.weight.copy_(0.5 * torch.randn(CLASSES, COMPONENTS + 1, generator=source))
    return made


@pytest.fixture
def annotator(framed_annotator) -> Annotator:
    return copy.deepcopy(framed_annotator)


@pytest.fixture
def ask(make_request, annotator):
    """A request for the annotator; its weights may be another annotator's."""

    def make(*chosen: int, network: Annotator | None = None, **changes: object):
        settings = {"components": COMPONENTS, "features": FEATURES, **changes}
        request = make_request(*chosen, kind="annotator", **settings)
        request.weights["annotator"] = to_vector(network or annotator)
        return request

    return make


def changed(users: ArrayUsers, **arrays: object) -> ArrayUsers:
    return ArrayUsers(**{**vars(users), **arrays})


def test_an_update_is_minus_the_gradient_of_the_users_mean_cross_entropy(users, ask, annotator):
    request = ask(2, 5)
    updates = CLIENT_TASKS["annotator"](users, request).updates(
        [users.user(2), users.user(5)], [0, 0]
    )
    for user, update in zip((2, 5), updates, strict=True):
        data = users.user(user)
        weight = annotator.weight.clone().requires_grad_()
        loss = F.cross_entropy(annotator.rows(data.images) @ weight.mT, data.labels)
        (gradient,) = torch.autograd.grad(loss, weight)
        torch.testing.assert_close(update, -gradient.reshape(-1), atol=1e-6, rtol=1e-4)


def test_the_sum_over_users_is_the_sum_of_users_alone_whatever_they_hold(users, ask):
    everybody = (0, 1, 4, 5, 6)
    together = train_cohort(users, ask(*everybody))
    alone = sum(train_cohort(users, ask(user)).total for user in everybody)
    np.testing.assert_allclose(together.total, alone, atol=2e-6)
    assert together.norms.sum() == 4  # user 6 holds nothing and counts nowhere


def test_a_user_without_records_contributes_zeros(users, ask):
    reply = train_cohort(users, ask(6))
    assert np.linalg.norm(reply.total) == 0 and not reply.norms.any()
    assert np.isfinite(train_cohort(users, ask(5, 6)).total).all()


def test_one_users_change_moves_the_sum_by_twice_the_clip_at_most(users, ask):
    request = ask(0, 1, clipping_norm=0.01)
    before = train_cohort(users, request)
    images = users.images.copy()
    images[:10] = 255 - images[:10]
    after = train_cohort(changed(users, images=images), request)
    assert 0 < np.linalg.norm(after.total - before.total) <= 0.02 * (1 + 1e-9)


@pytest.mark.parametrize("label", [-1, 10, 99])
def test_labels_outside_the_schema_reach_no_other_user(users, ask, label):
    request = ask(0, 1, 2, clipping_norm=0.01)
    honest = train_cohort(users, request).total
    labels = users.labels.copy()
    labels[10:20] = label
    spoiled = train_cohort(changed(users, labels=labels), request).total
    assert 0 < np.linalg.norm(spoiled - honest) <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize("kind", ["annotator", "frozen", "wgan"])
def test_a_user_whose_images_have_another_shape_is_as_one_without_records(
    users, ask, make_request, kind
):
    class Mixed:
        shape, classes, partition, origin = SHAPE, CLASSES, 0, users.origin

        def __len__(self):
            return 3

        def user_id(self, position):
            return position

        def user(self, position, rows=None):
            if position == 1:
                return LocalData(torch.zeros(4, 3, 32, 32), torch.zeros(4, dtype=torch.int64))
            return users.user(position, rows)

    def asked(*chosen, enrolled):
        kinds = {} if kind == "annotator" else {"kind": kind}
        return (make_request if kinds else ask)(*chosen, enrolled=enrolled, **kinds)

    mixed = train_cohort(Mixed(), asked(0, 1, 2, enrolled=3)).total
    np.testing.assert_array_equal(mixed, train_cohort(users, asked(0, 2, enrolled=7)).total)


def test_rows_are_made_once_for_a_frame_and_are_those_of_a_node_that_kept_nothing(
    users, ask, annotator, monkeypatch
):
    calls = []
    rows = Annotator.rows
    monkeypatch.setattr(
        Annotator, "rows", lambda self, images: calls.append(len(images)) or rows(self, images)
    )
    first = train_cohort(users, ask(0, 1, 2))
    made = sum(calls)
    annotator.weight.mul_(2)  # another round: the same frame, another weight
    kept = train_cohort(users, ask(1, 2, 3))
    assert sum(calls) == made
    feature_cache.ROWS.clear()
    fresh = train_cohort(users, ask(1, 2, 3))
    assert np.array_equal(kept.total, fresh.total)
    assert not np.array_equal(first.total, kept.total)


def test_rows_of_one_frame_never_answer_for_another(users, ask, annotator):
    train_cohort(users, ask(0, 1))
    other = Annotator(SHAPE, CLASSES, COMPONENTS, FEATURES)
    source = torch.Generator().manual_seed(2)
    other.fit_frame(torch.rand(60, *SHAPE, generator=source) * 2 - 1, 0.0)
    other.weight.copy_(annotator.weight)
    after = train_cohort(users, ask(0, 1, network=other)).total
    feature_cache.ROWS.clear()
    assert np.array_equal(after, train_cohort(users, ask(0, 1, network=other)).total)
    assert not np.array_equal(after, train_cohort(users, ask(0, 1)).total)


def test_rows_of_one_data_set_never_answer_for_another(users, ask):
    kept = train_cohort(users, ask(0, 1)).total
    twin = changed(users)
    inverted = changed(users, images=255 - users.images)
    assert np.array_equal(train_cohort(twin, ask(0, 1)).total, kept)
    found = train_cohort(inverted, ask(0, 1)).total
    feature_cache.ROWS.clear()
    assert np.array_equal(found, train_cohort(inverted, ask(0, 1)).total)
    assert not np.array_equal(found, kept)


def test_what_is_kept_goes_with_the_users(users, ask):
    mine = changed(users)
    train_cohort(mine, ask(0, 1))
    assert len(feature_cache.ROWS) == 1
    del mine
    gc.collect()
    assert not feature_cache.ROWS


def test_memory_for_kept_rows_is_bounded_and_the_sums_stay_the_same(
    users, ask, annotator, monkeypatch
):
    many = changed(users, indices=np.tile(users.indices, 3), offsets=tiled(users.offsets, 3))
    chosen = tuple(range(0, len(many), 3))
    expected = train_cohort(many, ask(*chosen, enrolled=21)).total
    assert (
        len(FeatureCache(many, annotator, 10)._cached.users) == 22
    )  # one stands for those who are absent
    feature_cache.ROWS.clear()
    monkeypatch.setattr(feature_cache, "ROWS", WeakCache(21 * 10 * (COMPONENTS + 1) - 1))
    for _ in range(2):
        assert np.array_equal(train_cohort(many, ask(*chosen, enrolled=21)).total, expected)
    assert not FeatureCache(many, annotator, 10)._cached.users


def tiled(offsets: np.ndarray, times: int) -> np.ndarray:
    return np.concatenate(
        [offsets[:-1] + i * offsets[-1] for i in range(times)] + [[times * offsets[-1]]]
    )


def test_a_users_rows_do_not_depend_on_who_was_asked_for_before(users, annotator):
    mine = [changed(users) for _ in range(2)]
    fourth, first = (CohortData(mine[0], [place]) for place in (4, 0))
    (late,) = FeatureCache(mine[0], annotator, 10).cohort(fourth)
    other = FeatureCache(mine[1], annotator, 10)
    other.cohort(first)
    assert torch.equal(other.cohort(CohortData(mine[1], [4]))[0].rows, late.rows)


def test_an_annotator_of_another_size_is_refused(users, ask):
    with pytest.raises(ValueError, match="a vector of shape"):
        train_cohort(users, ask(0, components=COMPONENTS + 1))
