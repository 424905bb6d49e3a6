"""What the mutation suite audits: every kind of task of ours in both units, made small."""

from __future__ import annotations

from fedlens.server.config.tree import Config
from fedlens.simulations.audits.schedule import Schedule

RATE = 0.25
ROUNDS = 4
_SMALL = {"rounds": ROUNDS, "sampling_rate": RATE, "noise_multiplier": 3.0}
TASKS = {
    "warmup": {"kind": "frozen", "clipping_norm": 0.3},
    "critic": {"kind": "focused", "clipping_norm": 0.2, "components": 40},
    "annotator": {
        "kind": "annotator",
        "clipping_norm": 0.1,
        "components": 40,
        "features": "orientations",
    },
    "wgan": {"kind": "wgan", "clipping_norm": 1.0, "width": 2, "hidden": 4, "loss": "hinge"},
}
PRIVATIZER = {"kind": "privatizer", "clipping_norm": 0.1, "adversary_width": 4, "batch": 2}
FILTER = {"kind": "trained", "trained_by": "rounds", "network": "dense", "width": 8}
SUMS = {
    "frequencies": {"kind": "frequencies", "clipping_norm": 2.0},
    "moments": {"kind": "moments", "clipping_norm": 3.0},
}


def subjects() -> dict[str, list[Schedule]]:
    """What is audited together, by the name of its task and unit."""
    found = {
        f"{task['kind']}, user": [Schedule.of(_config("user"), task=name)]
        for name, task in TASKS.items()
    }
    found["privatizer, user"] = [Schedule.of(_filtered(), task="privatizer")]
    found |= {f"{name}, user": [Schedule.of(_summed(), task=name)] for name in SUMS}
    found["probe, user"] = [Schedule.of(_probed(), task="probe")]
    found["card, user"] = [Schedule.of(_carded(), task="card")]
    found |= {
        f"{task['kind']}, record": [Schedule.of(_config("record"), task=name)]
        for name, task in TASKS.items()
    }
    return found


def two_tasks() -> dict[str, list[Schedule]]:
    """Two tasks of one run, for what is between tasks."""
    return {
        f"two tasks, {unit}": [
            Schedule.of(_config(unit), task=name) for name in ("critic", "annotator")
        ]
        for unit in ("user", "record")
    }


def _config(unit: str) -> Config:
    steps = {"local_steps": 2} if unit == "record" else {}
    tasks = {
        name: {**_SMALL, **task, **(steps if task["kind"] == "wgan" else {})}
        for name, task in TASKS.items()
    }
    return Config.model_validate(
        {
            "schedule": " ".join(TASKS),
            "data": {"users": 60, "nodes": 2},
            "privacy": {"unit": unit},
            "tasks": tasks,
        }
    )


def _filtered() -> Config:
    return Config.model_validate(
        {
            "schedule": "privatizer critic",
            "data": {"users": 60, "nodes": 2},
            "privatizer": FILTER,
            "tasks": {
                "privatizer": {**_SMALL, **PRIVATIZER},
                "critic": {**_SMALL, **TASKS["warmup"]},
            },
        }
    )


def _summed() -> Config:
    return Config.model_validate(
        {
            "schedule": "frequencies moments",
            "data": {"users": 60, "nodes": 2},
            "privatizer": {"kind": "trained", "trained_by": "sums", "highest_frequency": 5},
            "tasks": {name: {**_SMALL, **task} for name, task in SUMS.items()},
        }
    )


def _carded() -> Config:
    return Config.model_validate(
        {
            "schedule": "card",
            "data": {"users": 60, "nodes": 2},
            "tasks": {"card": {**_SMALL, "kind": "card", "sampling_rate": 1.0}},
        }
    )


def _probed() -> Config:
    return Config.model_validate(
        {
            "schedule": "probe",
            "data": {"users": 60, "nodes": 2},
            "tasks": {"probe": {**_SMALL, "kind": "probe", "probe": "intensity"}},
        }
    )
