"""Norms leave a run as one charged, noised release; every Bayesian figure is made of it alone."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.ledger.evidence import EvidenceFile
from fedlens.accountant.ledger.export import export_of
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client.app import build_client_app
from fedlens.client.messages import TrainReply
from fedlens.server.config.mechanism import round_event, round_noise
from fedlens.server.config.tasks import TRAINING
from fedlens.server.config.tree import ConfigError
from fedlens.server.ledger.plan import planned
from fedlens.server.ledger.run_ledger import RunLedger, spending_of
from fedlens.server.round import step
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import open_simulated_users
from fedlens.store import open_store

FIGURES = ("bdp_as_published", "bdp_corrected", "bdp_sound", "percentiles", "percentiles_corrected")


class Reporting:
    """A ClientApp that counts all its users' norms in the last bin, or leaves them as they are."""

    def __init__(self, at_clip: bool) -> None:
        self._honest, self._at_clip = build_client_app(open_simulated_users), at_clip

    def __call__(self, message, context):
        reply = self._honest(message, context)
        if message.metadata.message_type == "train" and self._at_clip:
            sound = TrainReply.from_record(reply.content)
            norms = np.zeros_like(sound.norms)
            norms[-1] = sound.norms.sum()
            reply.content = TrainReply(sound.total, norms).to_record()
        return reply


def seen_from_outside(outcome, folder):
    """All that a run shows or keeps of its norms."""
    directory = RunDirectory(folder)
    ledger, config = Ledger.read(directory.ledger), directory.config()
    spending = spending_of(config, directory)
    with open_store(outcome.store) as store:
        rounds = [tuple(getattr(r, f) for f in FIGURES) for r in store.rounds(outcome.run_id)]
        batches = [(b.bdp_corrected, b.bdp_sound) for b in store.batches(outcome.run_id)]
        guarantee = store.run(outcome.run_id).guarantee
    kept = [json.loads(line)["histogram"] for line in directory.evidence.read_text().splitlines()]
    export = export_of(ledger, spending, config.data.users, None)
    return outcome.spending, spending, rounds, batches, guarantee, kept, export["figures"]


@pytest.mark.law("4: norms are released with noise only")
def test_equal_releases_give_equal_figures_whatever_the_private_norms_are(
    small_config, run_small, tmp_path, monkeypatch
):
    """The noise that hides the difference between both is drawn: then nothing else tells them."""
    config = small_config(tasks__critic__sampling_rate=0.5, tasks__critic__clipping_norm=10.0)
    counted = []

    def same(counts, *, clipping_norm, noise, source):
        counted.append(tuple(np.asarray(counts).tolist()))
        return NoisedNorms(clipping_norm, noise, tuple(float(n) for n in range(16)))

    monkeypatch.setattr(step, "noised_norms", same)
    found = [
        seen_from_outside(run_small(config, name, Reporting(at_clip)), tmp_path / name)
        for name, at_clip in (("as they are", False), ("at the clip", True))
    ]
    assert counted[:3] != counted[3:]
    assert found[0] == found[1]


@pytest.mark.law("5: an update and its norms are one release")
def test_the_norms_are_noised_as_their_ledger_entry_says(small_config, run_small, tmp_path):
    config = small_config(tasks__critic__sampling_rate=0.5)
    run_small(config)
    directory, task = RunDirectory(tmp_path / "run"), config.tasks["critic"]
    noise, evidence = round_noise(config, task), EvidenceFile(tmp_path / "run" / "evidence.jsonl")
    assert 1 / noise.update**2 + 1 / noise.norms**2 == pytest.approx(1 / task.noise_multiplier**2)
    for entry in Ledger.verify(directory.ledger):
        assert entry.event == round_event(config, task)
        assert entry.event.noise_multiplier == task.noise_multiplier
        assert f"norms (noise {noise.norms:.6g})" in entry.event.released
        assert evidence.matching(entry).noise == noise.norms


def test_the_update_s_noise_makes_room_for_the_norms(small_config, monkeypatch, run_small):
    noises = []
    whole = step.noised_mean

    def noted(total, **keywords):
        noises.append(keywords["noise_multiplier"])
        return whole(total, **keywords)

    monkeypatch.setattr(step, "noised_mean", noted)
    config = small_config(privacy__norms_share=0.19)
    run_small(config)
    z = config.tasks["critic"].noise_multiplier
    assert noises == pytest.approx([z / 0.9] * 3)


@pytest.mark.parametrize("setting", [{"privacy__norms_share": 0.0}, {"noise": 0.0}])
def test_without_a_share_or_noise_no_norms_are_released(small_config, run_small, tmp_path, setting):
    changes = {k.replace("noise", "tasks__critic__noise_multiplier") if k == "noise" else k: v
               for k, v in setting.items()}  # fmt: skip
    outcome = run_small(small_config(**changes))
    assert not (tmp_path / "run" / "evidence.jsonl").exists()
    spending = outcome.spending
    assert spending.rounds_with_norms == 0
    assert spending.bdp_corrected == spending.bdp_sound == spending.dp_epsilon_at_bdp_delta
    entries = Ledger.verify(tmp_path / "run" / "ledger.jsonl")
    assert all("norms" not in entry.event.released for entry in entries)
    assert all(entry.evidence_digest is None for entry in entries)


def test_a_resumed_run_has_the_figures_of_its_releases(small_config, run_small, tmp_path):
    config = small_config(tasks__critic__sampling_rate=0.5)
    spending = run_small(config).spending
    directory = RunDirectory(tmp_path / "run")
    assert spending_of(config, directory) == spending
    assert run_small(config).spending == spending
    assert spending.rounds_with_norms == 3


@pytest.mark.law("5: an early end is charged as the whole plan")
def test_the_filter_stops_before_the_round_that_could_pass_its_budget(
    small_config, run_small, tmp_path
):
    def declared(budget):
        return small_config(
            privacy__bayesian_epsilon_budget=budget,
            privacy__bayesian_delta=1e-5,
            tasks__critic__rounds=4,
        )

    whole = run_small(declared(1e3), "whole")
    assert whole.rounds == 4 and whole.stopped is None
    budget = 0.75 * whole.spending.dp_epsilon_at_bdp_delta
    config = declared(budget)
    cut = run_small(config, "cut")
    assert 0 < cut.rounds < 4 and "Bayesian ε above the budget" in cut.stopped
    assert cut.spending.bdp_sound <= budget * (1 + 1e-9)
    again = run_small(config, "cut")
    assert again.rounds == cut.rounds
    directory = RunDirectory(tmp_path / "cut")
    for published in (cut.spending, spending_of(config, directory), *released_batches(cut)):
        assert published.dp_epsilon == planned(config).dp_epsilon
    shown = shown_figures(cut, directory)
    assert shown == [(cut.spending.dp_epsilon, cut.spending.bdp_sound)] * 2
    assert cut.spending.dp_epsilon > account_so_far(config, directory)
    account = RunLedger(config, directory, "any")
    assert account.refusal(round_event(config, config.tasks["critic"]), TRAINING) is not None


def shown_figures(outcome, directory):
    """What the dashboard's pages and reports, and the operator's status, show of a run's end."""
    with open_store(outcome.store) as store:
        last = store.rounds(outcome.run_id)[-1]
    status = json.loads((directory.path / "status.json").read_text())
    return [(last.dp_epsilon, last.bdp_sound), (status["dp_epsilon"], status["bdp_epsilon"])]


def account_so_far(config, directory):
    return RunLedger(config, directory, "any").spending().dp_epsilon


def released_batches(outcome):
    """The samples that a run ended with: curated and faithful."""
    with open_store(outcome.store) as store:
        return [one for one in store.batches(outcome.run_id) if one.purpose != "strip"]


@pytest.mark.parametrize(
    "changes",
    [
        {"privacy__unit": "record", "privacy__delta": 1e-5},
        {"privacy__norms_share": 0.0},
        {"tasks__critic__noise_multiplier": 0.0},
    ],
)
def test_a_bayesian_budget_without_norms_is_refused(small_config, changes):
    with pytest.raises(ConfigError, match="bayesian_epsilon_budget"):
        small_config(privacy__bayesian_epsilon_budget=1.0, **changes)


def test_a_bayesian_budget_that_nothing_could_keep_is_refused(small_config, run_small):
    with pytest.raises(ConfigError, match=r"bayesian_epsilon_budget.*larger"):
        run_small(small_config(privacy__bayesian_epsilon_budget=1e-6))


def test_lost_norms_never_lower_a_figure(small_config, run_small, tmp_path):
    config = small_config(tasks__critic__sampling_rate=0.5)
    spending = run_small(config).spending
    (tmp_path / "run" / "evidence.jsonl").unlink()
    left = spending_of(config, RunDirectory(tmp_path / "run"))
    assert left.bdp_corrected == left.dp_epsilon_at_bdp_delta >= spending.bdp_corrected
    assert math.isfinite(left.bdp_sound) and left.rounds_with_norms == 0
    assert replace(left, warnings=()).dp_epsilon == spending.dp_epsilon
