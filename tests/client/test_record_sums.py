"""Record mode of the frozen critic and the annotator: one sum, clipped record by record."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.client.tasks import CLIENT_TASKS, feature_cache
from fedlens.client.train import train
from fedlens.client.update.clipping import Blocks, Layered, clip_and_sum, rows_of_updates
from fedlens.client.update.record_mode import NodeRecords, clipped_sum
from fedlens.client.users.protocol import ArrayUsers
from fedlens.models.annotators import Annotator
from fedlens.models.features import PatchFeatures
from fedlens.models.focus import Focus
from fedlens.models.weights import to_vector

SHAPE, CLASSES, COMPONENTS = (1, 28, 28), 10, 12
FEATURES = "orientations"  # the faster ones
ALL = pytest.mark.parametrize("kind", ["frozen", "focused", "annotator"])


@pytest.fixture(scope="module")
def annotator() -> Annotator:
    source = torch.Generator().manual_seed(1)
    made = Annotator(SHAPE, CLASSES, COMPONENTS, FEATURES)
    made.fit_frame(torch.rand(60, *SHAPE, generator=source) * 2 - 1, 0.5)
    made.weight.copy_(3 * torch.randn(CLASSES, COMPONENTS + 1, generator=source))
    return made


@pytest.fixture(scope="module")
def focus() -> Focus:
    """Five directions, and centres that are off the records' own means."""
    source = torch.Generator().manual_seed(2)
    directions = torch.randn(PatchFeatures(SHAPE, 123).dim - 1, 5, generator=source)
    centers = 0.2 * torch.randn(CLASSES, 5, generator=source)
    return Focus(torch.linalg.qr(directions)[0], centers)


@pytest.fixture
def ask(make_request, annotator, focus):
    feature_cache.ROWS.clear()

    def make(kind: str, **changes: object):
        common = {
            "unit": "record",
            "sampling_rate": 1.0,
            "noise_multiplier": 4.0,
            "clipping_norm": 0.3,
            "fixed_seed": 4,
        }
        if kind == "annotator":
            common |= {"components": COMPONENTS, "features": FEATURES}
        request = make_request(0, kind=kind, denominator=20.0, **{**common, **changes})
        request.weights["annotator"] = to_vector(annotator)
        if kind == "focused":
            request.weights["critic"] = focus.to_vector()
        return request

    return make


def without(users: ArrayUsers, record: int) -> ArrayUsers:
    """The node as if it had never had a record: its user has one less."""
    kept = np.flatnonzero(users.indices != record)
    place = int(np.flatnonzero(users.indices == record)[0])
    offsets = users.offsets - (users.offsets > place)
    return ArrayUsers(**{**vars(users), "indices": users.indices[kept], "offsets": offsets})


def summed(users: ArrayUsers, request) -> np.ndarray:
    task = CLIENT_TASKS[request.kind](users, request)
    return clipped_sum(NodeRecords(users), task, request, 0).numpy()


@ALL
@pytest.mark.parametrize("bound", [10.0, 0.7, 0.01])
@pytest.mark.law("1: one record moves a sum by at most the clip")
def test_removing_one_record_moves_the_sum_by_the_clip_at_most(users, ask, kind, bound):
    request = ask(kind, clipping_norm=bound)
    whole = summed(users, request)
    for record in (0, 17, 50):
        moved = np.linalg.norm(whole - summed(without(users, record), request))
        # rows are computed in other batches then, which rounds them a little differently
        assert 0 < moved <= bound + 1e-4 * min(bound, 1.0)


@ALL
def test_a_tight_clip_binds_for_every_record(users, ask, kind):
    bound = 1e-3
    request = ask(kind, clipping_norm=bound)
    moved = np.linalg.norm(summed(users, request) - summed(without(users, 3), request))
    assert moved == pytest.approx(bound, rel=1e-3)


def test_the_frozen_sum_is_that_of_the_feature_rows_at_their_classes(users, ask):
    found = summed(users, ask("frozen", clipping_norm=2.0)).reshape(CLASSES, -1)
    features = PatchFeatures(SHAPE, 123)
    images = torch.from_numpy(users.images.astype(np.float32)) / 127.5 - 1
    rows, labels = features(images).double().numpy(), users.labels
    expected = np.stack([rows[labels == label].sum(0) for label in range(CLASSES)])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_focused_sum_is_that_of_distances_from_the_centres_of_their_classes(users, ask, focus):
    found = summed(users, ask("focused", clipping_norm=5.0)).reshape(CLASSES, -1)
    images = torch.from_numpy(users.images.astype(np.float32)) / 127.5 - 1
    rows = PatchFeatures(SHAPE, 123)(images)[:, :-1] @ focus.basis
    labels = torch.from_numpy(users.labels)
    away = (rows - focus.centers[labels]).double().numpy()
    expected = np.stack([away[users.labels == label].sum(0) for label in range(CLASSES)])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_annotators_sum_is_minus_the_gradient_of_the_summed_cross_entropy(
    users, ask, annotator
):
    found = summed(users, ask("annotator", clipping_norm=5.0))
    weight = annotator.weight.double().clone().requires_grad_()
    images = torch.from_numpy(users.images.astype(np.float32)) / 127.5 - 1
    logits = annotator.rows(images).double() @ weight.mT
    labels = torch.from_numpy(users.labels)
    loss = torch.nn.functional.cross_entropy(logits, labels, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, weight)
    np.testing.assert_allclose(found, -gradient.reshape(-1).numpy(), atol=2e-4)


@ALL
def test_records_are_drawn_by_poisson_sampling_afresh_each_round(users, ask, kind):
    whole = summed(users, ask(kind, clipping_norm=1e-3))
    halves = []
    for number in range(1, 5):
        request = ask(kind, clipping_norm=1e-3, sampling_rate=0.5, round_number=number)
        halves.append(summed(users, request))
    again = summed(users, request)
    assert np.array_equal(halves[-1], again)
    assert not any(np.array_equal(halves[0], half) for half in halves[1:])
    assert all(0 < np.linalg.norm(half) < np.linalg.norm(whole) for half in halves)


@ALL
def test_the_reply_is_the_noised_sum_over_the_declared_number(users, ask, kind):
    quiet = ask(kind, noise_multiplier=0.0)
    expected = summed(users, quiet) / 20.0
    np.testing.assert_allclose(train(users, quiet).total, expected, rtol=1e-12)
    loud = ask(kind, noise_multiplier=7.0, clipping_norm=0.4)
    calm = ask(kind, noise_multiplier=0.0, clipping_norm=0.4)
    noise = train(users, loud).total - train(users, calm).total
    sigma = 7.0 * 0.4 / 20
    assert noise.std() == pytest.approx(sigma, rel=5 / np.sqrt(2 * len(noise)))
    assert len(train(users, loud).norms) == 0


@ALL
def test_two_nodes_and_two_rounds_draw_other_noise(users, ask, kind):
    twin = ArrayUsers(**{**vars(users), "partition": 1})
    loud = {"noise_multiplier": 500.0}
    here, there = (train(u, ask(kind, **loud)).total for u in (users, twin))
    later = train(users, ask(kind, round_number=2, **loud)).total
    for other in (there, later):
        correlation = float(np.corrcoef(here, other)[0, 1])
        assert abs(correlation) < 6 / np.sqrt(len(here))


@ALL
def test_a_silo_without_records_replies_noise_alone(users, ask, kind):
    empty = ArrayUsers(**{**vars(users), "offsets": np.zeros(3, dtype=np.int64)})
    quiet = train(empty, ask(kind, noise_multiplier=0.0))
    assert np.linalg.norm(quiet.total) == 0
    assert np.linalg.norm(train(empty, ask(kind)).total) > 0


@ALL
@pytest.mark.parametrize("label", [-1, 10])
def test_unsound_records_are_left_out(users, ask, kind, label):
    labels = users.labels.copy()
    labels[3] = label
    spoiled = ArrayUsers(**{**vars(users), "labels": labels})
    request = ask(kind)
    np.testing.assert_allclose(
        summed(spoiled, request), summed(without(users, 3), request), atol=1e-9
    )


@ALL
def test_a_fixed_seed_from_a_server_is_refused_outside_tests(users, ask, kind, monkeypatch):
    request = ask(kind)
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(ValueError, match="tests only"):
        train(users, request)


numbers = st.floats(-1e6, 1e6, width=32)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.lists(numbers, min_size=3, max_size=3), numbers), min_size=1, max_size=8),
    st.floats(1e-3, 1e3),
)
def test_products_are_clipped_as_the_rows_that_they_stand_for(pairs, bound):
    left = torch.tensor([pair[0] for pair in pairs])
    right = torch.tensor([[pair[1], 1.0, -pair[1]] for pair in pairs])
    rows = (left[:, :, None] * right[:, None, :]).flatten(1)
    total, norms = clip_and_sum(products(left, right), bound)
    expected, expected_norms = clip_and_sum(rows, bound)
    assert torch.equal(total, expected) and torch.equal(norms, expected_norms)


def products(left, right):
    return Layered(((left[:, :, None], right[:, None, :]),))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
def test_a_product_or_block_that_is_not_finite_contributes_nothing(poison):
    left, right = torch.tensor([[poison, 0.0], [1.0, 0.0]]), torch.tensor([[0.0], [0.5]])
    for updates in (products(left, right), products(right, left)):
        total, norms = clip_and_sum(updates, 1.0)
        assert total.tolist() == [0.5, 0.0] and norms.tolist() == [0.0, 0.5]
    blocks = Blocks(torch.tensor([[poison], [0.5]]), torch.tensor([0, 1]), 3)
    total, norms = clip_and_sum(blocks, 1.0)
    assert total.tolist() == [0.0, 0.5, 0.0] and norms.tolist() == [0.0, 0.5]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.lists(numbers, min_size=2, max_size=2)),
        min_size=1,
        max_size=8,
    ),
    st.floats(1e-3, 1e3),
)
def test_blocks_are_clipped_as_the_rows_that_they_stand_for(filled, bound):
    places, values = (torch.tensor(part) for part in zip(*filled, strict=True))
    blocks = Blocks(values, places, 5)
    total, norms = clip_and_sum(blocks, bound)
    expected, expected_norms = clip_and_sum(rows_of_updates(blocks), bound)
    torch.testing.assert_close(total, expected, rtol=1e-6, atol=1e-6 * bound)
    torch.testing.assert_close(norms, expected_norms, rtol=1e-9, atol=1e-12)


class Ramp:
    """Updates of another package, which says what rows are and leaves the rest to us."""

    width, like, slots, places = 3, torch.zeros(1), 1, None

    def __len__(self):
        return 4

    def fill(self, first, end, rows):
        rows.copy_(torch.arange(first, end)[:, None].expand(-1, 3))


def test_updates_of_another_package_are_clipped_by_the_framework():
    total, norms = clip_and_sum(Ramp(), 2.0)
    assert norms.tolist() == pytest.approx([0.0, 3**0.5, 2.0, 2.0])
    assert total.tolist() == pytest.approx([1 + 4 / 3**0.5] * 3)
