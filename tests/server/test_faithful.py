"""Faithful samples: from the critics alone, beside the curated ones, and free of privacy cost."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlens.models.shapes import as_pixels
from fedlens.models.weights import to_vector
from fedlens.server.learning.unguided import FaithfulPlan, faithful_plan
from fedlens.server.run.directory import RunDirectory, RunDirectoryError, load_generator
from fedlens.simulations.run_artifacts import fresh_samples, kept_sampler, stored_samples
from fedlens.store import SampleFilter, open_store

GUIDED = {
    "schedule": "warmup critic annotator",
    "tasks__warmup__kind": "frozen",
    "tasks__warmup__generator_steps": 2,
    "tasks__warmup__later_weight": 0.0,
    "tasks__critic__kind": "focused",
    "tasks__critic__components": 30,
    "tasks__critic__rounds": 1,
    "tasks__critic__generator_steps": 2,
    "tasks__critic__faithful_steps": 3,
    "tasks__annotator__kind": "annotator",
    "tasks__annotator__rounds": 2,
    "tasks__annotator__components": 20,
    "tasks__annotator__guided_steps": 3,
    "release__agreement": 0.5,
}


@pytest.fixture
def guided(small_config, run_small, few_images_for_the_frame, tmp_path):
    """A run that an annotator guides and filters: its outcome and directory."""
    outcome = run_small(small_config(**GUIDED))
    return outcome, RunDirectory(tmp_path / "run")


def batches_of(outcome):
    with open_store(outcome.store) as store:
        return {batch.purpose: batch for batch in store.batches(outcome.run_id)}


def test_a_finished_run_has_both_batches(guided):
    outcome, _ = guided
    batches = batches_of(outcome)
    curated, faithful = batches["curated"], batches["faithful"]
    assert curated.count == faithful.count and curated.round == faithful.round == 4
    assert curated.ledger_index == faithful.ledger_index == 3
    assert "CURATED" in curated.provenance and "FAITHFUL" in faithful.provenance
    assert curated.dp_epsilon == faithful.dp_epsilon
    assert set(curated.rejected) == {str(c) for c in range(10)} and not faithful.rejected
    with open_store(outcome.store) as store:
        for batch in (curated, faithful):
            for sample in store.samples(SampleFilter(batch_id=batch.batch_id)):
                assert sample.agreement is not None and 0 <= sample.agreement <= 1


@pytest.mark.law("7: samples for finding faults are neither guided nor filtered")
def test_no_guidance_is_in_the_faithful_generator(guided, run_small, tmp_path):
    """Whatever weight the annotator has, it is the same; the released one is not."""
    _, directory = guided
    run_small(directory.config().updated({"tasks.annotator.weight": 5.0}), "other")
    other = RunDirectory(tmp_path / "other")
    assert directory.faithful_path(4).read_bytes() == other.faithful_path(4).read_bytes()
    released = (load_generator(d.generator_path(4))["average"] for d in (directory, other))
    assert not np.array_equal(*released)


def test_without_steps_it_is_the_generator_before_guidance(
    small_config, run_small, few_images_for_the_frame, tmp_path
):
    run_small(small_config(**{**GUIDED, "tasks__critic__faithful_steps": 0}))
    directory = RunDirectory(tmp_path / "run")
    before = load_generator(directory.generator_path(2))["average"]
    assert np.array_equal(to_vector(kept_sampler(directory, purpose="faithful").generator), before)


def test_stored_faithful_samples_are_those_of_the_kept_generator(guided):
    outcome, directory = guided
    batch = batches_of(outcome)["faithful"]
    sampler = kept_sampler(directory, purpose="faithful")
    images, _ = fresh_samples(sampler, batch.count, batch.seed)
    with open_store(outcome.store) as store:
        found, _ = stored_samples(store, SampleFilter(batch_id=batch.batch_id))
    order = sampler.order(batch.count, batch.seed)
    assert np.array_equal(as_pixels(images)[order], found)


def test_a_resumed_run_trains_it_once(guided, run_small, monkeypatch):
    """And a run that was killed before makes the same one."""
    outcome, directory = guided
    config, path = directory.config(), directory.faithful_path(4)
    first = path.read_bytes()
    path.unlink()
    again = run_small(config)
    assert path.read_bytes() == first and again.model_sha256 == outcome.model_sha256
    monkeypatch.setattr(
        "fedlens.server.learning.learner.train_faithful", None
    )  # to call it would be an error
    run_small(config)


def test_a_run_without_guidance_shows_its_generator_as_it_is(small_config, run_small, tmp_path):
    outcome = run_small(small_config())
    directory = RunDirectory(tmp_path / "run")
    assert not directory.faithful_path(outcome.rounds).exists()
    curated, faithful = (kept_sampler(directory, purpose=p) for p in ("curated", "faithful"))
    assert torch.equal(*(fresh_samples(s, 10, 1)[0] for s in (curated, faithful)))
    batches = batches_of(outcome)
    assert batches["curated"].seed != batches["faithful"].seed
    assert not batches["curated"].rejected


def test_what_a_filter_hides_has_no_faithful_samples(
    small_config, run_small, a_filter_in_no_time, tmp_path
):
    outcome = run_small(
        small_config(
            privatizer__kind="trained", privatizer__trained_by="samples", privatizer__steps=3
        )
    )
    assert "faithful" not in batches_of(outcome)
    with pytest.raises(RunDirectoryError, match="hides something"):
        kept_sampler(RunDirectory(tmp_path / "run"), purpose="faithful")


def test_the_plan_takes_critics_that_have_steps(small_config):
    config = small_config(**GUIDED)
    assert faithful_plan(config, 3) is None
    plan = faithful_plan(config, 4)
    rate = config.tasks["critic"].generator_rate
    assert plan == FaithfulPlan(2, ("warmup", "critic"), 3, rate)
    none = small_config(**GUIDED, tasks__warmup__faithful_steps=0)
    assert faithful_plan(none, 4).critics == ("critic",)
    assert faithful_plan(small_config(**{**GUIDED, "tasks__annotator__guided_steps": 0}), 4) is None


@pytest.mark.law("7: every sample names its origin")
def test_planted_faults_are_on_every_batch(small_config, run_small):
    outcome = run_small(small_config(data__fault="rotate90:0.5"))
    with open_store(outcome.store) as store:
        labels = {batch.provenance for batch in store.batches(outcome.run_id)}
        assert store.run(outcome.run_id).config["data.fault"] == "rotate90:0.5"
    assert all("PLANTED FAULT rotate90:0.5" in label for label in labels)


@pytest.mark.law("7: samples for finding faults are neither guided nor filtered")
def test_a_run_that_ends_after_its_annotator_shows_no_guided_images_as_faithful(small_config):
    """A budget may stop it before a probe that comes last."""
    last = {"schedule": "warmup critic annotator probe", "tasks__probe__kind": "probe"}
    config = small_config(**{**GUIDED, **last})
    assert faithful_plan(config, 3) is None
    assert (
        faithful_plan(config, 4)
        == faithful_plan(config, 5)
        == faithful_plan(small_config(**GUIDED), 4)
    )
