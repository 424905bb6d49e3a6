"""Which tasks are audited, with which mechanism, beside which claim."""

from __future__ import annotations

import numpy as np
import pytest

from fedlens.api.presets import preset_config
from fedlens.cli import audit as audit_cli
from fedlens.server.config.schedule import planned_epsilon
from fedlens.server.config.tree import Config
from fedlens.simulations.audits import audit as audits
from fedlens.simulations.audits.audit import KINDS, AuditPlan, run_audits
from fedlens.simulations.audits.schedule import NothingToAudit, Schedule

TASKS = ("card", "warmup", "critic", "annotator")


def test_each_task_is_named_and_its_own_mechanism_is_claimed():
    config = preset_config("demo")
    found = Schedule.all_of(config)
    assert tuple(schedule.name for schedule in found) == TASKS
    for schedule in found:
        assert f"the {schedule.name} task alone" in schedule.in_words()
        epsilon = planned_epsilon(config, schedule.stated.delta, schedule.name)
        assert schedule.stated.epsilon == pytest.approx(epsilon, rel=1e-9)
    whole = found[0].whole_claim.epsilon
    assert whole == pytest.approx(planned_epsilon(config, 1e-5), rel=1e-9)
    assert whole > max(schedule.stated.epsilon for schedule in found)
    assert "task" not in Schedule.of(Config()).in_words()


def test_a_task_that_is_not_there_or_claims_nothing_is_refused():
    with pytest.raises(NothingToAudit, match=r"'warmup'.* only critic"):
        Schedule.of(Config(), task="warmup")
    half_open = preset_config("demo").updated({"tasks.annotator.noise_multiplier": 0.0})
    with pytest.raises(NothingToAudit, match="claims no privacy"):
        Schedule.of(half_open, task="annotator")
    private = ["card", "warmup", "critic"]
    assert [schedule.name for schedule in Schedule.all_of(half_open)] == private
    with pytest.raises(NothingToAudit, match="as a whole"):
        _ = Schedule.all_of(half_open)[0].whole_claim


@pytest.mark.parametrize(
    "changes", [{"tasks.critic.noise_multiplier": 0.0}, {"privacy.fixed_seed": 3}]
)
def test_nothing_is_audited_where_nothing_is_claimed(changes):
    with pytest.raises(NothingToAudit, match="claims no privacy"):
        Schedule.all_of(Config().updated(changes))


def test_rounds_and_noise_are_changed_in_the_task_alone():
    config = preset_config("demo")
    schedule = Schedule.of(config, task="annotator", rounds=9, noise_multiplier=3.0)
    assert (schedule.rounds, schedule.event.noise_multiplier) == (9, 3.0)
    assert schedule.config.privacy == config.privacy
    assert schedule.config.tasks["critic"] == config.tasks["critic"]


def test_noise_for_a_claim_is_enough_and_not_much_more():
    schedule = Schedule.of(Config())
    noise = schedule.noise_for_claim(1.0, 1e-6)
    at, nearly = (
        Schedule.of(schedule.config, noise_multiplier=z).claim(1e-6).epsilon
        for z in (noise, noise / 1.06)
    )
    assert at <= 1.0 < nearly


def test_samples_are_held_against_the_claim_of_the_whole_run(monkeypatch):
    held = []

    def attacked(schedule, images, *, claim, **more):
        held.append(claim)
        raise NothingToAudit("enough")

    monkeypatch.setattr(audits, "membership_audit", attacked)
    schedules = Schedule.all_of(preset_config("demo"))
    plan, samples = AuditPlan("membership"), np.zeros((4, 1, 28, 28), np.uint8)
    with pytest.raises(NothingToAudit, match="enough"):
        list(run_audits(schedules, plan, source=np.random.default_rng(0), samples=samples))
    assert held == [schedules[0].whole_claim]


@pytest.mark.parametrize(
    "wrong", [{"kind": "guess"}, {"canaries": 3}, {"releases": 1}, {"confidence": 0.2}]
)
def test_a_plan_that_measures_nothing_is_refused(wrong):
    with pytest.raises(NothingToAudit):
        AuditPlan(**wrong)


def test_the_command_knows_the_same_kinds():
    assert audit_cli.KINDS == KINDS
