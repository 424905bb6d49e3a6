"""A filter that is trained on a run's own samples, and what is stored of such a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from client.filtered import FilteredUsers, as_asked
from client.records import TrainRequest
from server import synthetic
from server.config import Config, ConfigError
from server.curation import Sampler, kept_arrays, restored_sampler
from server.directory import RunDirectory
from server.schedule import parts, planned_epsilon
from server.store import SampleFilter, open_store
from server.synthetic import SyntheticPrivatizer
from simulations.apps import node_users
from simulations.engine import train_in_process
from simulations.reading import kept_sampler

TINY = {
    "data.users": 40,
    "data.samples_per_user": 10,
    "privacy.delta": 1e-3,
    "critic.family": "frozen",
    "rounds.count": 2,
    "generator.steps": 2,
    "generator.batch": 40,
    "generator.width": 8,
    "release.samples": 30,
    "release.strip": 1,
    "privatizer.method": "synthetic",
    "privatizer.network": "code",
    "privatizer.width": 2,
    "privatizer.steps": 2,
}


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(synthetic, "SAMPLES", 200)
    for name in ("READING_STEPS", "COPYING_STEPS", "MEETING_STEPS"):
        monkeypatch.setattr(synthetic, name, 2)


def trained(path, **changes):
    config = Config().updated({**TINY, **changes})
    directory = RunDirectory.create(path, config)
    outcome = train_in_process(config, directory, directory.default_store, None)
    return config, directory, outcome


def test_a_run_stores_nothing_but_filtered_samples(tmp_path):
    config, directory, outcome = trained(tmp_path / "run")
    sampler = kept_sampler(directory)
    assert sampler.privatizer is not None and sampler.secrets == 2 and sampler.classes == 20
    with open_store(directory.default_store) as store:
        batches = store.batches(outcome.run_id)
        wanted = SampleFilter(run_id=outcome.run_id, purpose="release")
        stored = store.samples(wanted)
        # round 1 has samples too, which nothing hides yet
        assert {batch.round for batch in batches} == {2}
        assert {batch.purpose for batch in batches} == {"strip", "release"}
        # the class, and no secret: neither in a column nor in the order
        assert [sample.requested_class for sample in stored] == [i % 10 for i in range(30)]
    bare = replace(sampler, privatizer=None)
    pairs = torch.arange(20)
    shown, raw = sampler.draw(pairs, 3), bare.draw(pairs, 3)
    assert shown.shape == raw.shape and not torch.allclose(shown, raw, atol=0.1)
    assert not torch.allclose(sampler.unfiltered().draw(pairs, 3), raw, atol=0.1)
    # nothing but the parts of a run without a filter is paid for
    assert [part.name for part in parts(config)] == ["critic"]
    plain = config.updated({"privatizer.method": "", "privatizer.network": "unet"})
    assert planned_epsilon(config, 1e-3) == planned_epsilon(plain, 1e-3)


def test_a_run_is_the_same_when_it_is_repeated_or_taken_up(tmp_path):
    # noise is from the operating system, so one run's state is taken up twice
    config, directory, _ = trained(tmp_path / "run")
    snapshot = directory.load_state()
    vector = snapshot.arrays["privatizer/mean"]
    sampler = kept_sampler(directory)
    again = SyntheticPrivatizer(config, (1, 28, 28), 10, 2)
    assert again.network is None
    with pytest.raises(ValueError, match="not trained"):
        again.weights()
    again.fit(replace(sampler, privatizer=None, secrets=1), lambda done, all_: None)
    assert np.array_equal(again.weights(), vector)
    other = SyntheticPrivatizer(config, (1, 28, 28), 10, 2)
    other.restore(again.state())
    assert np.array_equal(other.weights(), vector)
    restored = restored_sampler(config, (1, 28, 28), 20, kept_arrays(sampler))
    pairs = torch.arange(20)
    assert torch.equal(restored.draw(pairs, 5), sampler.draw(pairs, 5))


def test_a_run_that_its_budget_ends_early_stores_no_samples(tmp_path):
    config = Config().updated(TINY)
    half = planned_epsilon(config.updated({"rounds.count": 1}), 1e-3) * 1.01
    _, directory, outcome = trained(tmp_path / "run", **{"privacy.epsilon_budget": half})
    assert outcome.stopped and outcome.rounds == 1
    with open_store(directory.default_store) as store:
        assert store.batches(outcome.run_id) == []


def test_nodes_give_pairs_of_unfiltered_images():
    config = Config().updated(TINY)
    users = node_users(config, 0)
    request = TrainRequest(1, (0,), {}, {}, 0)
    asked = replace(request, settings={"privatizer.method": "synthetic", "privatizer.seed": 0})
    shown = as_asked(users, asked)
    assert isinstance(shown, FilteredUsers) and shown.classes == 20
    raw, pairs = users.user(3), shown.user(3)
    assert torch.equal(pairs.images, raw.images)
    assert torch.equal(pairs.labels, raw.labels * 2 + raw.secrets)
    assert as_asked(users, request) is users


def test_secrets_of_samples_are_even_and_their_own(tmp_path):
    _, directory, _ = trained(tmp_path / "run")
    sampler: Sampler = kept_sampler(directory)
    labels = torch.arange(10).repeat(200)
    asked = sampler.asked(labels, 1)
    assert torch.equal(asked // 2, labels) and 0.45 < float((asked % 2).float().mean()) < 0.55
    assert torch.equal(asked, sampler.asked(labels, 1))
    assert not torch.equal(asked, sampler.asked(labels, 2))
    with pytest.raises(ValueError, match="no annotator"):
        sampler.label(torch.zeros(1, 1, 28, 28))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"privatizer.rounds": 3}, "privatizer.method"),
        ({"privatizer.network": "unet"}, "belong together"),
        ({"privatizer.method": "information", "privatizer.rounds": 3}, "belong together"),
        ({"privatizer.steps": 0}, "privatizer.steps"),
        ({"privatizer.budget": -1.0}, "privatizer.budget"),
        ({"privatizer.secret": ""}, "privatizer.secret"),
        ({"privatizer.consenting": 0.5}, "privatizer.consenting"),
        ({"privacy.unit": "record"}, "privatizer.method"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, text):
    with pytest.raises(ConfigError, match=text):
        Config().updated({**TINY, **changes})
