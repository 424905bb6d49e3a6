"""Cohort training: per-user clipping, independence of users, ragged and empty users."""

import numpy as np
import pytest
import torch

from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.train import train_cohort
from fedlens.client.users.protocol import ArrayUsers, LocalData
from fedlens.client.users.records import padded
from fedlens.models.critics import WganCritic

BOTH = pytest.mark.parametrize("kind", ["frozen", "wgan"])


@BOTH
def test_the_sum_over_users_is_the_sum_of_users_alone(users, make_request, kind):
    """No user's contribution depends on who else was drawn."""
    together = train_cohort(users, make_request(0, 1, 4, 5, kind=kind))
    alone = sum(train_cohort(users, make_request(u, kind=kind)).total for u in (0, 1, 4, 5))
    np.testing.assert_allclose(together.total, alone, atol=2e-6)


@BOTH
def test_one_users_change_moves_the_sum_by_twice_the_clip_at_most(users, make_request, kind):
    request = make_request(0, 1, kind=kind, clipping_norm=0.01)
    before = train_cohort(users, request)
    changed = users.images.copy()
    changed[:10] = 255 - changed[:10]
    other = ArrayUsers(**{**vars(users), "images": changed})
    after = train_cohort(other, request)
    assert 0 < np.linalg.norm(after.total - before.total) <= 0.02 * (1 + 1e-9)


@BOTH
@pytest.mark.parametrize("label", [-1, 10, 99])
@pytest.mark.law("6: one user fails nobody else")
def test_labels_outside_the_schema_reach_no_other_user_and_fail_no_node(
    users, make_request, kind, label
):
    bound = 0.01
    request = make_request(0, 1, 2, kind=kind, clipping_norm=bound)
    honest = train_cohort(users, request).total
    labels = users.labels.copy()
    labels[10:20] = label
    spoiled = train_cohort(ArrayUsers(**{**vars(users), "labels": labels}), request).total
    # user 1 is then one without records: the sum lacks exactly their clipped update
    assert 0 < np.linalg.norm(spoiled - honest) <= bound * (1 + 1e-9)


@BOTH
def test_users_with_one_or_no_record(users, make_request, kind):
    reply = train_cohort(users, make_request(5, 6, kind=kind))
    assert np.isfinite(reply.total).all() and reply.norms.sum() == 1
    assert np.linalg.norm(reply.total) > 0
    empty = train_cohort(users, make_request(6, kind=kind))
    assert np.linalg.norm(empty.total) == 0 and not empty.norms.any()


@BOTH
def test_a_request_is_reproducible_and_its_seed_matters_only_for_batches(users, make_request, kind):
    first, again = (train_cohort(users, make_request(0, 1, kind=kind)) for _ in "ab")
    assert np.array_equal(first.total, again.total)
    other = train_cohort(users, make_request(0, 1, kind=kind, seed=6))
    assert np.array_equal(first.total, other.total) == (kind == "frozen")


@BOTH
def test_a_node_with_no_drawn_user_answers_zeros_of_the_right_length(users, make_request, kind):
    reply, other = (train_cohort(users, make_request(*who, kind=kind)) for who in ((), (0,)))
    assert reply.total.shape == other.total.shape and not reply.total.any()
    assert reply.norms.shape == other.norms.shape and not reply.norms.any()


@pytest.mark.parametrize("chosen", [(0, 0), (7,), (-1,)])
def test_a_request_for_a_stranger_or_one_user_twice_is_refused(users, make_request, chosen):
    with pytest.raises(ValueError):
        train_cohort(users, make_request(*chosen))


def test_a_user_whose_update_is_not_finite_contributes_nothing(users, make_request, monkeypatch):
    honest = train_cohort(users, make_request(1)).total
    updates = CLIENT_TASKS["frozen"].updates

    def poisoned(self, cohort, seeds):
        rows = updates(self, cohort, seeds)
        rows[0, 3] = float("nan")
        return rows

    monkeypatch.setattr(CLIENT_TASKS["frozen"], "updates", poisoned)
    reply = train_cohort(users, make_request(0, 1))
    np.testing.assert_allclose(reply.total, honest, atol=1e-9)


def test_the_batched_local_steps_are_plain_sgd_user_by_user(users, make_request):
    """The vmapped training equals an ordinary loop with torch.optim and weight clipping."""
    from torch.nn.utils import parameters_to_vector, vector_to_parameters

    from fedlens.models.limits import clamp_weights, weight_limits

    request = make_request(0, kind="wgan", local_steps=3, local_batch=6)
    local = CLIENT_TASKS["wgan"](users, request)
    seed = 13
    batched = local.updates([users.user(0)], [seed])[0]

    held = padded([users.user(0)], 10, users)
    drawn = local._user_steps._batches(held, [seed])
    real, labels, fake = drawn.real[0], drawn.step_labels[0], drawn.fakes[0]
    critic = WganCritic(users.shape, users.classes)
    vector_to_parameters(torch.from_numpy(request.weights["critic"].copy()), critic.parameters())
    start = parameters_to_vector(critic.parameters()).detach().clone()
    optimiser = torch.optim.SGD(critic.parameters(), lr=0.05)
    for step in range(3):
        optimiser.zero_grad()
        loss = critic(fake[step], labels[step]).mean() - critic(real[step], labels[step]).mean()
        loss.backward()
        optimiser.step()
        clamp_weights(critic, weight_limits(critic, 2.0))
    plain = parameters_to_vector(critic.parameters()).detach() - start
    # SELU's slope jumps at 0, so one activation that rounds to the other side is seen: not exact
    assert float((batched - plain).norm() / plain.norm()) < 2e-3


def test_the_frozen_update_is_the_mean_feature_vector_of_each_class(users, make_request):
    from fedlens.models.features import PatchFeatures

    data: LocalData = users.user(2)
    update = CLIENT_TASKS["frozen"](users, make_request(2)).updates([data], [0])[0]
    features = PatchFeatures(users.shape, 123)
    rows = features(data.images)
    expected = torch.zeros(users.classes, rows.shape[1]).index_add_(0, data.labels, rows)
    expected /= len(rows)
    torch.testing.assert_close(update, expected.reshape(-1), atol=1e-6, rtol=1e-5)


def test_as_many_chunks_are_computed_as_are_asked_for_whoever_was_drawn(
    users, make_request, monkeypatch
):
    from fedlens.client import train as cohort

    computed, real = [], cohort._computed
    monkeypatch.setattr(cohort, "_computed", lambda *given: computed.append(1) or real(*given))
    chunk = CLIENT_TASKS["frozen"](users, make_request(0)).chunk
    counts = []
    for drawn in ((), (0,), (0, 1, 4, 5)):
        before = len(computed)
        padded_out = train_cohort(users, make_request(*drawn), 2 * chunk + 1)
        counts.append(len(computed) - before)
        plain = train_cohort(users, make_request(*drawn))
        np.testing.assert_array_equal(padded_out.total, plain.total)
        np.testing.assert_array_equal(padded_out.norms, plain.norms)
    assert counts == [3, 3, 3]


@BOTH
@pytest.mark.parametrize("at_least", [7, 4])
@pytest.mark.law("6: everybody costs the same work")
def test_as_many_users_are_read_as_are_asked_for_whoever_was_drawn(
    users, make_request, monkeypatch, kind, at_least
):
    read, real = [], ArrayUsers.user
    monkeypatch.setattr(
        ArrayUsers,
        "user",
        lambda self, position, rows=None: read.append(position) or real(self, position, rows),
    )
    counts = set()
    for drawn in ((), (0,), (0, 1, 4, 5)):
        read.clear()
        train_cohort(users, make_request(*drawn, kind=kind), at_least)
        assert len(set(read)) == len(read) and set(drawn) <= set(read)
        counts.add(len(read))
    assert len(counts) == 1 and counts.pop() >= at_least


@BOTH
def test_beside_one_who_cannot_be_computed_as_many_are_computed_and_read_whoever_was_drawn(
    users, make_request, monkeypatch, kind
):
    from fedlens.client import train as cohort

    computed, real, read, user = [], cohort._computed, [], ArrayUsers.user
    updates = CLIENT_TASKS[kind].updates

    def failing(self, drawn, seeds):
        if 0 in drawn.positions:
            raise RuntimeError
        return updates(self, drawn, seeds)

    def reading(self, position, rows=None):
        read.append(position)
        return user(self, position, rows)

    monkeypatch.setattr(cohort, "_computed", lambda *given: computed.append(1) or real(*given))
    monkeypatch.setattr(ArrayUsers, "user", reading)
    alone = {u: train_cohort(users, make_request(u, kind=kind)) for u in (1, 4, 5)}
    monkeypatch.setattr(CLIENT_TASKS[kind], "updates", failing)
    counts = set()
    for others in ((), (1,), (1, 4, 5)):
        computed.clear(), read.clear()
        reply = train_cohort(users, make_request(0, *others, kind=kind), 5)
        counts.add((len(computed), len(set(read) - {0})))
        told = sum((alone[u].total for u in others), np.zeros(len(reply.total)))
        np.testing.assert_allclose(reply.total, told, atol=2e-6)
        assert reply.norms.sum() == len(others)
    assert len(counts) == 1 and counts.pop()[1] >= 4


def test_a_task_that_gives_a_user_a_second_row_sends_nothing(users, make_request, monkeypatch):
    real = CLIENT_TASKS["frozen"].updates
    monkeypatch.setattr(
        CLIENT_TASKS["frozen"], "updates", lambda *given: torch.cat([real(*given)] * 2)
    )
    with pytest.raises(ValueError, match="16 updates of 8 users"):
        train_cohort(users, make_request(0))
