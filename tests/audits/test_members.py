"""Membership inference on released samples, with its positive control."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedlens.simulations.federation.apps
from fedlens.server.config.tree import Config
from fedlens.simulations.audits import members
from fedlens.simulations.audits.members import find_suspects, membership_audit, nearest
from fedlens.simulations.audits.schedule import Schedule


def make_schedule(**changes: object) -> Schedule:
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    return Schedule.of(Config().updated(settings))


@pytest.fixture
def source() -> np.random.Generator:
    return np.random.default_rng(11)


def test_distances_are_those_to_the_nearest(source):
    rows, others = source.random((30, 5)), source.random((40, 5))
    wanted = torch.cdist(torch.from_numpy(rows), torch.from_numpy(others)).min(1).values.numpy()
    assert np.allclose(nearest(rows, others), wanted)


def test_twins_have_the_classes_of_their_members_and_everybody_is_apart(source):
    schedule = make_schedule(data__scheme="classes", data__classes_per_user=1)
    dataset, _ = fedlens.simulations.federation.apps.simulated_federation(schedule.config.data, 0)
    found = find_suspects(schedule, source)

    def classes(rows, images, labels):
        place = {image.tobytes(): c for image, c in zip(members._flat(images), labels, strict=True)}
        return [[place[record.tobytes()] for record in unit] for unit in rows]

    of_members = classes(found.members, dataset.train_images, dataset.train_labels)
    assert of_members == classes(found.twins, dataset.test_images, dataset.test_labels)
    assert len(of_members) > 100 and all(len(set(unit)) == 1 for unit in of_members)
    seen = {record.tobytes() for record in found.reference}
    assert not seen & {r.tobytes() for unit in (*found.members, *found.twins) for r in unit}


def test_replayed_records_are_an_alarm_and_noise_is_none(source):
    schedule = make_schedule()
    claim = schedule.stated
    dataset, _ = fedlens.simulations.federation.apps.simulated_federation(schedule.config.data, 0)
    replayed = membership_audit(
        schedule, dataset.train_images, claim=claim, confidence=0.95, source=source
    )
    assert replayed.verdict == "alarm" and replayed.lower_bound > claim.epsilon
    blank = source.integers(0, 256, (300, 1, 28, 28), dtype=np.uint8)
    found = membership_audit(schedule, blank, claim=claim, confidence=0.95, source=source)
    assert found.verdict == "nothing-found" and found.lower_bound < 1
    assert abs(found.figures["auc"] - 0.5) < 0.12
    assert found.figures["control_auc"] > 0.99 and found.figures["control_lower_bound"] > 2


def test_a_broken_attack_is_reported_as_broken(monkeypatch, source):
    monkeypatch.setattr(members, "scores", lambda units, *_: source.random(len(units)))
    schedule = make_schedule()
    blank = np.zeros((10, 1, 28, 28), dtype=np.uint8)
    found = membership_audit(schedule, blank, claim=schedule.stated, confidence=0.95, source=source)
    assert found.verdict == "cannot-detect" and "broken" in found.words
