"""The same seed gives the same model through `flwr run` and in this process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from thorough import some

from fedlens.server.config.schedule import total_rounds
from fedlens.server.config.tree import Config
from fedlens.server.learning.privatizer import kept_filter_weights
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process
from fedlens.simulations.transports.ray import train_through_ray
from fedlens.store import open_store

pytestmark = [pytest.mark.ray, pytest.mark.slow]

CONFIG = {
    "data.users": 40,
    "data.samples_per_user": 5,
    "privacy.delta": 1e-3,
    "privacy.fixed_seed": 3,
    "tasks.critic.sampling_rate": 0.5,
    "tasks.critic.rounds": 2,
    "tasks.critic.kind": "wgan",
    "tasks.critic.generator_steps": 3,
    "generator.batch": 40,
    "generator.width": 16,
    "release.samples": 10,
    "release.strip": 1,
}


TWO_TASKS = {
    **CONFIG,
    "schedule": "critic annotator",
    "tasks.annotator.kind": "annotator",
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.annotator.rounds": 1,
    "tasks.annotator.components": 6,
    "tasks.annotator.features": "orientations",
    "tasks.annotator.guided_steps": 2,
    "release.agreement": 0.2,
    "tasks.critic.faithful_steps": 2,
}

RECORDS = {
    **TWO_TASKS,
    "schedule": "warmup critic annotator",
    "tasks.warmup.kind": "frozen",
    "privacy.unit": "record",
    "privacy.delta": 1e-5,
    "tasks.critic.sampling_rate": 0.5,
    "tasks.critic.kind": "focused",
    "tasks.critic.components": 6,
    "data.records_per_node": 200,
    "tasks.warmup.rounds": 1,
    "tasks.warmup.generator_steps": 2,
    "tasks.annotator.sampling_rate": 0.5,
}

FILTERED = {
    **CONFIG,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "schedule": "privatizer critic",
    "privatizer.kind": "trained",
    "privatizer.trained_by": "rounds",
    "tasks.privatizer.kind": "privatizer",
    "tasks.privatizer.rounds": 1,
    "privatizer.width": 2,
    "tasks.privatizer.adversary_width": 2,
    "privatizer.consenting": 0.25,
}
MASKED = {
    **TWO_TASKS,
    "data.nodes": 3,
    "aggregation.secure": True,
    "aggregation.noise": "distributed",
    "aggregation.tolerated_dropouts": 1,
}
"""Nodes keep their secrets between the five messages of a round, mask, and add the noise."""


SUMS = {
    **CONFIG,
    "schedule": "frequencies moments critic",
    "tasks.frequencies.kind": "frequencies",
    "tasks.moments.kind": "moments",
    "tasks.moments.sampling_rate": 0.5,
    "privatizer.kind": "trained",
    "privatizer.trained_by": "sums",
    "privatizer.highest_frequency": 4,
    "privatizer.width": 8,
    "privatizer.steps": 3,
    "privatizer.consenting": 0.25,
}


@pytest.mark.thorough
def test_a_run_over_flower_takes_the_filter_of_another(tmp_path):
    pytest.importorskip("ray")
    trained = Config().updated(FILTERED)
    first = RunDirectory.create(tmp_path / "first", trained)
    train_in_process(trained, first, first.default_store, None)
    taken = {
        **{k: v for k, v in FILTERED.items() if "privatizer" not in k},
        "schedule": "critic",
        **{k: FILTERED[k] for k in ("privatizer.width", "privatizer.consenting")},
        "privatizer.kind": "pretrained",
        "privatizer.path": str(first.path),
    }
    config, digests = Config().updated(taken), []
    for name, trainer in (("in-process", train_in_process), ("ray", train_through_ray)):
        directory = RunDirectory.create(tmp_path / name, config)
        digests.append(trainer(config, directory, directory.default_store, None).model_sha256)
        filters = [
            kept_filter_weights(made.config(), made.load_state().arrays)
            for made in (first, directory)
        ]
        assert np.array_equal(*filters)
    assert digests[0] == digests[1]


def pets(path: Path) -> Path:
    """400 noisy pictures, whose two classes have names."""
    source = np.random.default_rng(0)
    images = source.integers(0, 256, (400, 28, 28), dtype=np.uint8)
    labels = np.arange(400) % 2
    parts = {"train_images": images, "train_labels": labels}
    parts |= {"test_images": images[:20], "test_labels": labels[:20]}
    np.savez(path, classes=["cat", "dog"], **parts)
    return path


@pytest.mark.parametrize(
    "settings",
    some([MASKED, RECORDS, SUMS], MASKED),
    ids=["annotator, masked", "records", "moments, local steps"],
)
@pytest.mark.law("reproducible: transports agree")
def test_flwr_run_and_the_in_process_transport_make_the_same_model(tmp_path, settings):
    pytest.importorskip("ray")
    config = Config().updated({**settings, "data.name": f"npz:{pets(tmp_path / 'pets.npz')}"})
    outcomes = {}
    for name, trainer in (("in-process", train_in_process), ("ray", train_through_ray)):
        directory = RunDirectory.create(tmp_path / name, config)
        outcomes[name] = trainer(config, directory, directory.default_store, None)
    here, there = outcomes["in-process"], outcomes["ray"]
    assert here.model_sha256 == there.model_sha256
    assert here.spending == there.spending
    with open_store(there.store) as store:
        assert store.run(there.run_id).status == "finished"
        assert store.run(there.run_id).class_names == ("cat", "dog")
        rounds = total_rounds(config)
        assert len(store.releases(there.run_id)) == len(store.ledger(there.run_id)) == rounds
