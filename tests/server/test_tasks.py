"""Runs of several tasks: through the in-process transport, in both modes, killed, lost, refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from power_cuts import interrupted
from run_tasks import FOCUSED, RECORD_ANNOTATED, WARM

from fedlens.accountant.account import Account
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client.app import build_client_app
from fedlens.models.annotators import Annotator
from fedlens.server.config.tree import ConfigError
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.generation.sampler import restored_sampler
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.step import PrivateStep
from fedlens.server.run.directory import RunDirectory, load_generator
from fedlens.server.tasks.annotator import AnnotatorTask
from fedlens.store import SampleFilter, open_store


def entries_of(tmp_path, name="run"):
    return Ledger.verify(tmp_path / name / "ledger.jsonl")


@pytest.mark.parametrize("mode", [{}, RECORD_ANNOTATED], ids=["user", "record"])
@pytest.mark.law("3: every task and every sum is charged")
def test_every_task_is_charged_in_its_order_and_the_samples_have_their_filter(
    annotated, run_small, tmp_path, mode
):
    config = annotated(WARM, mode, release__agreement=0.05, tasks__warmup__noise_multiplier=9.0)
    outcome = run_small(config)
    entries = entries_of(tmp_path)
    assert [e.round for e in entries] == [1, 2, 3, 4]
    assert [e.event.released.partition(" (")[0] for e in entries] == [
        "frozen critic update", "wgan critic update", "annotator update", "annotator update",
    ]  # fmt: skip
    assert [e.event.noise_multiplier for e in entries] == [9.0, 4.0, 30.0, 30.0]
    assert {e.event.unit for e in entries} == {config.privacy.unit}
    account = Account(4, config.privacy.delta, config.privacy.bayesian_delta)
    account.replay(entries)
    assert outcome.spending.dp_epsilon == account.spending().dp_epsilon
    directory = RunDirectory(tmp_path / "run")
    assert set(load_generator(directory.generator_path(4))) == {"average", "annotator"}
    assert set(load_generator(directory.generator_path(2))) == {"average"}
    with open_store(outcome.store) as store:
        assert store.run(outcome.run_id).rounds_planned == 4
        trained = [r.round for r in store.rounds(outcome.run_id) if "generator_loss" in r.metrics]
        assert trained == [1, 2, 4]  # the generator rests in all annotator rounds but the last
        strips = [b.round for b in store.batches(outcome.run_id) if b.purpose == "strip"]
        assert strips == [1, 2, 4]


@pytest.mark.parametrize("mode", [{}, RECORD_ANNOTATED], ids=["user", "record"])
@pytest.mark.law("reproducible: the same seed gives the same model")
def test_the_same_fixed_seed_gives_the_same_model_and_another_another(annotated, run_small, mode):
    first = run_small(annotated(mode), "one").model_sha256
    assert first == run_small(annotated(mode), "two").model_sha256
    assert first != run_small(annotated(mode, privacy__fixed_seed=4), "three").model_sha256


def test_the_annotators_rounds_leave_what_was_learned_before_as_it_is(
    annotated, small_config, run_small, tmp_path
):
    """Without guided steps the generator is the one of a run without an annotator."""
    run_small(annotated(tasks__annotator__guided_steps=0), "with")
    run_small(small_config(tasks__critic__kind="frozen", tasks__critic__rounds=1), "without")
    found, alone = (
        load_generator(RunDirectory(tmp_path / name).generator_path(number))["average"]
        for name, number in (("with", 3), ("without", 1))
    )
    assert np.array_equal(found, alone)


def test_the_guided_steps_bring_samples_nearer_to_what_the_annotator_takes_for_their_class(
    annotated, run_small, tmp_path
):
    labels = torch.arange(100) % 10
    believed = {}
    for weight in (0.0, 20.0):
        config = annotated(
            tasks__annotator__weight=weight,
            tasks__annotator__guided_steps=30,
            tasks__annotator__rate=2.0,
        )  # a gentle rate: noise alone would otherwise make it sure of anything
        run_small(config, str(weight))
        arrays = load_generator(RunDirectory(tmp_path / str(weight)).generator_path(3))
        sampler = restored_sampler(config, (1, 28, 28), 10, arrays).unfiltered()
        probabilities = sampler.label(sampler.draw(labels, 5))
        believed[weight] = float(probabilities[torch.arange(100), labels].log().mean())
    assert believed[20.0] > believed[0.0] + 0.1


@pytest.mark.law("3: features are fitted to synthetic images")
def test_the_frame_is_fitted_to_images_of_the_generator_before_any_node_sees_the_annotator(
    annotated, run_small, monkeypatch
):
    seen = []
    fit_frame, gather = Annotator.fit_frame, PrivateStep.gather
    monkeypatch.setattr(
        Annotator, "fit_frame", lambda s, images, p: seen.append(images) or fit_frame(s, images, p)
    )
    monkeypatch.setattr(
        PrivateStep,
        "gather",
        lambda s, n, asked: seen.append(asked.weights) or gather(s, n, asked),
    )
    run_small(annotated())
    critic, images, first, second = seen
    assert critic == {} and set(first) == set(second) == {"annotator"}
    assert images.shape == (40, 1, 28, 28) and float(images.abs().max()) <= 1
    assert not np.array_equal(first["annotator"], second["annotator"])


# Killed


CUT_IN_ROUNDS = {
    "the annotator's first, whose frame is in no state yet": ({}, 2),
    "the focused critic's, which looks at samples anew": (FOCUSED, 3),
    "of records, the annotator's": (RECORD_ANNOTATED, 2),
}


@pytest.mark.parametrize("kind", CUT_IN_ROUNDS)
def test_a_run_cut_where_a_task_looks_at_samples_ends_with_the_same_model(
    annotated, run_small, monkeypatch, kind
):
    changes, call = CUT_IN_ROUNDS[kind]
    config = annotated(changes, tasks__annotator__sampling_rate=0.5)
    whole = run_small(config, "whole").model_sha256
    point = (RunDirectory, "save_release", "after", call)
    assert interrupted(monkeypatch, run_small, config, point).model_sha256 == whole


def test_a_run_cut_among_the_guided_steps_ends_with_the_same_model(
    annotated, run_small, monkeypatch
):
    config = annotated(tasks__annotator__sampling_rate=0.5)
    point = (GeneratorTrainer, "_follow", "after", 2 + 1)  # the second round has no step
    whole = run_small(config, "whole").model_sha256
    assert interrupted(monkeypatch, run_small, config, point).model_sha256 == whole


def test_a_lost_release_of_the_annotator_is_not_taken_in(
    annotated, run_small, monkeypatch, tmp_path
):
    applied = []
    apply_release = AnnotatorTask.apply_release
    monkeypatch.setattr(
        AnnotatorTask, "apply_release", lambda s, r: applied.append(1) or apply_release(s, r)
    )
    config = annotated()
    outcome = interrupted(
        monkeypatch, run_small, config, (RunDirectory, "save_release", "before", 2)
    )
    assert len(applied) == 1 and outcome.rounds == 3
    assert len(entries_of(tmp_path)) == 3  # it stays paid for
    with open_store(outcome.store) as store:
        found = [r.status for r in store.releases(outcome.run_id)]
    assert found == ["applied", "lost", "applied"]


def test_without_any_annotator_release_the_run_goes_on_without_an_annotator(
    annotated, run_small, monkeypatch, tmp_path
):
    config = annotated(tasks__annotator__rounds=1, release__agreement=0.3)
    outcome = interrupted(
        monkeypatch, run_small, config, (RunDirectory, "save_release", "before", 2)
    )
    assert outcome.rounds == 2
    kept = load_generator(RunDirectory(tmp_path / "run").generator_path(2))
    assert set(kept) == {"average"}
    with open_store(outcome.store) as store:
        assert store.run(outcome.run_id).status == "finished"
        assert store.count_samples(SampleFilter(run_id=outcome.run_id, purpose="curated")) == 10


# Stopped and refused


def test_a_schedule_above_its_budget_is_refused_before_anybody_is_asked(
    annotated, run_small, tmp_path
):
    def never(context):
        raise AssertionError("a node was asked")

    config = annotated(privacy__epsilon_budget=0.6)
    with pytest.raises(ConfigError, match="in its task 'annotator'"):
        run_small(config, app=build_client_app(never))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()
    enough = annotated(privacy__epsilon_budget=5.0)
    outcome = run_small(enough, "enough")
    assert outcome.stopped is None and outcome.spending.dp_epsilon <= 5.0


def test_a_population_that_stops_the_annotator_leaves_samples_without_its_filter(
    annotated, run_small, monkeypatch, tmp_path
):
    """Another run took what was left meanwhile: it cannot be known beforehand."""
    refusal = RunLedger.refusal
    monkeypatch.setattr(
        RunLedger, "refusal", lambda s, *e: "spent" if len(s.entries) == 2 else refusal(s, *e)
    )
    outcome = run_small(annotated(release__agreement=0.3))
    assert outcome.rounds == 2 and outcome.stopped == "spent"
    kept = load_generator(RunDirectory(tmp_path / "run").generator_path(2))
    assert set(kept) == {"average"}


@pytest.mark.parametrize("task", ["annotator", "critic"])
def test_more_components_than_features_are_refused_before_anything_is_spent(
    annotated, run_small, tmp_path, task
):
    config = annotated(FOCUSED, **{f"tasks__{task}__components": 100_000})
    with pytest.raises(ConfigError, match=rf"tasks\.{task}\.components = 100000"):
        run_small(config)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()
