"""Record mode: Opacus' gradients, per-record clipping, noise on the node."""

import numpy as np
import pytest
import torch

from client.record_mode import record_gradients, train_records
from client.tasks.wgan import LOSSES
from models.critics import WganCritic

RECORD = {
    "critic__family": "wgan",
    "privacy__unit": "record",
    "privacy__sampling_rate": 0.5,
    "privacy__fixed_seed": 9,
    "critic__local_batch": 25,
}


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_are_each_records_own(users, loss):
    critic = WganCritic(users.shape, users.classes)
    data = users.user(0)
    rows = record_gradients(critic, data.images, data.labels, {"loss": loss})
    for i in range(len(data.labels)):
        score = critic(data.images[i : i + 1], data.labels[i : i + 1])
        alone = torch.autograd.grad(LOSSES[loss].real(score), list(critic.parameters()))
        torch.testing.assert_close(rows[i], torch.cat([g.reshape(-1) for g in alone]))


def test_noise_has_the_standard_deviation_that_the_ledger_states(users, make_request):
    """Over seeds, the update varies by rate x z x C / batch in each coordinate, and more by
    nothing else: the sample drawn is fixed by drawing every record."""
    common = {**RECORD, "privacy__sampling_rate": 1.0, "critic__weight_limit": 1e6}
    z, bound, rate, batch = 3.0, 0.5, 0.05, 25
    common |= {"privacy__noise_multiplier": z, "privacy__clipping_norm": bound}
    totals = [
        train_records(users, make_request(0, **{**common, "privacy__fixed_seed": s})).total
        for s in range(8)
    ]
    spread = np.stack(totals).std(axis=0, ddof=1)
    expected = rate * z * bound / batch
    assert np.sqrt((spread**2).mean()) == pytest.approx(expected, rel=0.02)


def test_without_noise_one_record_moves_the_update_by_its_share_at_most(users, make_request):
    settings = {**RECORD, "privacy__noise_multiplier": 0.0, "privacy__sampling_rate": 1.0}
    settings |= {"privacy__clipping_norm": 0.01, "critic__weight_limit": 1e6}
    before = train_records(users, make_request(0, **settings)).total
    users.images[0] = 255 - users.images[0]
    after = train_records(users, make_request(0, **settings)).total
    moved = np.linalg.norm(after - before)
    assert 0 < moved <= 2 * 0.05 * 0.01 / 25 * 1.01


def test_a_fixed_seed_from_a_server_is_refused_outside_tests(users, make_request, monkeypatch):
    request = make_request(0, **RECORD)
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(ValueError, match="tests only"):
        train_records(users, request)


def test_no_two_nodes_draw_the_same_noise(users, make_request):
    from client.data import ArrayUsers

    settings = {**RECORD, "privacy__noise_multiplier": 500.0, "critic__weight_limit": 1e6}
    other = ArrayUsers(**{**vars(users), "partition": 1})
    first, second = (train_records(u, make_request(0, **settings)).total for u in (users, other))
    assert np.abs(np.corrcoef(first, second)[0, 1]) < 0.05
