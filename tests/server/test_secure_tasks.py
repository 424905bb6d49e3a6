"""Every kind of task goes through the one seam: masked, its runs are the plain ones bit for bit."""

from __future__ import annotations

import pytest
from run_tasks import FOCUSED, WARM

from fedlens.server.config.schedule import total_rounds
from fedlens.server.ledger.plan import planned

KINDS = {
    "frozen": {"tasks.critic.kind": "frozen"},
    "wgan": WARM,
    "focused": {**FOCUSED, "tasks.critic.rounds": 1},
    "annotator": {
        "schedule": "critic annotator",
        "tasks.annotator.kind": "annotator",
        "tasks.annotator.rounds": 1,
        "tasks.annotator.components": 6,
        "tasks.annotator.features": "orientations",
        "tasks.annotator.guided_steps": 2,
    },
    "privatizer": {
        "schedule": "privatizer critic",
        "privatizer.kind": "trained",
        "privatizer.trained_by": "rounds",
        "privatizer.network": "dense",
        "privatizer.width": 4,
        "tasks.privatizer.kind": "privatizer",
        "tasks.privatizer.rounds": 1,
        "tasks.privatizer.adversary_width": 4,
        "tasks.privatizer.batch": 5,
    },
    "probe": {
        "schedule": "probe",
        "tasks.probe.kind": "probe",
        "tasks.probe.probe": "label_share:3",
        "tasks.probe.rounds": 1,
        "tasks.probe.noise_multiplier": 2.0,
    },
}
SECURE = {
    "data.nodes": 3,
    "aggregation.secure": True,
    "aggregation.tolerated_dropouts": 1,
}


@pytest.fixture
def task_config(small_config, few_images_for_the_frame, a_filter_in_no_time):
    """A short run of a kind of task, on three nodes."""

    def make(kind: str, **changes: object):
        settings = {
            "tasks.critic.kind": "frozen",
            "tasks.critic.rounds": 1,
            "tasks.critic.faithful_steps": 0,
            **KINDS[kind],
        }
        if kind == "probe":
            settings = dict(KINDS[kind])
            return small_config(data__nodes=3).updated({**settings, **changes})
        flat = {key.replace(".", "__"): value for key, value in settings.items()}
        return small_config(data__nodes=3, **flat).updated(changes)

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_masked_and_plain_runs_of_a_task_are_equal(task_config, run_small, kind):
    plain = run_small(task_config(kind), "plain")
    masked = run_small(task_config(kind, **SECURE), "masked")
    assert masked.model_sha256 == plain.model_sha256
    assert masked.spending == plain.spending


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_nodes_add_the_noise_of_every_task(task_config, run_small, kind):
    config = task_config(kind, **{**SECURE, "aggregation.noise": "distributed"})
    noised = run_small(config, "noised")
    assert noised.stopped is None and noised.rounds == total_rounds(config)
    assert noised.spending.dp_epsilon == planned(task_config(kind)).dp_epsilon
    assert noised.spending.rounds_with_norms == noised.rounds
