"""A filter from two noised sums: each charged before it is used, and then seen through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from power_cuts import interrupted
from run_tasks import SMALL, SUMS, context_of

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.cli import main
from fedlens.client.app import build_client_app
from fedlens.client.messages import TrainReply
from fedlens.client.tasks.moments import MomentsLocalTask
from fedlens.models.weights import to_vector
from fedlens.privatizers.pair_moments import width_of
from fedlens.server.config.mechanism import denominator
from fedlens.server.config.schedule import planned_epsilon
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.learning.privatizer import kept_filter_weights
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.round.step import NoUsableReply, PrivateStep
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.tasks import server_task
from fedlens.server.tasks.frequencies import FrequenciesTask
from fedlens.server.tasks.moments import MomentsTask
from fedlens.server.tasks.protocol import NothingLearned
from fedlens.simulations import engine
from fedlens.simulations.federation.apps import node_users
from fedlens.simulations.run_artifacts import kept_leakage, kept_run_filter
from fedlens.store import open_store

FEATURES = 10
"""Frequencies up to 3."""
ALONE = {
    **SUMS,
    "schedule": "frequencies moments",
    "tasks.frequencies.kind": "frequencies",
    "tasks.moments.kind": "moments",
}

pytestmark = pytest.mark.usefixtures("a_filter_in_no_time")


@pytest.fixture
def alone():
    """The two sums and nothing else, with changes."""

    def make(**changes) -> Config:
        shared = {key: value for key, value in SMALL.items() if "critic" not in key}
        given = {key.replace("__", "."): value for key, value in changes.items()}
        return Config().updated({**shared, **ALONE, **given})

    return make


@pytest.fixture
def seen_through(small_config):
    """The two sums, and a critic that looks through the filter, with changes."""

    def make(**changes) -> Config:
        settings = {key.replace(".", "__"): value for key, value in SUMS.items()}
        critic = {"tasks__critic__kind": "frozen", "tasks__critic__rounds": 1}
        return small_config(**{**settings, **critic, **changes})

    return make


def released(directory) -> list[str]:
    entries = Ledger.verify(directory / "ledger.jsonl")
    return [entry.event.released.partition(" (")[0] for entry in entries]


def tasks_of(config: Config) -> tuple[FrequenciesTask, MomentsTask]:
    first = server_task(context_of(config, "frequencies", sensitive_classes=2))
    context = context_of(config, "moments", sensitive_classes=2, frequencies=first)
    return first, server_task(context)


# Whole runs


@pytest.mark.law("3: every task and every sum is charged")
def test_both_sums_are_charged_and_the_filter_is_kept(alone, run_small, tmp_path, capsys):
    config = alone()
    outcome = run_small(config)
    assert released(tmp_path / "run") == ["frequencies of images", "moments of images"]
    spent = spending_of(config, RunDirectory(tmp_path / "run"))
    assert outcome.rounds == 2
    assert spent.dp_epsilon == pytest.approx(planned_epsilon(config, config.privacy.delta))
    network, shape = kept_run_filter(tmp_path / "run")
    assert shape == (1, 28, 28) and network.repeats_noise and network.features.size == FEATURES
    assert network.capacity == config.privatizer.capacity
    assert float(network.features.scale.min()) > 0 and network.features.centre.any()
    assert kept_leakage(RunDirectory(tmp_path / "run")) is not None
    with open_store(outcome.store) as store:
        assert not store.batches(outcome.run_id), "there is no sample to show"
    assert main(["privatizer", "export", str(tmp_path / "run"), "--json"]) == 0
    assert run_small(config, "again").model_sha256 == outcome.model_sha256


def test_simulate_sums_up_a_run_without_samples(alone, tmp_path):
    config = alone()
    directory = RunDirectory.create(tmp_path / "run", config)
    summary = engine.simulate(config, directory)
    assert summary.student_accuracy is None and summary.contact_sheet is None
    assert summary.sensitive_read is not None and summary.releases == 2


def test_later_tasks_look_through_the_filter(seen_through, run_small, tmp_path, monkeypatch):
    asked, gather = [], PrivateStep.gather
    monkeypatch.setattr(
        PrivateStep, "gather", lambda s, n, a: asked.append((set(a.weights), a.filter)) or
        gather(s, n, a)
    )  # fmt: skip
    config = seen_through(privatizer__consenting=0.5)
    outcome = run_small(config)
    assert [weights for weights, _ in asked] == [set(), {"centre", "scale"}, {"filter"}]
    assert [None if one is None else one.network for _, one in asked] == [None, None, "spectral"]
    assert asked[2][1].highest_frequency == 3
    with open_store(outcome.store) as store:
        strips = [b.round for b in store.batches(outcome.run_id) if b.purpose == "strip"]
        facts = store.rounds(outcome.run_id)
    assert strips == [3] and set(facts[1].metrics) == {"sensitive_read_nats"}


def test_another_run_takes_the_filter_with_its_ledger(alone, small_config, run_small, tmp_path):
    run_small(alone(privatizer__consenting=0.5), "first")
    taken = {
        "tasks__critic__kind": "frozen",
        "privatizer__kind": "pretrained",
        "privatizer__path": str(tmp_path / "first"),
        "privatizer__network": "spectral",
        "privatizer__width": 4,
        "privatizer__capacity": 8.0,
        "privatizer__highest_frequency": 3,
        "privatizer__consenting": 0.5,
    }
    config = small_config(**taken)
    run_small(config)
    folders = [RunDirectory(tmp_path / name) for name in ("first", "run")]
    kept = [kept_filter_weights(one.config(), one.load_state().arrays) for one in folders]
    assert np.array_equal(*kept)
    prior = Ledger.read(folders[1].ledger).header["builds_on"]["releases"]
    told = {group["event"]["released"].partition(" (")[0] for group in prior}
    assert told == {"frequencies of images", "moments of images"}
    both = spending_of(config, folders[1]).dp_epsilon
    assert both > planned_epsilon(config, config.privacy.delta)
    with pytest.raises(ConfigError, match=r"privatizer\.highest_frequency = 4"):
        run_small(config.updated({"privatizer.highest_frequency": 4}), "other")


def test_a_run_that_is_cut_ends_with_the_same_filter(alone, run_small, monkeypatch):
    whole = run_small(alone(), "whole").model_sha256
    for place, point in enumerate(
        [(MomentsTask, "fit", "after", 1), (RunDirectory, "save_release", "after", 1)]
    ):
        found = interrupted(monkeypatch, run_small, alone(), point, f"cut{place}")
        assert found.model_sha256 == whole, point


# Lost, failed and empty rounds


def test_without_the_first_release_the_second_is_not_asked_for(
    alone, run_small, monkeypatch, tmp_path
):
    point = (RunDirectory, "save_release", "before", 1)
    with pytest.raises(NothingLearned, match="where frequencies lie"):
        interrupted(monkeypatch, run_small, alone(), point)
    assert released(tmp_path / "run") == ["frequencies of images"], "paid for, and nothing more"


def test_of_two_rounds_one_may_be_lost(alone, run_small, monkeypatch, tmp_path):
    config = alone(tasks__moments__rounds=2)
    point = (RunDirectory, "save_release", "before", 3)  # the last one's
    assert interrupted(monkeypatch, run_small, config, point).rounds == 3
    assert len(released(tmp_path / "run")) == 3
    assert kept_run_filter(tmp_path / "run")[0] is not None


def test_a_lost_release_leaves_no_filter_for_later_tasks(
    seen_through, run_small, monkeypatch, tmp_path
):
    point = (RunDirectory, "save_release", "before", 2)
    with pytest.raises(NothingLearned, match="start a new run"):
        interrupted(monkeypatch, run_small, seen_through(), point)
    assert released(tmp_path / "run") == ["frequencies of images", "moments of images"]


@pytest.mark.law("3: every task and every sum is charged")
def test_a_round_in_which_every_node_fails_is_charged(alone, run_small, monkeypatch, tmp_path):
    def broken(self, users, request):
        raise OSError("no disk")

    with monkeypatch.context() as patch:
        patch.setattr(MomentsLocalTask, "__init__", broken)
        with pytest.raises(NoUsableReply):
            run_small(alone())
    assert released(tmp_path / "run") == ["frequencies of images", "moments of images"]
    # taken up again it is over: the only round of moments was lost, and is not asked for twice
    assert run_small(alone()).rounds == 2
    assert len(released(tmp_path / "run")) == 2
    with pytest.raises(RunDirectoryError, match="has no filter"):
        kept_run_filter(tmp_path / "run")


def test_nobody_drawn_is_noise_and_gives_a_filter_all_the_same(alone, run_small, tmp_path):
    config = alone(tasks__frequencies__sampling_rate=1e-9, tasks__moments__sampling_rate=1e-9)
    assert run_small(config).rounds == 2
    network, _ = kept_run_filter(tmp_path / "run")
    assert all(np.isfinite(to_vector(network)))


# What the server does with a release


def test_releases_are_averaged_and_counted_back_to_sums():
    config = Config().updated({**ALONE, "tasks.moments.rounds": 2})
    first, second = tasks_of(config)
    assert second.size == 20 * width_of(FEATURES) and first.size == 2 * FEATURES
    assert second.lacking and not second.fit(lambda *_: None)
    first.apply_release(np.full(first.size, 0.1))
    assert not second.lacking
    block = np.zeros((20, width_of(FEATURES)))
    block[:, 0] = 0.15 * np.arange(1, 21)  # so many records of each pair for each user
    for share in (0.5, 1.5):
        second.apply_release(share * block.ravel())
    found = second.gaussians()
    users = denominator(config, config.tasks["moments"])
    deviation = config.tasks["moments"].noise_multiplier * config.tasks["moments"].clipping_norm
    counts = np.maximum(users * np.arange(1, 21), 2 * deviation / 2**0.5 / 0.15)
    assert torch.allclose(found.shares, torch.tensor(counts / counts.sum()).float(), rtol=0.01)


def test_states_come_back_whole():
    config = Config().updated(ALONE)
    first, second = tasks_of(config)
    source = np.random.default_rng(0)
    first.apply_release(source.normal(size=first.size))
    second.apply_release(source.normal(size=second.size))
    second.fit(lambda *_: None)
    other_first, other = tasks_of(config)
    other_first.restore(first.state())
    other.restore(second.state())
    assert np.array_equal(other.filter_weights(), second.filter_weights())
    for name, value in first.frame().items():
        assert np.array_equal(value, other_first.frame()[name])
    assert other.ready and {k: v.tolist() for k, v in other.state().items()} == {
        k: v.tolist() for k, v in second.state().items()
    }


# Refusals


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"schedule": "moments frequencies"}, "builds on scales of frequencies"),
        ({"schedule": "critic frequencies moments", "tasks.critic.kind": "frozen"}, "come first"),
        ({"privatizer.network": "unet"}, "privatizer.network"),
        ({"privatizer.highest_frequency": 31}, "privatizer.highest_frequency"),
        ({"privacy.unit": "record"}, "users, not records"),
        ({"tasks.moments.kind": "frequencies"}, "belong together|one task of its kind"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, match):
    with pytest.raises(ConfigError, match=match):
        Config().updated({**ALONE, **changes})


def test_sums_without_a_filter_of_theirs_are_refused():
    lone = {"schedule": "frequencies critic", "tasks.frequencies.kind": "frequencies"}
    with pytest.raises(ConfigError, match="belong together"):
        Config().updated(lone)


def test_a_budget_that_hides_nothing_is_refused_before_anything_is_spent(
    alone, run_small, tmp_path
):
    with pytest.raises(ConfigError, match=r"privatizer\.budget"):
        run_small(alone(privatizer__budget=0.7))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_nodes_must_know_the_attribute(alone, run_small):
    config = alone()
    app = build_client_app(
        lambda context: replace(
            node_users(config, int(context.node_config["partition-id"])), sensitive_attribute="age"
        )
    )
    with pytest.raises(EnrolmentError, match="does not know"):
        run_small(config, app=app)


@pytest.mark.parametrize("damage", ["shape", "nan", "norm"])
def test_a_malformed_reply_is_left_out(alone, run_small, monkeypatch, tmp_path, damage):
    to_record, calls = TrainReply.to_record, []

    def damaged(self):
        calls.append(1)
        if len(calls) % 2:  # one node's
            return to_record(self)
        total = self.total.copy()
        total = {"shape": total[1:], "nan": total * np.nan, "norm": total + 1e6}[damage]
        return to_record(replace(self, total=total))

    monkeypatch.setattr(TrainReply, "to_record", damaged)
    assert run_small(alone()).rounds == 2
    assert all(np.isfinite(to_vector(kept_run_filter(tmp_path / "run")[0])))
