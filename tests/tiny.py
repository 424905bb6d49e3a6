"""Settings of a run that takes a second."""

from __future__ import annotations

TINY: dict[str, object] = {
    "schedule": "critic",
    "data.users": 30,
    "data.samples_per_user": 4,
    "privacy.delta": 1e-3,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 2,
    "tasks.critic.noise_multiplier": 3.0,
    "tasks.critic.generator_steps": 2,
    "generator.batch": 20,
    "generator.width": 8,
    "release.samples": 20,
    "release.strip": 1,
    "release.agreement": 0.0,
}
