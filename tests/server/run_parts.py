"""Settings of small runs of several parts, over those of the small federation."""

from __future__ import annotations

PARTS = {
    "rounds.count": 1,
    "annotator.rounds": 2,
    "annotator.components": 6,
    "annotator.features": "orientations",
    "annotator.guided_steps": 2,
}
RECORD = {
    "privacy.unit": "record",
    "privacy.delta": 1e-5,
    "critic.local_batch": 100,
    "annotator.sampling_rate": 0.5,
}
WARM = {"warmup.rounds": 1, "warmup.steps": 2, "critic.family": "wgan"}
FOCUSED = {
    "warmup.rounds": 1,
    "warmup.steps": 2,
    "critic.family": "focused",
    "critic.components": 6,
    "rounds.count": 2,
}
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
"""A run of a second whose filter is trained on samples."""
