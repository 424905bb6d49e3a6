"""Audits of a schedule of several tasks: each task's mechanism by itself, and said so."""

from __future__ import annotations

import json
from importlib import import_module

import numpy as np
import pytest

from fedlens.cli import main
from server import learner
from server.config.tree import Config
from server.schedule import planned_epsilon
from simulations.audits import audit as audits
from simulations.audits.audit import AuditPlan, run_audits
from simulations.audits.probes import canary_run
from simulations.audits.schedule import NothingToAudit, Schedule
from simulations.audits.silos import silent_silos, silo_clip_probe
from studies.benchmarks.audit_power import FAULTS

TASKS = ("warmup", "critic", "annotator")
THREE = {
    "schedule": " ".join(TASKS),
    "tasks.warmup.kind": "frozen",
    "tasks.annotator.kind": "annotator",
    "tasks.critic.rounds": 4,
    "tasks.critic.kind": "wgan",
    "tasks.warmup.rounds": 1,
    "tasks.warmup.noise_multiplier": 6.0,
    "tasks.annotator.rounds": 4,
    "tasks.annotator.components": 20,
    "tasks.annotator.features": "orientations",
    "tasks.annotator.noise_multiplier": 8.0,
    "tasks.annotator.sampling_rate": 0.5,
}
SMALL = AuditPlan(canaries=300, dims=5000)


def make_schedule(task: str = "critic", **changes: object) -> Schedule:
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    return Schedule.of(Config().updated({**THREE, **settings}), task=task)


def verdicts(schedule: Schedule, plan: AuditPlan = SMALL) -> dict[str, str]:
    found = run_audits(schedule, plan, source=np.random.default_rng(7))
    return {finding.kind: finding.verdict for finding in found}


@pytest.fixture(autouse=True)
def few_images_for_the_frame(monkeypatch):
    monkeypatch.setattr(learner, "FRAME_IMAGES", 40)


def test_the_task_is_named_and_its_own_mechanism_is_claimed():
    words = {task: make_schedule(task).in_words() for task in TASKS}
    assert "the warmup task alone" in words["warmup"] and "z=6" in words["warmup"]
    assert "the critic task alone" in words["critic"] and "4 rounds" in words["critic"]
    assert "the annotator task alone" in words["annotator"] and "q=0.5" in words["annotator"]
    assert "task" not in Schedule.of(Config()).in_words()
    config = make_schedule().config
    for task in TASKS:
        claim = make_schedule(task).stated
        assert claim.epsilon == pytest.approx(planned_epsilon(config, claim.delta, task), rel=1e-9)
    whole = make_schedule().whole_claim.epsilon
    assert whole == pytest.approx(planned_epsilon(config, 1e-5), rel=1e-9)
    assert whole > make_schedule().stated.epsilon


@pytest.mark.parametrize("task", TASKS)
def test_no_task_raises_an_alarm_as_it_is_and_each_does_without_its_noise(task):
    schedule = make_schedule(
        task, tasks__annotator__sampling_rate=1.0
    )  # which is priced in closed form
    assert "alarm" not in verdicts(schedule).values()
    with FAULTS["no noise"]():
        assert verdicts(schedule, AuditPlan("noise"))["noise"] == "alarm"
    with FAULTS["clipping off"]():
        assert verdicts(schedule)["clipping"] == "alarm"


def test_a_tasks_own_sampling_rate_is_what_its_canaries_are_drawn_with():
    source = np.random.default_rng(3)
    run = canary_run(make_schedule("annotator"), canaries=400, dims=1000, source=source)
    assert run.draws.shape == (4, 400)
    assert run.draws.mean() == pytest.approx(0.5, abs=5 * 0.5 / 40)


@pytest.mark.parametrize("task", TASKS)
def test_in_record_mode_each_tasks_nodes_noise_as_is_claimed(task):
    schedule = make_schedule(
        task, privacy__unit="record", tasks__critic__width=4, tasks__annotator__components=100
    )
    values = silent_silos(schedule, rounds=2)
    assert values.std() == pytest.approx(1.0, rel=5 / np.sqrt(2 * values.size))
    assert len(np.unique(values)) > 0.99 * values.size
    assert verdicts(schedule, AuditPlan("noise")) == {"noise": "nothing-found"}


@pytest.mark.parametrize("clip", [1.0, 0.001])
@pytest.mark.parametrize(
    ("task", "module", "function"),
    [
        ("warmup", "frozen", "clip_and_sum"),
        ("annotator", "annotator", "clip_and_sum_products"),
    ],
)
def test_a_glaring_record_arrives_at_the_clip_of_its_task_and_a_missing_clip_is_caught(
    monkeypatch, task, module, function, clip
):
    schedule = make_schedule(
        task, privacy__unit="record", **{f"tasks__{task}__clipping_norm": clip}
    )
    assert silo_clip_probe(schedule) == pytest.approx(1.0, abs=1e-3)
    home = import_module(f"client.tasks.{module}")
    real = getattr(home, function)
    monkeypatch.setattr(home, function, lambda *given: real(*given[:-1], 1e3))
    assert silo_clip_probe(schedule) > 2


def test_weaker_noise_on_the_nodes_of_any_task_is_caught(monkeypatch):
    import client.silo

    real = client.silo.add_noise
    monkeypatch.setattr(client.silo, "add_noise", lambda *a, **k: 0.9 * real(*a, **k))
    for task in ("warmup", "annotator"):
        schedule = make_schedule(task, privacy__unit="record", tasks__annotator__components=400)
        assert verdicts(schedule, AuditPlan("noise")) == {"noise": "alarm"}


def test_the_focused_critics_nodes_are_audited_as_well():
    schedule = make_schedule(
        privacy__unit="record", tasks__critic__kind="focused", tasks__critic__components=20
    )
    values = silent_silos(schedule, rounds=1)
    assert values.shape == (2, 200)
    assert values.std() == pytest.approx(1.0, rel=5 / np.sqrt(2 * values.size))
    assert silo_clip_probe(schedule) == pytest.approx(1.0, abs=1e-3)


def test_a_task_that_is_not_there_or_claims_nothing_is_refused():
    with pytest.raises(NothingToAudit, match=r"'warmup'.* only critic"):
        Schedule.of(Config(), task="warmup")
    open_config = Config().updated({**THREE, "tasks.annotator.noise_multiplier": 0.0})
    with pytest.raises(NothingToAudit, match="claims no privacy"):
        Schedule.of(open_config, task="annotator")
    closed = Schedule.of(open_config, task="annotator", noise_multiplier=3.0)
    assert closed.event.noise_multiplier == 3.0
    with pytest.raises(NothingToAudit, match="as a whole"):
        _ = Schedule.of(open_config).whole_claim


def test_rounds_and_noise_are_changed_in_the_task_alone():
    schedule = Schedule.of(
        Config().updated(THREE), task="annotator", rounds=9, noise_multiplier=3.0
    )
    assert (schedule.rounds, schedule.event.noise_multiplier) == (9, 3.0)
    assert (
        schedule.config.privacy == Config().privacy
        and schedule.config.tasks["critic"] == Config().updated(THREE).tasks["critic"]
    )


def test_samples_are_held_against_the_claim_of_the_whole_run(monkeypatch):
    held = []

    def attacked(schedule, images, *, claim, **more):
        held.append(claim)
        raise NothingToAudit("enough")

    monkeypatch.setattr(audits, "membership_audit", attacked)
    schedule = make_schedule()
    samples = np.zeros((4, 1, 28, 28), np.uint8)
    plan = AuditPlan("membership")
    with pytest.raises(NothingToAudit, match="enough"):
        list(run_audits(schedule, plan, source=np.random.default_rng(0), samples=samples))
    assert held == [schedule.whole_claim]


RUN = """
schedule = "critic annotator"
[data]
users = 40
samples_per_user = 5
[privacy]
delta = 1e-3
[tasks.critic]
kind = "frozen"
rounds = 1
generator_steps = 2
[tasks.annotator]
kind = "annotator"
rounds = 2
components = 6
features = "orientations"
guided_steps = 2
[generator]
batch = 20
width = 8
[release]
samples = 20
strip = 1
agreement = 0.2
"""


def test_the_command_audits_a_run_of_several_tasks_and_says_which(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN)
    out = str(tmp_path / "run")
    made = ["simulate", "--config", str(tmp_path / "run.toml"), "--no-student", "--out", out]
    assert main(made) == 0
    capsys.readouterr()
    small = ["--canaries", "100", "--dims", "2000"]
    assert main(["audit", out, *small]) == 0
    assert "audited: the critic task alone" in capsys.readouterr().out
    assert main(["audit", out, *small, "--task", "annotator", "--json"]) == 0
    last = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    assert last["schedule"]["task"] == "annotator" and not last["alarm"]
    assert main(["audit", out, *small, "--task", "warmup"]) == 2
    assert "no such task" in capsys.readouterr().err


def test_the_command_leaves_no_run_behind_whose_schedule_passes_its_budget(tmp_path, capsys):
    (tmp_path / "run.toml").write_text(RUN)
    over = ["--set", "privacy.epsilon_budget=0.2", "--out", str(tmp_path / "run")]
    assert main(["simulate", "--config", str(tmp_path / "run.toml"), *over]) == 2
    assert "passes it in its task 'critic'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
