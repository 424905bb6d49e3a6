"""Record mode's frame around any task: it draws, clips, noises and counts steps by itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.protocol import ClientTask
from fedlens.client.train import train
from fedlens.client.users.protocol import NodeDataError

CLIP, NOISE, SIZE = 0.5, 3.0, 2000
ASKED = {"unit": "record", "clipping_norm": CLIP, "noise_multiplier": NOISE, "fixed_seed": 4}


class Careless(ClientTask):
    """A task of another package, which neither draws nor clips nor noises."""

    chunk = 8

    def __init__(self, users, request):
        self.seen: list[int] = []

    def updates(self, cohort, seeds):
        raise AssertionError("this is record mode")

    def record_rows(self, drawn):
        data = drawn.read()
        self.seen.append(len(data.labels))
        return torch.full((len(data.labels), SIZE), 1e6)


class Stepping(Careless):
    """One that steps, and replies the sum of what it was given."""

    takes_steps = True

    def __init__(self, users, request):
        super().__init__(users, request)
        self.releases: list[torch.Tensor] = []

    def take_step(self, release):
        self.releases.append(release)

    def change(self):
        return torch.stack(self.releases).sum(0)


class Extravagant(Careless):
    """One that gives two rows of a record."""

    def record_rows(self, drawn):
        return torch.cat([super().record_rows(drawn)] * 2)


class Choosy(Careless):
    """One that breaks on some records."""

    def record_rows(self, drawn):
        if 7 in drawn.places:
            raise ZeroDivisionError
        return super().record_rows(drawn)


@pytest.fixture
def reply(users, make_request):
    """What a node replies whose task is another's."""

    def answered(task, steps=1, **changes):
        request = make_request(0, **{**ASKED, **changes})
        mechanism = request.mechanism.model_copy(update={"steps": steps})
        with CLIENT_TASKS.replaced("frozen", task):
            return train(users, replace(request, mechanism=mechanism)).total

    return answered


@pytest.mark.law("1: one record moves a sum by at most the clip")
def test_a_task_that_neither_clips_nor_noises_is_clipped_and_noised(reply):
    found = reply(Careless)
    along = CLIP * 51 / np.sqrt(SIZE)  # 51 records, each cut to the clip
    assert found.mean() == pytest.approx(along, abs=5 * NOISE * CLIP / np.sqrt(SIZE))
    assert found.std() == pytest.approx(NOISE * CLIP, rel=0.1)
    silent = reply(Careless, noise_multiplier=0.0)
    assert np.linalg.norm(silent) == pytest.approx(51 * CLIP)


def test_a_task_draws_no_records_by_itself(reply):
    counts = []

    class Counting(Careless):
        def record_rows(self, drawn):
            counts.append(len(drawn.places))
            return super().record_rows(drawn)

    for seed in range(20):
        reply(Counting, sampling_rate=0.3, fixed_seed=seed)
    assert sum(counts) == pytest.approx(20 * 51 * 0.3, abs=5 * np.sqrt(20 * 51 * 0.21))


@pytest.mark.law("1: one record moves a sum by at most the clip")
def test_a_task_takes_as_many_steps_as_the_mechanism_says(reply):
    found = [reply(Stepping, steps, noise_multiplier=0.0) for steps in (1, 3)]
    assert np.allclose(found[1], 3 * found[0])
    noisy = reply(Stepping, 4, clipping_norm=1e-3, noise_multiplier=1e3)
    assert noisy.std() == pytest.approx(2.0, rel=0.1), "each step has noise of its own"
    with pytest.raises(NodeDataError, match="takes one step, not 2"):
        reply(Careless, 2)


def test_what_cannot_be_computed_of_a_record_contributes_nothing_and_fails_no_other(reply):
    silent = {"noise_multiplier": 0.0}
    assert np.linalg.norm(reply(Choosy, **silent)) == pytest.approx(50 * CLIP)
    assert not reply(Extravagant, **silent).any()
