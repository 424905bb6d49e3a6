"""Record mode: per-record clipping, noise on the node."""

import numpy as np
import pytest

from fedlens.client.train import train

RECORD = {
    "kind": "wgan",
    "unit": "record",
    "sampling_rate": 0.5,
    "fixed_seed": 9,
    "denominator": 25.0,
}


@pytest.mark.law("1: the noise is exact, secret and drawn once")
def test_noise_has_the_standard_deviation_that_the_ledger_states(users, make_request):
    """Over seeds, the update varies by rate x z x C / batch in each coordinate, and more by
    nothing else: the sample drawn is fixed by drawing every record."""
    common = {**RECORD, "sampling_rate": 1.0, "weight_limit": 1e6}
    z, bound, rate, batch = 3.0, 0.5, 0.05, 25
    common |= {"noise_multiplier": z, "clipping_norm": bound}
    totals = [train(users, make_request(0, **{**common, "fixed_seed": s})).total for s in range(8)]
    spread = np.stack(totals).std(axis=0, ddof=1)
    expected = rate * z * bound / batch
    assert np.sqrt((spread**2).mean()) == pytest.approx(expected, rel=0.02)


def test_without_noise_one_record_moves_the_update_by_its_share_at_most(users, make_request):
    settings = {**RECORD, "noise_multiplier": 0.0, "sampling_rate": 1.0}
    settings |= {"clipping_norm": 0.01, "weight_limit": 1e6}
    before = train(users, make_request(0, **settings)).total
    users.images[0] = 255 - users.images[0]
    after = train(users, make_request(0, **settings)).total
    moved = np.linalg.norm(after - before)
    assert 0 < moved <= 2 * 0.05 * 0.01 / 25 * 1.01


def test_a_fixed_seed_from_a_server_is_refused_outside_tests(users, make_request, monkeypatch):
    request = make_request(0, **RECORD)
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(ValueError, match="tests only"):
        train(users, request)


def test_record_mode_computes_nothing_for_user_mode(users, make_request, monkeypatch):
    """What users' steps are taken against is a model's worth of memory and time."""

    def never(*_):
        raise AssertionError("user mode's networks were built")

    monkeypatch.setattr("fedlens.client.tasks.wgan.UserSteps", never)
    assert np.isfinite(train(users, make_request(0, **RECORD)).total).all()
    with pytest.raises(AssertionError, match="user mode"):
        train(users, make_request(0, kind="wgan"))


@pytest.mark.law("2: noise never repeats")
def test_no_two_nodes_draw_the_same_noise(users, make_request):
    from fedlens.client.users.protocol import ArrayUsers

    settings = {**RECORD, "noise_multiplier": 500.0, "weight_limit": 1e6}
    other = ArrayUsers(**{**vars(users), "partition": 1})
    first, second = (train(u, make_request(0, **settings)).total for u in (users, other))
    assert np.abs(np.corrcoef(first, second)[0, 1]) < 0.05
