"""A probe through real nodes and the real ledger: what is asked, spent, refused and answered."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.client.app import build_client_app
from fedlens.client.messages import TRAIN, TrainReply
from fedlens.client.node.policy import NodePolicy
from fedlens.client.users.protocol import NodeDataError
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.ledger.population import population_folder
from fedlens.server.round.aggregation import Answer, Limits, objection
from fedlens.server.round.step import NoUsableReply
from fedlens.server.run.directory import RunDirectory
from fedlens.server.run.history import RoundHistory
from fedlens.simulations.federation.apps import (
    node_users,
    open_simulated_users,
    simulated_federation,
)
from fedlens.store import open_store

PROBED = {
    "schedule": "probe",
    "data.users": 40,
    "data.nodes": 2,
    "data.samples_per_user": 5,
    "data.records_per_user": 5,
    "privacy.delta": 1e-3,
    "privacy.fixed_seed": 3,
    "tasks.probe.kind": "probe",
    "tasks.probe.probe": "label_share:3",
    "tasks.probe.noise_multiplier": 0.5,
    "generator.width": 8,
}


@pytest.fixture
def probed():
    def make(**changes):
        named = {key.replace("__", "."): value for key, value in changes.items()}
        return Config().updated({**PROBED, **named})

    return make


def answered(path):
    directory = RunDirectory.open(path)
    return RoundHistory(directory).last(directory.load_state())["metrics"]["probe"]


def truth(config, wanted=3):
    shares = []
    for number in range(config.data.nodes):
        users = node_users(config, number)
        shares += [
            float((users.user(i).labels == wanted).float().mean()) for i in range(len(users))
        ]
    return float(np.mean(shares))


@pytest.mark.law("3: a probe is priced and charged like a task")
def test_the_answer_is_the_mean_over_users_with_the_noise_that_the_ledger_says(
    probed, run_small, tmp_path
):
    config = probed(tasks__probe__noise_multiplier=1e-6)
    outcome = run_small(config, "exact")
    assert outcome.rounds == 1 and answered(tmp_path / "exact") == pytest.approx(
        truth(config), abs=1e-5
    )
    run_small(probed(), "noised")
    assert answered(tmp_path / "noised") == pytest.approx(truth(config), abs=5 * 0.51 / 40)
    (entry,) = Ledger.verify(tmp_path / "noised" / "ledger.jsonl")
    assert entry.purpose == "probe" and entry.event.released.startswith("probe label_share:3")
    assert (entry.event.clipping_norm, entry.event.sampling_rate) == (1.0, 1.0)


def test_a_probe_alone_releases_no_samples(probed, run_small):
    outcome = run_small(probed())
    with open_store(outcome.store) as store:
        assert store.batches(outcome.run_id) == []
        assert [row.purpose for row in store.ledger(outcome.run_id)] == ["probe"]


def test_a_user_without_records_and_a_node_that_fails_count_as_nothing(probed, run_small, tmp_path):
    config = probed(tasks__probe__noise_multiplier=1e-6)

    def half(context):
        if int(context.node_config["partition-id"]) == 1:
            raise NodeDataError("gone")
        return open_simulated_users(context)

    calls = {"describe": 0}

    def first_asked(context):
        calls["describe"] += 1
        return open_simulated_users(context) if calls["describe"] <= 2 else half(context)

    logging.getLogger("fedlens.client.app").setLevel(logging.ERROR)
    app = build_client_app(first_asked, lambda context: NodePolicy(allow_no_noise=True))
    run_small(config, "half", app=app)
    assert 0 < answered(tmp_path / "half") < truth(config)


def test_an_annotator_of_the_same_run_is_asked_once_it_has_learned(
    annotated, few_images_for_the_frame, run_small, tmp_path
):
    config = annotated().updated(
        {
            "schedule": f"{' '.join(annotated().schedule)} ask",
            "tasks.ask.kind": "probe",
            "tasks.ask.probe": "better_after:rotate180",
            "tasks.ask.noise_multiplier": 0.5,
        }
    )
    outcome = run_small(config)
    assert -0.2 < answered(tmp_path / "run") < 1.2
    with open_store(outcome.store) as store:
        purposes = [b.purpose for b in store.batches(outcome.run_id)]
    assert purposes[-2:] == ["curated", "faithful"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tasks.probe.probe": "tilt:3"}, "takes no argument"),
        ({"tasks.probe.probe": "nothing"}, "there is no probe"),
        ({"tasks.probe.clipping_norm": 2.0}, "clipping_norm"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused_in_the_settings(probed, settings, said):
    with pytest.raises(ConfigError, match=said):
        probed().updated(settings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"privacy.unit": "record", "privacy.delta": 1e-6}, "privacy.unit = 'user'"),
        ({"tasks.probe.probe": "recognised"}, "name a run with an annotator"),
        ({"tasks.probe.probe": "recognised", "tasks.probe.model": "/nowhere"}, "nowhere"),
        ({"tasks.probe.probe": "label_share:11"}, "there is no class 11"),
    ],
)
def test_a_question_that_does_not_go_with_the_run_is_refused_before_anything_is_spent(
    probed, run_small, tmp_path, settings, said
):
    with pytest.raises((ConfigError, ValueError), match=said):
        run_small(probed().updated(settings))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


@pytest.mark.law("1: the server checks every reply")
def test_the_server_looks_at_range_and_finiteness_again():
    limits = Limits(64, 1.0, evidence=True, positive=True)
    norms = np.zeros(64, dtype=np.int64)
    norms[-1] = 2

    def reply(value):
        return Answer(0, 2, TrainReply(np.full(64, value), norms))

    assert objection(reply(2 / 8), limits) is None
    assert "below 0" in objection(reply(-0.01), limits)
    assert "not finite" in objection(reply(np.nan), limits)
    assert "norm is above" in objection(reply(2.1 / 8), limits)


@pytest.mark.law("3: a probe is priced and charged like a task")
def test_a_nodes_floor_holds_for_probes(probed, run_small, tmp_path):
    for policy in (NodePolicy(kinds="frozen annotator"), NodePolicy(least_noise_multiplier=10.0)):
        app = build_client_app(open_simulated_users, lambda context, own=policy: own)
        with pytest.raises(NoUsableReply):
            run_small(probed(), f"run-{policy.least_noise_multiplier}", app=app)
    assert TRAIN == "train"


def test_a_slice_is_asked_alone_and_another_costs_its_users_nothing(
    probed, run_small, tmp_path, monkeypatch
):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    terms = PopulationTerms("clinic", "user", 1e-3, 9.0, users=40, slices="app_version")
    Population.create(population_folder("clinic"), terms)
    sliced = {"data.slices": "app_version=1.0:30,2.0:10", "privacy.population": "clinic"}
    asked = [("1.0", 30), ("2.0", 10)]
    spent = []
    for value, users in asked:
        config = probed(privacy__fixed_seed=-1, tasks__probe__noise_multiplier=2.0).updated(
            {**sliced, "data.slice": f"app_version={value}", "data.users": users}
        )
        run_small(config, value)
        spent.append(Population.read(population_folder("clinic")).spent().epsilon)
    assert spent[0] == spent[1]


def test_slices_of_a_simulation_share_no_user_and_hold_what_they_hold_together():
    whole = Config().updated({**PROBED, "data.slices": "app_version=1.0:30,2.0:10"})
    numbers = {}
    for value, users in (("1.0", 30), ("2.0", 10)):
        one = whole.updated({"data.slice": f"app_version={value}", "data.users": users})
        found = [node_users(one, number) for number in range(2)]
        numbers[value] = {int(i) for users in found for i in users.ids}
        for part in found:
            for place, number in enumerate(part.ids.tolist()):
                dealt = simulated_federation(whole.data, whole.seed)[1].user(number)
                assert part.held(place) == len(dealt)
    assert {len(ids) for ids in numbers.values()} == {30, 10}
    assert len(numbers["1.0"] | numbers["2.0"]) == 40


def test_a_fault_can_sit_in_one_slice():
    config = Config().updated(
        {
            **PROBED,
            "data.slices": "app_version=1.0:30,2.0:10",
            "data.fault": "invert:0.5:slice=app_version=2.0 mirror:0.1",
        }
    )
    found = {"1.0": [], "2.0": []}
    for number in range(2):
        users = node_users(config, number)
        for place in range(len(users)):
            found[str(users.declared["app_version"][place])].append(int(users.which[place]))
    assert found["2.0"].count(0) == 5 and found["1.0"].count(0) == 0
    assert (found["1.0"] + found["2.0"]).count(1) == 4


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data.slices": "app_version=1.0:30"}, "declares 30 users"),
        ({"data.slice": "app version"}, "write ATTRIBUTE=VALUE"),
        ({"data.slices": "app_version=1.0:30,1.0:10"}, "once"),
        ({"data.slices": "app_version=1.0:40", "data.slice": "app_version=3"}, "no such slice"),
        (
            {"data.slices": "app_version=1.0:30,2.0:10", "data.slice": "app_version=2.0"},
            "has 10 users",
        ),
    ],
)
def test_slices_that_cannot_be_meant_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        Config().updated({**PROBED, **settings})


def test_nodes_that_answer_for_other_users_are_not_enrolled(probed, run_small):
    """A node of an older version, which knows no slices, would train on everyone."""
    config = probed(data__slices="app_version=1.0:40", data__slice="app_version=1.0")

    def everyone(context):
        return node_users(
            config.updated({"data.slice": "", "data.users": 40}),
            int(context.node_config["partition-id"]),
        )

    with pytest.raises(EnrolmentError, match="answers for other users"):
        run_small(config, app=build_client_app(everyone))
