"""Audits of masked sums: of the total that is opened, with noise of the server or of nodes."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

import fedlens.accountant.noise.shares
from fedlens.server.round.masked_step import SecureStep
from fedlens.simulations.audits.clips import clip_probe
from fedlens.simulations.audits.stage import AuditedTask, audited_aggregation
from harness import mutate_clips
from harness.audit_mutants import Mutant
from harness.audit_power import first_alarm

NOISES = ("server", "distributed")
SUBJECT = "annotator, user"


def masked(known, noise, subject=SUBJECT):
    schedule = known[subject][0]
    changes = {"aggregation.secure": True, "aggregation.noise": noise, "data.nodes": 3}
    return replace(schedule, config=schedule.config.updated(changes))


@pytest.mark.parametrize("noise", NOISES)
def test_the_code_as_it_is_raises_no_alarm(known, verdicts, noise):
    found = verdicts([masked(known, noise)])
    assert "alarm" not in found.values()
    assert {"clipping", "noise", "sampling", "one-run"} <= set(found)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.law("audits: canaries take the real way")
def test_a_canary_goes_through_the_masked_sum(known, source, noise, monkeypatch):
    opened = []
    real = SecureStep._open
    monkeypatch.setattr(
        SecureStep, "_open", lambda step, sum_: opened.append(1) or real(step, sum_)
    )
    probe = clip_probe(AuditedTask.of(masked(known, noise)), source)
    assert opened and probe.taken == () and probe.refused == 0
    assert probe.sent == pytest.approx(1.0, abs=1e-3)
    assert probe.cosine == pytest.approx(1.0, abs=1e-3)


def test_a_server_that_takes_any_total_is_found(known, source, monkeypatch):
    monkeypatch.setattr("fedlens.server.round.masked_step.objection", lambda answer, limits: None)
    monkeypatch.setattr(SecureStep, "_check_noised", lambda *_: None)
    for noise in NOISES:
        probe = clip_probe(AuditedTask.of(masked(known, noise)), source)
        assert probe.taken == ("far too long",)


@contextmanager
def shares_changed(change):
    """Nodes' shares of noise by another law."""
    real = fedlens.accountant.noise.shares.discrete_normal

    def drawn(size, scale, source):
        return np.rint(change(real(size, scale, source).astype(np.float64))).astype(np.int64)

    with patch("fedlens.accountant.noise.shares.discrete_normal", drawn):
        yield


@pytest.mark.parametrize(
    ("name", "fault", "noise", "kind"),
    [
        ("no noise of nodes", lambda s: shares_changed(lambda n: 0 * n), "distributed", "noise"),
        ("half of it", lambda s: shares_changed(lambda n: n / 2), "distributed", "noise"),
        (
            "no clip",
            lambda s: mutate_clips.clip_replaced(mutate_clips.doubled),
            "server",
            "clipping",
        ),
        (
            "no clip of nodes that noise",
            lambda s: mutate_clips.clip_replaced(mutate_clips.doubled),
            "distributed",
            "clipping",
        ),
    ],
)
@pytest.mark.law("audits: every fault of the suite is found")
def test_faults_behind_masks_are_caught(known, name, fault, noise, kind):
    assert first_alarm([masked(known, noise)], Mutant(name, fault, (SUBJECT,))) == kind


def test_a_runs_own_dropouts_and_trimming_are_left_out(known):
    config = known[SUBJECT][0].config
    many = config.updated(
        {
            "aggregation.secure": True,
            "aggregation.tolerated_dropouts": 2,
            "aggregation.colluding": 1,
            "data.nodes": 9,
        }
    )
    told = many.updated({"data.nodes": 2, **audited_aggregation(many)})
    assert told.aggregation.secure and told.aggregation.colluding == 0
    trimmed = config.updated({"aggregation.trimmed_share": 0.34, "data.nodes": 3})
    assert trimmed.updated({"data.nodes": 2, **audited_aggregation(trimmed)}).data.nodes == 2
