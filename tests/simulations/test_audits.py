"""Audits over the real path of a round: with the code as it is, and with faults put into it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import simulations.federation.apps
from accountant.audit.sampling import sampling_test
from client.data import ArrayUsers
from client.tasks import CLIENT_TASKS
from client.tasks.frozen import FrozenLocalTask
from fedlens.cli import audit as audit_cli
from server.config.tree import Config
from simulations.audits import members, restarts
from simulations.audits.audit import KINDS, AuditPlan, run_audits
from simulations.audits.canaries import (
    OVERLONG,
    CanaryFederation,
    canaries_answer,
    random_directions,
)
from simulations.audits.members import find_suspects, membership_audit, nearest
from simulations.audits.probes import canary_run, clip_probe, silent_releases
from simulations.audits.schedule import NothingToAudit, Schedule
from simulations.audits.silos import silent_silos, silo_clip_probe
from studies.benchmarks.audit_power import FAULTS, repeated_noise, weaker_noise

SMALL = AuditPlan(canaries=500, dims=8000)


def make_schedule(**changes: object) -> Schedule:
    settings = {key.replace("__", "."): value for key, value in changes.items()}
    return Schedule.of(Config().updated(settings))


@pytest.fixture
def source() -> np.random.Generator:
    return np.random.default_rng(11)


def verdicts(
    schedule: Schedule, plan: AuditPlan = SMALL, seed: int | None = None
) -> dict[str, str]:
    found = run_audits(schedule, plan, source=np.random.default_rng(seed))
    return {finding.kind: finding.verdict for finding in found}


def raised(schedule: Schedule, plan: AuditPlan = SMALL) -> set[str]:
    return {kind for kind, verdict in verdicts(schedule, plan).items() if verdict == "alarm"}


# The path itself


def test_a_canary_ten_times_too_long_arrives_at_the_clip(source):
    norm, cosine, refused = clip_probe(make_schedule(), dims=3000, source=source)
    assert 1 - 1e-9 <= norm <= 1 + 1e-9
    assert cosine == pytest.approx(1.0, abs=1e-6) and refused == 0


def test_a_canary_within_the_clip_arrives_as_it_was_sent(source):
    schedule = make_schedule(tasks__critic__sampling_rate=1.0)
    short = random_directions(1, 3000, 0.5 * schedule.event.clipping_norm, source)
    total = CanaryFederation(schedule, short, np.ones(1, dtype=bool)).gathered(1).total
    assert np.allclose(total, short[0], atol=1e-7)


def test_left_out_canaries_add_nothing(source):
    schedule = make_schedule()
    raw = random_directions(40, 3000, OVERLONG * schedule.event.clipping_norm, source)
    included = np.arange(40) < 3
    total = CanaryFederation(schedule, raw, included).gathered(1).total
    clipped = raw / OVERLONG
    assert np.allclose(total, clipped[:3].sum(axis=0), atol=1e-6)


def test_the_sampler_draws_everybody_with_the_claimed_probability(source):
    schedule = make_schedule(tasks__critic__sampling_rate=0.2, tasks__critic__rounds=30)
    run = canary_run(schedule, canaries=200, dims=500, source=source)
    assert run.draws.shape == (30, 200)
    assert run.draws.sum() == pytest.approx(0.2 * 6000, abs=5 * np.sqrt(6000 * 0.16))
    found = sampling_test(run.draws, 0.2)
    assert min(found.p_rounds, found.p_total, found.p_users, found.p_overlap) > 1e-6
    assert not np.array_equal(run.draws[0], run.draws[1])


def test_the_noise_differs_between_rounds_and_lives():
    values = silent_releases(make_schedule(), rounds=3, size=2000)
    assert values.shape == (6, 2000)
    assert len(np.unique(values)) == values.size
    assert values.std() == pytest.approx(1.0, abs=0.05)


def test_noise_differs_between_processes():
    assert not restarts.restarts_repeat(lives=2)


def test_a_source_that_starts_anew_with_each_process_is_noticed(monkeypatch):
    monkeypatch.setattr(restarts, "draw_once", lambda: {1.0, 2.0, *np.arange(6) + 7.0})
    assert restarts.restarts_repeat()


def test_record_mode_s_noise_is_that_of_the_nodes():
    schedule = make_schedule(
        privacy__unit="record", tasks__critic__kind="wgan", tasks__critic__noise_multiplier=2.0
    )
    values = silent_silos(schedule, rounds=1)
    assert values.shape[0] == 2 and values.shape[1] > 10_000
    assert values.std() == pytest.approx(1.0, abs=0.02)
    assert not np.array_equal(values[0], values[1])


def test_real_users_answer_as_ever_while_canaries_are_there():
    images = np.zeros((1, 1, 28, 28), dtype=np.uint8)
    one = np.zeros(1, dtype=np.int64)
    users = ArrayUsers(images, one, one, np.array([0, 1]), (1, 28, 28), 10, 0)

    class Request:
        settings = {"feature_seed": 1}  # noqa: RUF012
        records_per_user = 1

    before = CLIENT_TASKS["frozen"]
    with canaries_answer("frozen"):
        assert isinstance(CLIENT_TASKS["frozen"](users, Request()), FrozenLocalTask)
    assert CLIENT_TASKS["frozen"] is before is FrozenLocalTask


def test_canaries_open_no_data_set(monkeypatch, source):
    def refuse(*_: object) -> None:
        raise AssertionError("an audit opened a data set")

    monkeypatch.setattr(simulations.federation.apps, "load", refuse)
    simulations.federation.apps.simulated_federation.cache_clear()
    plan = AuditPlan("one-run", canaries=100, dims=2000)
    assert list(run_audits(make_schedule(), plan, source=source))
    assert list(run_audits(make_schedule(), AuditPlan("noise"), source=source))


# What is caught


def test_the_code_as_it_is_raises_no_alarm():
    for _ in range(3):
        found = verdicts(make_schedule())
        assert found == dict.fromkeys(
            ("clipping", "sampling", "one-run", "one-shot", "noise"), "nothing-found"
        )


@pytest.mark.parametrize(
    ("fault", "by"),
    [
        ("no noise", {"one-run", "one-shot", "noise"}),
        ("a tenth of the noise", {"one-run", "one-shot", "noise"}),
        ("half the noise", {"noise"}),
        ("clipping off", {"clipping", "one-run", "one-shot"}),
        ("noise repeated", {"noise"}),
    ],
)
def test_faults_are_caught(fault, by):
    with FAULTS[fault]():
        assert raised(make_schedule()) >= by


def test_another_sampling_rate_is_caught():
    schedule = make_schedule(tasks__critic__sampling_rate=0.1, tasks__critic__rounds=40)
    with FAULTS["drawn half too often"]():
        assert "sampling" in raised(schedule)
    assert "sampling" not in raised(schedule, AuditPlan("one-run", canaries=200, dims=1000))


def test_too_much_noise_is_no_privacy_leak_but_not_what_the_ledger_says():
    with weaker_noise(1.05):
        assert raised(make_schedule()) == {"noise"}


@pytest.mark.parametrize("clip", [0.3, 1000.0])
def test_a_glaring_record_arrives_at_the_clip_and_a_missing_clip_is_caught(monkeypatch, clip):
    schedule = make_schedule(
        privacy__unit="record", tasks__critic__kind="wgan", tasks__critic__clipping_norm=clip
    )
    assert silo_clip_probe(schedule) == pytest.approx(1.0, abs=1e-3)
    monkeypatch.setattr(
        "client.record_sums.clip_and_sum", lambda rows, _: (rows.double().sum(0), None)
    )
    assert silo_clip_probe(schedule) > 5


def test_weaker_noise_on_nodes_of_record_mode_is_caught(monkeypatch):
    import client.silo

    real = client.silo.gaussian
    monkeypatch.setattr(client.silo, "gaussian", lambda *a, **k: 0.9 * real(*a, **k))
    schedule = make_schedule(
        privacy__unit="record", tasks__critic__kind="wgan", tasks__critic__width=4
    )
    assert verdicts(schedule, AuditPlan("noise")) == {"noise": "alarm"}


def test_where_nothing_can_be_shown_the_audit_says_so():
    schedule = make_schedule(tasks__critic__noise_multiplier=0.4)
    with weaker_noise(0.0):
        found = verdicts(schedule, AuditPlan("one-run", canaries=500, dims=8000))
    assert found["one-run"] == "cannot-detect"


def test_nothing_is_audited_where_nothing_is_claimed():
    for changes in ({"tasks__critic__noise_multiplier": 0.0}, {"privacy__fixed_seed": 3}):
        with pytest.raises(NothingToAudit, match="claims no privacy"):
            make_schedule(**changes)


def test_record_mode_refuses_canaries_with_the_reason(source):
    schedule = make_schedule(privacy__unit="record", tasks__critic__kind="wgan")
    with pytest.raises(NothingToAudit, match="no canary users"):
        list(run_audits(schedule, AuditPlan("one-run"), source=source))


@pytest.mark.parametrize(
    "wrong", [{"kind": "guess"}, {"canaries": 3}, {"dims": 1500}, {"confidence": 0.2}]
)
def test_a_plan_that_measures_nothing_is_refused(wrong):
    with pytest.raises(NothingToAudit):
        AuditPlan(**wrong)


def test_the_command_knows_the_same_kinds():
    assert audit_cli.KINDS == KINDS


def test_noise_for_a_claim_is_enough_and_not_much_more():
    schedule = make_schedule()
    noise = schedule.noise_for_claim(1.0, 1e-6)
    at, nearly = (
        Schedule.of(schedule.config, noise_multiplier=z).claim(1e-6).epsilon
        for z in (noise, noise / 1.06)
    )
    assert at <= 1.0 < nearly


# Membership inference


def test_distances_are_those_to_the_nearest(source):
    rows, others = source.random((30, 5)), source.random((40, 5))
    wanted = torch.cdist(torch.from_numpy(rows), torch.from_numpy(others)).min(1).values.numpy()
    assert np.allclose(nearest(rows, others), wanted)


def test_twins_have_the_classes_of_their_members_and_everybody_is_apart(source):
    schedule = make_schedule(data__scheme="classes", data__classes_per_user=1)
    dataset, _ = simulations.federation.apps.simulated_federation(schedule.config.data, 0)
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
    dataset, _ = simulations.federation.apps.simulated_federation(schedule.config.data, 0)
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


def test_repeated_noise_is_seen_by_equality_alone():
    with repeated_noise():
        values = silent_releases(make_schedule(), rounds=2, size=500)
    assert np.array_equal(values[0], values[1])
