"""Runs over nodes' prepared stores: the contract binds both sides, and names the data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from fedlens.api.label_curves import annotators_curve, class_names, keep_label_model
from fedlens.api.runs import open_run
from fedlens.client.app import build_client_app
from fedlens.client.contract import FederationContract
from fedlens.client.node.policy import NodePolicy
from fedlens.client.node.store import open_store
from fedlens.client.preparing.intake import Preparation
from fedlens.client.preparing.prepare import prepare
from fedlens.client.users.protocol import DataOrigin
from fedlens.data.formats.formats import open_source
from fedlens.models.label_models import read_label_model
from fedlens.server.app import main as app_main
from fedlens.server.config.section import ConfigError
from fedlens.server.federation.contract_check import EnrolmentError, check_run
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.training import train
from fedlens.simulations.federation.apps import open_simulated_users
from fedlens.simulations.transports.inprocess import InProcessGrid
from fedlens.store import open_store as open_run_store

USERS, CLASSES = 20, ("disc", "square", "cross")


def contract(**changes):
    given = {"name": "ward-7", "classes": CLASSES, "image": {"side": 16}}
    return FederationContract.model_validate({**given, **changes})


def stores(folder, *agreed, labelled=USERS):
    """A store a contract, of twenty users with two records each, all made up; some have labels."""
    found = []
    for number, one in enumerate(agreed):
        source = np.random.default_rng(number)
        channels, side, _ = one.shape
        shape = (2 * USERS, side, side) if channels == 1 else (2 * USERS, side, side, 3)
        path = folder / f"{number}.npz"
        np.savez(
            path, images=source.integers(0, 256, shape, dtype=np.uint8),
            labels=np.where(
                np.arange(2 * USERS) < 2 * labelled,
                np.array(CLASSES)[np.arange(2 * USERS) % 3],
                "",
            ),
            users=np.arange(2 * USERS) // 2 + 100 * number,
        )  # fmt: skip
        some = open_source(path, partly=labelled < USERS)
        prepare(some, Preparation(one, b"k" * 32), folder / f"store-{number}")
        found.append(folder / f"store-{number}")
    return found


def raise_interrupt(*_, **__):
    raise KeyboardInterrupt


@pytest.fixture
def run_stores(tmp_path, small_config, few_images_for_the_frame):
    """Train over some stores; gives the outcome and the run's row in its store."""

    def run(paths, policies=None, **changes):
        config = small_config(data__users=USERS * len(paths), **changes)

        def opened(context):
            number = int(context.node_config["partition-id"])
            return open_store(paths[number]).users(number)

        def policy(context):
            return NodePolicy.of({"data": str(paths[int(context.node_config["partition-id"])])})

        directory = RunDirectory.create(tmp_path / f"run-{len(list(tmp_path.iterdir()))}", config)
        grid = InProcessGrid(build_client_app(opened, policy), len(paths), config.flat())
        outcome = train(config, directory, grid)
        with open_run_store(outcome.store) as store:
            return outcome, store.run(outcome.run_id)

    return run


def named(folder, agreed):
    """``data.name`` of a contract's file."""
    path = folder / f"{agreed.digest()[:8]}.toml"
    path.write_text(agreed.to_toml())
    return f"federation:{path}"


def test_a_run_is_stored_under_the_federations_name(run_stores, tmp_path):
    agreed = contract()
    outcome, row = run_stores(stores(tmp_path, agreed, agreed), data__name=named(tmp_path, agreed))
    assert outcome.rounds == 3
    assert row.data_name == "federation:ward-7"
    assert row.class_names == CLASSES


def test_owners_of_whose_users_few_have_labels_train_and_get_a_label_model(run_stores, tmp_path):
    agreed = contract(labels="own-or-none")
    paths = stores(tmp_path, agreed, agreed, labelled=5)
    outcome, _row = run_stores(
        paths, data__name=named(tmp_path, agreed), data__labels="own-or-none",
        schedule="critic annotator", tasks__annotator__kind="annotator",
        tasks__annotator__rounds=2, tasks__annotator__components=8,
        tasks__annotator__guided_steps=0,
    )  # fmt: skip
    assert outcome.whole
    run = open_run(next(path for path in tmp_path.iterdir() if (path / "config.toml").exists()))
    (student,), tested_on, simulated = annotators_curve(run, epochs=1, images=60)
    assert not simulated and "annotator" in tested_on
    keep_label_model(run, student[1], class_names(run.config), tmp_path / "model.npz")
    assert read_label_model(tmp_path / "model.npz").class_names == CLASSES


def test_a_run_by_the_folders_own_contract_goes_on_where_the_folder_is_moved(
    tmp_path, small_config, monkeypatch, few_images_for_the_frame
):
    """No path of the machine is in the configuration that the run must keep."""
    agreed, place = contract(), tmp_path / "superlink"
    paths = stores(tmp_path, agreed, agreed)
    config = small_config(data__users=2 * USERS, data__name="federation")

    def opened(context):
        number = int(context.node_config["partition-id"])
        return open_store(paths[number]).users(number)

    def carry_on(folder, only_copy=False):
        monkeypatch.setenv("FEDLENS_HOME", str(folder))
        context = Context(1, 1, {}, RecordDict(), {**config.flat(), "run.name": "mig"})
        context.run_config["run.only_copy"] = only_copy
        app_main(InProcessGrid(build_client_app(opened), 2, config.flat()), context)

    place.mkdir()
    (place / "federation.toml").write_text(agreed.to_toml())
    with monkeypatch.context() as patch:
        patch.setattr(GeneratorTrainer, "train", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            carry_on(place)
    moved = place.rename(tmp_path / "moved")
    with pytest.raises(RunDirectoryError, match="only one"):
        carry_on(moved)
    carry_on(moved, only_copy=True)
    state = json.loads((moved / "runs" / "mig" / "status.json").read_text())
    assert (state["status"], state["round"]) == ("finished", 3)


@pytest.mark.law("7: every sample names its origin")
def test_nodes_own_data_are_never_stored_under_a_simulations_name(
    tmp_path, small_config, monkeypatch
):
    from dataclasses import replace

    def own(context):
        return replace(open_simulated_users(context), origin=DataOrigin(own=True))

    config = small_config()
    directory = RunDirectory.create(tmp_path / "run", config)
    grid = InProcessGrid(build_client_app(own), 2, config.flat())
    outcome = train(config, directory, grid)
    with open_run_store(outcome.store) as store:
        assert store.run(outcome.run_id).data_name == "nodes' own data"


def test_the_operator_has_to_name_the_contract(run_stores, tmp_path):
    agreed = contract()
    with pytest.raises(EnrolmentError, match=r"federation 'ward-7', data.name says 'embedded'"):
        run_stores(stores(tmp_path, agreed, agreed))
    other = contract(records_per_user=3)
    with pytest.raises(EnrolmentError, match=r"under another contract of 'ward-7'"):
        run_stores([tmp_path / "store-0", tmp_path / "store-1"], data__name=named(tmp_path, other))


@pytest.mark.law("1: a node refuses what is below its floor")
def test_owners_with_different_contracts_do_not_train(run_stores, tmp_path):
    one, other = contract(), contract(records_per_user=3)
    with pytest.raises(
        EnrolmentError, match=r"node 1 was turned away: .*another contract.*one federation.toml"
    ):
        run_stores(stores(tmp_path, one, other), data__name=named(tmp_path, one))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tasks": ["frozen"]}, "tasks.critic.kind = 'null'"),
        ({"least_noise_multiplier": 99.0}, "tasks.critic.noise_multiplier"),
        ({"largest_sampling_rate": 0.01}, "tasks.critic.sampling_rate"),
        ({"unit": "record"}, "privacy.unit = 'user'"),
    ],
)
def test_a_run_that_is_not_agreed_is_refused_before_any_node_is_asked(
    tmp_path, small_config, changed, said
):
    name = named(tmp_path, contract(**changed))
    with pytest.raises(ConfigError) as raised:
        check_run(small_config(data__name=name))
    assert said in str(raised.value) and "the contract of ward-7 says" in str(raised.value)


def test_a_contracts_place_is_absolute(small_config):
    with pytest.raises(Exception, match="absolute"):
        check_run(small_config(data__name="federation:federation.toml"))


def test_nodes_refuse_what_an_unchecked_server_would_ask(tmp_path, small_config, monkeypatch):
    from fedlens.server.round.step import NoUsableReply

    agreed = contract(least_noise_multiplier=99.0)
    paths = stores(tmp_path, agreed, agreed)
    config = small_config(data__users=2 * USERS, data__name=named(tmp_path, agreed))
    monkeypatch.setattr("fedlens.server.federation.contract_check.check_run", lambda config: None)

    def opened(context):
        number = int(context.node_config["partition-id"])
        return open_store(paths[number]).users(number)

    app = build_client_app(opened, lambda c: NodePolicy.of({"data": str(paths[0])}))
    directory = RunDirectory.create(tmp_path / "run", config)
    with pytest.raises(NoUsableReply):
        train(config, directory, InProcessGrid(app, 2, config.flat()))


FROZEN = {
    "schedule": "warmup critic annotator",
    "tasks.warmup.kind": "frozen",
    "tasks.warmup.rounds": 1,
    "tasks.warmup.generator_steps": 2,
    "tasks.critic.kind": "focused",
    "tasks.critic.rounds": 1,
    "tasks.critic.components": 10,
    "tasks.critic.generator_steps": 2,
    "tasks.critic.faithful_steps": 2,
    "tasks.annotator.kind": "annotator",
    "tasks.annotator.rounds": 1,
    "tasks.annotator.components": 10,
    "tasks.annotator.guided_steps": 2,
    "release.agreement": 0.1,
}


@pytest.mark.parametrize(
    ("side", "colour"), [pytest.param(64, True, marks=pytest.mark.slow), (16, False)]
)
def test_the_largest_and_the_smallest_pictures_go_all_the_way(run_stores, tmp_path, side, colour):
    agreed = contract(image={"side": side, "colour": colour})
    changes = {key.replace(".", "__"): value for key, value in FROZEN.items()}
    outcome, _ = run_stores(
        stores(tmp_path, agreed, agreed), data__name=named(tmp_path, agreed), **changes
    )
    assert outcome.rounds == 3
    from fedlens.store import SampleFilter, decode_png

    with open_run_store(outcome.store) as store:
        samples = store.samples(SampleFilter(run_id=outcome.run_id), 0, 5)
        assert decode_png(samples[0].png).shape == agreed.shape


def test_the_bundles_app_opens_a_nodes_store_under_its_contract(tmp_path):
    """As a SuperNode starts it: the operator names the store, and nothing of it is simulated."""
    from types import SimpleNamespace

    from fedlens.simulations.federation.apps import simulated_policy

    (path,) = stores(tmp_path, contract(least_noise_multiplier=3.0, tasks=["frozen"]))
    node = {"data": str(path), "partition-id": 1, "num-partitions": 2}
    context = SimpleNamespace(run_config={"data.name": "embedded"}, node_config=node)
    users = open_simulated_users(context)
    assert (len(users), users.partition, users.origin.federation) == (USERS, 1, "ward-7")
    policy = simulated_policy(context)
    assert (policy.least_noise_multiplier, policy.kinds, policy.units) == (3.0, "frozen", "user")
    assert not policy.allow_no_noise
