"""Canaries go through what real users and records go through, at the task's own size."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from thorough import some

import fedlens.simulations.federation.apps
from fedlens.accountant.audit.norms import norms_test
from fedlens.api.presets import preset_config
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.frozen import FrozenLocalTask
from fedlens.client.update.clipping import Blocks
from fedlens.simulations.audits import audit
from fedlens.simulations.audits.audit import AuditPlan, restarts_repeat, run_audits
from fedlens.simulations.audits.canaries import OVERLONG, Canaries, with_values
from fedlens.simulations.audits.clips import HOSTILE, clip_probe
from fedlens.simulations.audits.made_up import made_up_images, made_up_labels, owner_of
from fedlens.simulations.audits.records import CanaryRecords, with_records
from fedlens.simulations.audits.schedule import Schedule
from fedlens.simulations.audits.silence import numbers_of, silent_releases
from fedlens.simulations.audits.stage import AuditedTask
from fedlens.simulations.audits.task_audit import drawn_records, drawn_users
from harness.audit_mutants import ALL, RECORDS, USERS

DEMO_SIZES = {"card": 261, "warmup": 64330, "critic": 4000, "annotator": 4010}


def audited(known, subject):
    return AuditedTask.of(known[subject][0])


@pytest.mark.law("audits: canaries take the real way")
def test_updates_of_canaries_have_the_size_of_the_tasks_own():
    for schedule in Schedule.all_of(preset_config("demo")):
        assert AuditedTask.of(schedule).size == DEMO_SIZES[schedule.name]


@pytest.mark.parametrize("subject", USERS)
@pytest.mark.law("audits: canaries take the real way")
def test_a_canary_ten_times_too_long_arrives_at_the_clip(known, source, subject):
    probe = clip_probe(audited(known, subject), source)
    assert probe.sent == pytest.approx(1.0, abs=1e-4)
    assert probe.cosine == pytest.approx(1.0, abs=1e-4) and probe.refused == 0
    assert probe.computed <= 1 + 1e-4 and probe.taken == ()
    assert all(norm <= 1 + 1e-4 for _, norm in probe.blocks)


@pytest.mark.parametrize("subject", RECORDS)
def test_a_record_arrives_at_the_clip(known, source, subject):
    probe = clip_probe(audited(known, subject), source)
    assert probe.sent is None and probe.computed == pytest.approx(1.0, abs=1e-3)


def test_the_privatizers_blocks_are_looked_at_one_by_one(known, source):
    names = [name for name, _ in clip_probe(audited(known, "privatizer, user"), source).blocks]
    assert "filter" in names and "shares" in names


def test_values_are_put_in_place_of_the_owners_updates():
    raw = torch.arange(12.0).view(2, 6)
    found = Blocks(torch.ones(2, 2), torch.tensor([0, 2]), 3)
    made = with_values(found, [1, -1], raw)
    assert made.tolist() == [raw[1].tolist(), [0, 0, 0, 0, 1, 1]]
    kept = with_values(torch.zeros(2, 6), [-1, 1], raw)
    assert kept.tolist() == [[0] * 6, raw[1].tolist()]


def test_a_canary_is_ten_times_too_long_wherever_the_task_has_values(known, source):
    task = audited(known, "frozen, user")
    canaries = Canaries(task, 20, source, norm=OVERLONG)
    lengths = canaries.raw.norm(dim=1) / task.schedule.event.clipping_norm
    assert torch.allclose(lengths, torch.full((20,), OVERLONG))
    # what has values is told before any coin is, of all alike
    assert (canaries.raw != 0).all()


def test_images_say_whose_they_are(source):
    images = made_up_images(300, 2, (1, 28, 28), source)
    labels = made_up_labels(300, 2, 10, source)
    assert float(images.abs().max()) <= 1 and all(len(set(row)) == 2 for row in labels.tolist())

    class _Audited:
        classes, sensitive = 10, ""

    for number in (0, 7, 299):
        users = with_records(_Audited, images[number], labels[number])
        assert owner_of(users.user(0)) == number


@pytest.mark.parametrize("subject", some(ALL, "focused, user", "frozen, record"))
@pytest.mark.law("audits: canaries take the real way")
def test_a_sum_tells_who_is_in_it_once(known, source, subject):
    task = audited(known, subject)
    if subject in RECORDS:
        found = drawn_records(CanaryRecords(task, 20, 2, source))
    else:
        found = drawn_users(task, source, 20)
    assert np.abs(found.shares - found.drawn).max() < 0.01 and found.residual < 0.01
    assert 0.1 < found.drawn.mean() < 0.4 and not np.array_equal(found.drawn[0], found.drawn[1])


@pytest.mark.parametrize("subject", ["annotator, user", "annotator, record", "wgan, record"])
def test_silence_is_noise_of_all_rounds_in_several_lives(known, subject):
    task = audited(known, subject)
    assert numbers_of(task)[0] == task.schedule.task.first
    assert numbers_of(task)[-1] == task.schedule.task.last
    values = silent_releases(task, releases=16).sums
    assert values.shape == (16, task.size)
    assert values.std() == pytest.approx(1.0, rel=6 / np.sqrt(2 * values.size))
    assert len(np.unique(values)) > 0.99 * values.size


def test_histograms_of_norms_are_noise_of_their_own_beside_that_of_the_sums(known):
    found = silent_releases(audited(known, "annotator, user"), releases=16)
    assert found.norms is not None and found.norms.shape == (16, 16)
    assert norms_test(found.norms, found.sums).noise.ratio == pytest.approx(1.0, rel=0.25)
    assert silent_releases(audited(known, "annotator, record"), releases=16).norms is None


def test_a_canary_counts_once_in_the_histogram_of_norms(known, source):
    probe = clip_probe(audited(known, "annotator, user"), source)
    assert probe.counted == pytest.approx(1.0, abs=1e-3)
    assert clip_probe(audited(known, "annotator, record"), source).counted is None


def test_the_noise_that_is_declared_of_both_parts_spends_what_the_round_is_charged(known):
    schedule = known["annotator, user"][0]
    together = schedule.noise_on_sums**-2 + schedule.noise_on_norms**-2
    assert together == pytest.approx(schedule.event.noise_multiplier**-2, rel=1e-12)
    assert np.isinf(known["annotator, record"][0].noise_on_norms)


@pytest.mark.parametrize("subject", ["annotator, user", "wgan, record"])
def test_a_hostile_nodes_replies_are_refused_without_a_word_in_the_log(
    known, source, subject, caplog
):
    with caplog.at_level(logging.WARNING):
        assert clip_probe(audited(known, subject), source).taken == ()
    assert len(HOSTILE) >= 4 and "refused" not in caplog.text
    assert not logging.getLogger("fedlens.server.round.step").disabled


def test_real_tasks_answer_as_ever_afterwards(known, verdicts):
    verdicts(known["frozen, user"], AuditPlan("clipping"))
    assert CLIENT_TASKS["frozen"] is FrozenLocalTask


def test_audits_open_no_data_set(monkeypatch, known, verdicts):
    def refuse(*_: object) -> None:
        raise AssertionError("an audit opened a data set")

    monkeypatch.setattr(fedlens.simulations.federation.apps, "load", refuse)
    fedlens.simulations.federation.apps.simulated_federation.cache_clear()
    assert "alarm" not in verdicts(known["annotator, user"]).values()


def test_two_tasks_are_held_against_each_other(known, source):
    plan = AuditPlan("noise", releases=20)
    found = list(run_audits(known["two tasks, user"], plan, source=source))
    assert [finding.task for finding in found] == ["critic", "annotator", ""]
    assert "critic and annotator" in found[-1].words


def test_noise_differs_between_processes():
    assert not restarts_repeat(lives=2)


def test_a_source_that_starts_anew_with_each_process_is_noticed(monkeypatch):
    monkeypatch.setattr(audit, "draw_once", lambda: {1.0, 2.0, *np.arange(6) + 7.0})
    assert restarts_repeat()
