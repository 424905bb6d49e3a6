"""What a run says of its own samples: signal by class, what is recognised, the verdict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlens.server.learning.fidelity import fidelity_of
from fedlens.server.tasks.signal import signal_between
from fedlens.store import (
    RECOGNISED,
    ProjectRecord,
    StoreError,
    figure_of,
    open_store,
    worth_of,
)  # fmt: skip
from fedlens.store.labelling import LabelRecord

CLASSES, DIM = 6, 4000


def means(scale: float, noise: float, seed: int = 0) -> np.ndarray:
    """Class means whose squared distance from their mean is about ``scale``, with noise."""
    rng = np.random.default_rng(seed)
    true = rng.normal(0, np.sqrt(scale / DIM), (CLASSES, DIM)) + rng.normal(0, 3, DIM)
    return true + rng.normal(0, noise, (CLASSES, DIM))


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.05])
def test_the_signal_is_the_share_of_the_distance_that_is_no_noise(noise):
    """Against its definition, with truth and noise of known sizes."""
    found = signal_between(means(1.0, noise), np.full(CLASSES, noise**2))
    between = (1 - 1 / CLASSES) * 1.0
    expected = between / (between + (1 - 1 / CLASSES) * DIM * noise**2)
    assert found == pytest.approx(np.full(CLASSES, expected), abs=0.1)


def test_noise_alone_has_no_signal():
    found = [signal_between(means(0.0, 0.1, seed), np.full(CLASSES, 0.01)) for seed in range(20)]
    assert np.mean(found) < 0.03


def test_classes_with_noises_of_their_own_are_told_apart():
    """One class so rare that its mean is noise does not pass for signal, nor hide the others'."""
    noise = np.full(CLASSES, 1e-6)
    noise[2] = 1.0
    rng = np.random.default_rng(3)
    seen = means(50.0, 0.0) + rng.normal(size=(CLASSES, DIM)) * np.sqrt(noise)[:, None]
    found = signal_between(seen, noise)
    assert found[2] < 0.2


def test_one_class_has_nothing_to_differ_from():
    assert signal_between(np.ones((1, 5)), np.ones(1)) is None


LABELS = torch.arange(40) % 4
ONES = np.ones(4)


def test_an_annotator_with_one_answer_recognises_nothing():
    said = fidelity_of(ONES, ONES, LABELS, torch.zeros(40, dtype=torch.int64))
    assert said[RECOGNISED] < 0.05
    assert worth_of(said) == "usable for statistics"


def test_a_clear_run_has_signal_that_is_recognised():
    assert worth_of(fidelity_of(ONES, ONES, LABELS, LABELS)) == "clear"
    assert worth_of(fidelity_of(0.2 * ONES, ONES, LABELS, LABELS)) == "noise"
    mixed = LABELS[torch.randperm(40, generator=torch.Generator().manual_seed(1))]
    assert worth_of(fidelity_of(ONES, ONES, LABELS, mixed)) == "usable for statistics"
    assert figure_of(fidelity_of(ONES, ONES, LABELS, LABELS)) > 0.9


def test_noise_of_the_annotator_is_reckoned_with():
    """Half of the samples recognised by one that is mostly noise is much."""
    half = torch.where(torch.arange(40) < 20, LABELS, (LABELS + 1) % 4)
    noisy, sure = (fidelity_of(ONES, own * ONES, LABELS, half)[RECOGNISED] for own in (0.3, 1.0))
    assert noisy > sure
    nothing = [fidelity_of(ONES, 0 * ONES, LABELS, found)[RECOGNISED] for found in (half, LABELS)]
    assert nothing == [0.5, 0.5]


def test_what_nothing_can_judge_is_not_judged():
    assert fidelity_of(None, ONES, LABELS, LABELS) == {}
    assert worth_of({}) == "not judged"
    assert worth_of(fidelity_of(ONES, None, LABELS, None)) == "usable for statistics"


def test_noise_is_not_labelled_unless_somebody_wants_to(noise_run):
    """A real run over too few users: its batches say noise, and a project on them is refused."""
    outcome = noise_run
    with open_store(outcome.store) as store:
        batches = {batch.purpose: batch for batch in store.batches(outcome.run_id)}
        assert batches["curated"].fidelity == batches["faithful"].fidelity
        assert batches["curated"].worth == "noise"
        assert "NOISE" in batches["curated"].provenance
        assert batches["strip"].worth == "not judged"
        asked = ProjectRecord(
            name="all", run_id=outcome.run_id, labels=(LabelRecord(key="1", name="one"),)
        )
        for purpose in batches:
            with pytest.raises(StoreError, match="its samples are noise"):
                store.create_project(replace(asked, purpose=purpose))
        assert store.create_project(asked, even_noise=True)


@pytest.fixture
def noise_run(small_config, run_small, few_images_for_the_frame):
    from test_faithful import GUIDED

    return run_small(small_config(**GUIDED))
