"""Whole runs: what they leave behind, how they stop, and what they do with bad nodes."""

from __future__ import annotations

import logging
import math

import numpy as np
import pytest

from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.accountant.noise import NoiseUnsound, health
from fedlens.client.app import build_client_app
from fedlens.client.messages import TrainReply
from fedlens.client.train import train
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.round.step import NoUsableReply
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.training import train as train_run
from fedlens.simulations.federation.apps import client_app, node_users, open_simulated_users
from fedlens.simulations.transports.inprocess import InProcessGrid
from fedlens.store import SampleFilter, StoreError, open_store

KINDS = pytest.mark.parametrize("kind", ["frozen", "wgan"])


@KINDS
def test_a_run_leaves_a_ledger_a_model_and_samples_that_agree(
    small_config, run_small, tmp_path, kind
):
    outcome = run_small(small_config(tasks__critic__kind=kind))
    directory = RunDirectory(tmp_path / "run")
    entries = Ledger.verify(directory.ledger)
    assert [e.round for e in entries] == [1, 2, 3]
    with open_store(outcome.store) as store:
        assert store.run(outcome.run_id).status == "finished"
        assert [r.entry_hash for r in store.ledger(outcome.run_id)] == [e.hash for e in entries]
        assert [r.status for r in store.releases(outcome.run_id)] == ["applied"] * 3
        epsilons = [r.dp_epsilon for r in store.rounds(outcome.run_id)]
        assert epsilons == sorted(epsilons) and epsilons[-1] == outcome.spending.dp_epsilon
        strips = store.samples(SampleFilter(run_id=outcome.run_id, purpose="strip"), 0, 100)
        assert len(strips) == 3 * 10
        released = store.samples(SampleFilter(run_id=outcome.run_id, purpose="curated"), 0, 100)
        assert sorted(s.requested_class for s in released) == list(range(10))


@KINDS
@pytest.mark.law("reproducible: the same seed gives the same model")
def test_the_same_fixed_seed_gives_the_same_model_and_another_gives_another(
    small_config, run_small, kind
):
    config = small_config(tasks__critic__kind=kind, tasks__critic__sampling_rate=0.5)
    first = run_small(config, "one").model_sha256
    assert first == run_small(config, "two").model_sha256
    other = small_config(
        tasks__critic__kind=kind, tasks__critic__sampling_rate=0.5, privacy__fixed_seed=4
    )
    assert first != run_small(other, "three").model_sha256


@pytest.mark.law("2: noise never repeats")
def test_noise_from_the_operating_system_never_repeats(small_config, run_small):
    config = small_config(privacy__fixed_seed=-1, tasks__critic__noise_multiplier=5.0)
    assert run_small(config, "one").model_sha256 != run_small(config, "two").model_sha256


@pytest.mark.parametrize("unit", ["user", "record"])
@pytest.mark.law("2: noise never repeats")
def test_where_noise_fails_its_self_test_no_node_answers_and_nothing_is_released(
    small_config, run_small, tmp_path, monkeypatch, caplog, unit
):
    asked = []
    monkeypatch.setattr(
        logging.getLogger("fedlens.client.app"), "disabled", False
    )  # whatever ran before
    caplog.set_level(logging.WARNING, logger="fedlens.client.app")
    monkeypatch.setattr(
        "fedlens.client.app.train", lambda *request: asked.append(request) or train(*request)
    )
    monkeypatch.setattr(health, "bits_fault", lambda source: "random words repeat")
    health._test_process.cache_clear()
    config = small_config(privacy__fixed_seed=-1, privacy__unit=unit, privacy__delta=1e-5)
    refused = NoiseUnsound if unit == "user" else NoUsableReply
    with pytest.raises(refused):
        run_small(config)
    assert unit == "record" or not asked
    assert unit == "user" or "self-test of privacy noise failed" in caplog.text
    health._test_process.cache_clear()
    with open_store(RunDirectory(tmp_path / "run").default_store) as store:
        assert not [
            r for run in store.runs() for r in store.releases(run.run_id) if r.status == "applied"
        ]


def test_record_mode_runs_and_is_accounted_at_record_level(small_config, run_small, tmp_path):
    config = small_config(
        privacy__unit="record",
        privacy__delta=1e-5,
        tasks__critic__sampling_rate=0.2,
        tasks__critic__kind="wgan",
        tasks__critic__local_steps=4,
        data__records_per_node=100,
    )
    outcome = run_small(config)
    entries = Ledger.verify(tmp_path / "run" / "ledger.jsonl")
    assert {(e.event.unit, e.event.count) for e in entries} == {("record", 4)}
    # no norms travel in record mode, so the Bayesian figure is that of the worst case
    assert not (tmp_path / "run" / "evidence.jsonl").exists()
    assert math.isfinite(outcome.spending.bdp_corrected)


@pytest.mark.parametrize("fault", ["too large a norm", "NaN", "another shape"])
def test_in_record_mode_a_bad_reply_is_left_out_and_a_failed_round_is_charged(
    small_config, run_small, tmp_path, fault
):
    config = small_config(
        privacy__unit="record", privacy__delta=1e-5, tasks__critic__sampling_rate=0.2,
        data__records_per_node=100, tasks__critic__kind="wgan", tasks__critic__local_rate=0.5,
    )  # fmt: skip
    assert run_small(config, "one", Spoiled(SPOILS[fault])).rounds == 3
    with pytest.raises(NoUsableReply):
        run_small(config, "both", Spoiled(SPOILS[fault], partitions=(0, 1)))
    assert len(Ledger.verify(tmp_path / "both" / "ledger.jsonl")) == 1
    assert run_small(config, "both").rounds == 3


def test_without_noise_every_figure_is_infinite_and_the_run_is_not_private(small_config, run_small):
    outcome = run_small(small_config(tasks__critic__noise_multiplier=0.0, privacy__fixed_seed=-1))
    assert outcome.spending.dp_epsilon == outcome.spending.bdp_corrected == math.inf
    with open_store(outcome.store) as store:
        assert store.run(outcome.run_id).private is False
        assert "NOT PRIVATE" in store.batches(outcome.run_id)[0].provenance


@pytest.mark.law("2: empty, failed and lost rounds are charged")
def test_an_empty_cohort_is_noised_and_accounted(small_config, run_small, tmp_path):
    outcome = run_small(small_config(tasks__critic__sampling_rate=1e-9))
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == outcome.rounds == 3


@pytest.mark.law("2: a budget stops a run in time")
def test_the_budget_stops_before_the_round_that_would_pass_it(small_config, run_small, tmp_path):
    free = run_small(small_config(tasks__critic__rounds=2), "free").spending.dp_epsilon
    outcome = run_small(small_config(privacy__epsilon_budget=free * 1.01), "bound")
    assert outcome.rounds == 2 and "budget" in outcome.stopped
    assert outcome.spending.dp_epsilon <= free * 1.01
    assert len(Ledger.verify(tmp_path / "bound" / "ledger.jsonl")) == 2
    with open_store(outcome.store) as store:
        assert store.run(outcome.run_id).status == "stopped-by-budget"
        assert store.count_samples(SampleFilter(run_id=outcome.run_id, purpose="curated")) == 10
    again = run_small(small_config(privacy__epsilon_budget=free * 1.01), "bound")
    assert again.rounds == 2 and len(Ledger.verify(tmp_path / "bound" / "ledger.jsonl")) == 2


def test_a_budget_already_too_small_spends_and_releases_nothing(small_config, run_small, tmp_path):
    outcome = run_small(small_config(privacy__epsilon_budget=1e-3))
    assert outcome.rounds == 0 and "budget" in outcome.stopped
    assert Ledger.verify(tmp_path / "run" / "ledger.jsonl") == ()
    with open_store(outcome.store) as store:
        assert store.count_samples(SampleFilter(run_id=outcome.run_id)) == 0


class Spoiled:
    """A ClientApp whose replies from one partition are spoiled."""

    def __init__(self, spoil, partitions=(1,)):
        self._honest = build_client_app(open_simulated_users)
        self._spoil, self._partitions = spoil, partitions

    def __call__(self, message, context):
        reply = self._honest(message, context)
        if message.metadata.message_type != "train":
            return reply
        if context.node_config["partition-id"] in self._partitions:
            self._spoil(reply)
        return reply


def replace_total(change):
    def spoil(reply):
        sound = TrainReply.from_record(reply.content)
        reply.content = TrainReply(change(sound.total), sound.norms).to_record()

    return spoil


SPOILS = {
    "too large a norm": replace_total(lambda total: total * 1e6),
    "NaN": replace_total(lambda total: total * np.nan),
    "infinity": replace_total(lambda total: total + np.inf),
    "another shape": replace_total(lambda total: total[:-1]),
}


@pytest.mark.parametrize("fault", SPOILS)
@pytest.mark.law("1: the server checks every reply")
def test_a_bad_reply_is_left_out_and_the_round_goes_on(
    small_config, run_small, tmp_path, caplog, fault
):
    """The model is the one that the honest node alone would have made."""
    config = small_config()
    with caplog.at_level(logging.WARNING):
        spoiled = run_small(config, "spoiled", Spoiled(SPOILS[fault]))
    assert "a reply was refused" in caplog.text and "node 1" not in caplog.text
    silenced = replace_total(lambda total: total[:0])
    assert spoiled.model_sha256 == run_small(config, "silent", Spoiled(silenced)).model_sha256
    assert len(Ledger.verify(tmp_path / "spoiled" / "ledger.jsonl")) == 3


@pytest.mark.law("2: empty, failed and lost rounds are charged")
def test_a_round_in_which_every_node_fails_is_charged_and_can_be_resumed(
    small_config, run_small, tmp_path
):
    config = small_config()
    with pytest.raises(NoUsableReply, match="round 1"):
        run_small(config, app=Spoiled(SPOILS["NaN"], partitions=(0, 1)))
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 1
    outcome = run_small(config)
    assert outcome.rounds == 3
    with open_store(outcome.store) as store:
        statuses = [r.status for r in store.releases(outcome.run_id)]
    assert statuses == ["lost", "applied", "applied"]


def test_a_node_that_raises_is_left_out_and_says_nothing(small_config, run_small, caplog, capfd):
    class Raising(Spoiled):
        def __call__(self, message, context):
            if message.metadata.message_type == "train" and context.node_config["partition-id"]:
                raise RuntimeError("a secret")
            return self._honest(message, context)

    config = small_config()
    outcome = run_small(config, "raising", app=Raising(None))
    silenced = replace_total(lambda total: total[:0])
    assert outcome.model_sha256 == run_small(config, "silent", Spoiled(silenced)).model_sha256
    assert "a secret" not in caplog.text + "".join(capfd.readouterr())


def test_a_federation_of_another_size_is_refused_before_anything_is_spent(
    small_config, run_small, tmp_path
):
    config = small_config()
    fewer = build_client_app(lambda context: node_users(small_config(data__users=30), 0))
    with pytest.raises(EnrolmentError, match="partition-id"):
        run_small(config, app=fewer)

    def short(context):
        return node_users(small_config(data__users=30), int(context.node_config["partition-id"]))

    with pytest.raises(EnrolmentError, match=r"30 users, data.users declares 40"):
        run_small(config, app=build_client_app(short))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_directory_in_use_is_refused(small_config, run_small, finished, tmp_path):
    finished(small_config())
    directory = RunDirectory(tmp_path / "run")
    with directory.locked(), pytest.raises(RunDirectoryError, match="another process"):
        run_small(small_config())


def test_a_damaged_state_and_a_foreign_store_are_named(small_config, run_small, finished, tmp_path):
    finished(small_config())
    state = tmp_path / "run" / "checkpoint" / "state.safetensors"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(RunDirectoryError, match=r"state\.safetensors is damaged"):
        run_small(small_config())
    (tmp_path / "text.db").write_text("no database")
    with pytest.raises(StoreError):
        run_small(small_config(), "other", store_url=f"sqlite:///{tmp_path / 'text.db'}")


@pytest.mark.law("4: ledger and store hold what is listed")
def test_the_ledger_and_the_store_hold_what_is_listed_here_and_nothing_else(
    small_config, finished, tmp_path
):
    """Whatever a round adds to them must be added here, by somebody who asks whether it may."""
    import json

    outcome = finished(small_config(tasks__critic__sampling_rate=0.5))
    lines = [json.loads(x) for x in (tmp_path / "run" / "ledger.jsonl").read_text().splitlines()]
    entry = {
        "at", "event", "evidence_digest", "index", "previous", "purpose", "round", "sha256",
    }  # fmt: skip
    event = {
        "mechanism", "unit", "sampler", "adjacency", "sampling_rate", "noise_multiplier",
        "clipping_norm", "count", "released",
    }  # fmt: skip
    assert {frozenset(line) for line in lines[1:]} == {frozenset(entry)}
    assert {frozenset(line["event"]) for line in lines[1:]} == {frozenset(event)}
    assert all(len(line["at"]) == len("2026-01-01") for line in lines[1:])
    with open_store(outcome.store) as store:
        assert {k for r in store.rounds(outcome.run_id) for k in r.metrics} == {"generator_loss"}
    assert (tmp_path / "run" / "evidence.jsonl").stat().st_mode & 0o077 == 0


@pytest.mark.law("5: no Bayesian figure is above DP")
def test_bayesian_figures_are_never_above_dp_at_their_delta(small_config, finished):
    spending = finished(small_config(tasks__critic__sampling_rate=0.5)).spending
    cap = spending.dp_epsilon_at_bdp_delta
    assert spending.bdp_corrected <= spending.bdp_sound <= cap
    assert max(spending.percentiles_corrected.values()) <= cap


def test_a_folder_that_has_come_to_hold_another_run_is_left_alone(
    small_config, run_small, finished, tmp_path
):
    finished(small_config())

    def content():
        files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in files if path.name != "lock"}

    (tmp_path / "run" / "store.db").unlink()
    before = content()
    with pytest.raises(RunDirectoryError, match="holds a run of another configuration"):
        run_small(small_config(seed=99))
    assert content() == before


@pytest.mark.parametrize("setting", ["privacy.delta", "tasks.critic.rounds"])
def test_a_ledger_of_another_configuration_is_refused(small_config, run_small, tmp_path, setting):
    run_small(small_config())
    other = small_config(**{setting.replace(".", "__"): {"privacy.delta": 1e-4}.get(setting, 5)})
    (tmp_path / "run" / "config.toml").write_text(other.to_toml())
    with pytest.raises(LedgerError, match="another configuration"):
        run_small(other)


def test_what_all_nodes_are_sent_is_in_memory_once(small_config, tmp_path):
    """A thousand copies of a critic of megabytes would not fit."""
    sent = []

    class Watched(InProcessGrid):
        def push_messages(self, messages):
            listed = list(messages)
            sent.append([one.content.array_records.get("weights") for one in listed])
            return super().push_messages(listed)

    config = small_config(tasks__critic__rounds=2)
    directory = RunDirectory.create(tmp_path / "run", config)
    train_run(config, directory, Watched(client_app, config.data.nodes, config.flat()))
    asked = [round_ for round_ in sent if round_[0] is not None]
    assert len(asked) == 2 and {len(round_) for round_ in asked} == {config.data.nodes}
    assert all(one is round_[0] for round_ in asked for one in round_)
