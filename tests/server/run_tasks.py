"""Settings of small runs of several tasks, over those of the small federation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedlens.client.messages import Vector
from fedlens.models.shapes import ImageShape
from fedlens.server.config.tree import Config
from fedlens.server.tasks.protocol import ServerTask, TaskContext

KINDS = {
    "frequencies": "frequencies",
    "moments": "moments",
    "privatizer": "privatizer",
    "warmup": "frozen",
    "critic": "",
    "annotator": "annotator",
}
"""The tasks that these tests schedule, in their order, with the kinds that names stand for."""


SMALL = {
    "data.users": 40,
    "data.nodes": 2,
    "data.samples_per_user": 5,
    "privacy.delta": 1e-3,
    "privacy.fixed_seed": 3,
    "tasks.critic.kind": "null",
    "tasks.critic.rounds": 3,
    "tasks.critic.generator_steps": 2,
    "generator.batch": 20,
    "generator.width": 8,
    "release.samples": 10,
    "release.strip": 1,
}
"""Forty users of five embedded images each, on two nodes; of each one number (`outside_task`)."""


def planned(settings: dict[str, object]) -> dict[str, object]:
    """Settings with a schedule of all the tasks that they speak of, where they give none."""
    spoken_of = {key.split(".")[1] for key in settings if key.startswith("tasks.")}
    names = [name for name in KINDS if name in spoken_of]
    kinds = {f"tasks.{name}.kind": KINDS[name] for name in names if KINDS[name]}
    return {"schedule": " ".join(names), **kinds, **settings}


ANNOTATED = {
    "tasks.critic.rounds": 1,
    "tasks.annotator.rounds": 2,
    "tasks.annotator.components": 6,
    "tasks.annotator.features": "orientations",
    "tasks.annotator.guided_steps": 2,
    "tasks.critic.faithful_steps": 2,
}
"""Its critic is one that faithful samples can be of: frozen or focused."""
RECORD = {
    "privacy.unit": "record",
    "privacy.delta": 1e-5,
    "data.records_per_node": 100,
}
RECORD_ANNOTATED = {**RECORD, "tasks.annotator.sampling_rate": 0.5}
WARM = {
    "tasks.warmup.rounds": 1,
    "tasks.warmup.generator_steps": 2,
    "tasks.critic.kind": "wgan",
    "tasks.critic.faithful_steps": 0,
}
FOCUSED = {
    "tasks.warmup.rounds": 1,
    "tasks.warmup.generator_steps": 2,
    "tasks.critic.kind": "focused",
    "tasks.critic.components": 6,
    "tasks.critic.rounds": 2,
}
SUMS = {
    "privatizer.kind": "trained",
    "privatizer.trained_by": "sums",
    "privatizer.highest_frequency": 3,
    "privatizer.width": 4,
    "privatizer.steps": 2,
    "tasks.frequencies.rounds": 1,
    "tasks.moments.rounds": 1,
}
"""A filter from two noised sums."""
TINY = {
    "data.users": 40,
    "data.samples_per_user": 10,
    "privacy.delta": 1e-3,
    "tasks.critic.rounds": 2,
    "tasks.critic.generator_steps": 2,
    "generator.batch": 40,
    "generator.width": 8,
    "release.samples": 30,
    "release.strip": 1,
    "privatizer.kind": "trained",
    "privatizer.trained_by": "samples",
    "privatizer.width": 2,
    "privatizer.steps": 2,
}
"""A run of a second whose filter is fitted on samples."""


_CRITIC: dict[str, object] = {"schedule": "critic", "tasks.critic.kind": "frozen"}
_WARMUP: dict[str, object] = {
    "schedule": "warmup critic",
    "tasks.warmup.kind": "frozen",
    "tasks.warmup.noise_multiplier": 4.0,
    "tasks.warmup.generator_steps": 4,
}
_FOCUSED: dict[str, object] = {
    **_WARMUP,
    "tasks.critic.kind": "focused",
    "tasks.critic.rounds": 2,
    "tasks.critic.generator_steps": 2,
}
_ANNOTATOR: dict[str, object] = {
    "schedule": "warmup critic annotator",
    "tasks.annotator.kind": "annotator",
    "tasks.annotator.rounds": 3,
    "tasks.annotator.components": 20,
    "tasks.annotator.guided_steps": 3,
    "release.agreement": 0.5,
}
_RECORD: dict[str, object] = {"privacy.unit": "record", "privacy.delta": 1e-5}
_PRIVATIZER: dict[str, object] = {
    "schedule": "privatizer critic",
    "privatizer.kind": "trained",
    "privatizer.trained_by": "rounds",
    "tasks.privatizer.kind": "privatizer",
    "tasks.privatizer.rounds": 3,
    "tasks.privatizer.lead": 1,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.critic.generator_steps": 2,
}
_FROZEN: dict[str, object] = {
    **_CRITIC,
    "tasks.critic.rounds": 3,
    "tasks.critic.generator_steps": 2,
}
RUNS: dict[str, dict[str, object]] = {
    "frozen": {**_FROZEN, "tasks.critic.sampling_rate": 0.5},
    "focused and annotator": {**_FOCUSED, **_ANNOTATOR, "tasks.critic.components": 30},
    "wgan": {
        **_WARMUP,
        "tasks.critic.kind": "wgan",
        "tasks.warmup.generator_steps": 3,
        "tasks.critic.local_steps": 2,
    },
    "wgan, hinge": {
        "tasks.critic.kind": "wgan",
        "tasks.critic.loss": "hinge",
        "tasks.critic.optimiser": "sgd",
        "tasks.critic.last_rate": 0.5,
    },
    "record wgan": {
        "tasks.critic.kind": "wgan",
        **_RECORD,
        "data.records_per_node": 200,
        "tasks.critic.sampling_rate": 0.5,
        "tasks.critic.local_steps": 2,
    },
    "record focused": {
        **_RECORD,
        **_FOCUSED,
        **_ANNOTATOR,
        "tasks.critic.components": 30,  # as many as the few images of a test's frame bear
        "data.records_per_node": 100,
        "tasks.annotator.sampling_rate": 0.5,
    },
    "privatizer, information": {**_PRIVATIZER, "tasks.privatizer.method": "information"},
    "privatizer, alpha": {
        **_PRIVATIZER,
        "tasks.privatizer.method": "alpha",
        "privatizer.network": "dense",
        "privatizer.condition": True,
    },
    "privatizer, moments": {
        **SUMS,
        "schedule": "frequencies moments critic",
        "tasks.frequencies.kind": "frequencies",
        "tasks.moments.kind": "moments",
        "tasks.critic.kind": "frozen",
        "tasks.critic.rounds": 1,
        "tasks.critic.generator_steps": 2,
    },
    "privatizer, synthetic": {
        **_FROZEN,
        "privatizer.kind": "trained",
        "privatizer.trained_by": "samples",
        "privatizer.width": 2,
        "privatizer.steps": 3,
        "privatizer.output_noise_std": 0.25,
    },
}
"""A run of each kind of task, in the units and with the filters that it has."""


def context_of(
    config: Config,
    name: str,
    *,
    shape: ImageShape = (1, 28, 28),
    classes: int = 10,
    sensitive_classes: int = 0,
    generator_weights: Callable[[], Vector] = lambda: np.zeros(0, np.float32),
    **earlier: ServerTask,
) -> TaskContext:
    """What a task of a run may build on, for tasks that are tried without a run."""
    return TaskContext(
        config=config,
        name=name,
        shape=shape,
        classes=classes,
        record_classes=classes,
        sensitive_classes=sensitive_classes,
        generator_weights=generator_weights,
        earlier=earlier,
    )
