"""Samplers: what decides an image, what the filter does, and what is refused."""

from __future__ import annotations

import pytest
import torch
from run_tasks import planned
from torch.nn import functional as F

from fedlens.models.annotators import Annotator
from fedlens.models.generators import Generator
from fedlens.server.config.tree import Config
from fedlens.server.generation.sampler import Sampler, kept_arrays, restored_sampler, sampler_of
from fedlens.server.run.arrays import digest_of
from fedlens.server.run.directory import RunDirectory, RunDirectoryError, load_generator

SHAPE, CLASSES = (1, 28, 28), 4


class Blobs(Generator):
    """A stand-in whose noise decides the image: a blob in the class's corner, or anywhere."""

    def forward(self, noise, labels):
        confused = noise[:, 0] > 0
        shown = torch.where(confused, noise[:, 1].abs().mul(97).long() % CLASSES, labels)
        images = noise[:, 2:3, None, None].tanh() * 0.1 * torch.ones(len(noise), *SHAPE) - 0.8
        for corner in range(CLASSES):
            top, left = 14 * (corner // 2), 14 * (corner % 2)
            images[shown == corner, :, top + 3 : top + 11, left + 3 : left + 11] = 0.9
        return images


@pytest.fixture(scope="module")
def blobs():
    return Blobs(SHAPE, CLASSES, 8).eval()


@pytest.fixture(scope="module")
def judge(blobs):
    """An annotator that knows the corners."""
    annotator = Annotator(SHAPE, CLASSES, 10)
    labels = torch.arange(400) % CLASSES
    noise = torch.randn(400, 64, generator=torch.Generator().manual_seed(1))
    noise[:, 0] = -1
    images = blobs(noise, labels)
    annotator.fit_frame(images, 0.5)
    rows = annotator.rows(images)
    for _ in range(50):
        errors = F.one_hot(labels, CLASSES) - torch.softmax(rows @ annotator.weight.mT, 1)
        annotator.weight.add_(20 * errors.mT @ rows / len(rows))
    return annotator


@pytest.fixture
def labels():
    return torch.arange(200) % CLASSES


def agreeing(sampler, images, labels):
    return float((sampler.label(images).argmax(1) == labels).float().mean())


def test_the_seed_and_the_place_decide(blobs, judge, labels):
    sampler = Sampler(blobs, judge, 0.9, 4)
    images = sampler.draw(labels, 5)
    assert torch.equal(images, sampler.draw(labels, 5))
    assert not torch.equal(images, sampler.draw(labels, 6))
    assert torch.equal(images[:77], sampler.draw(labels[:77], 5))


@pytest.mark.parametrize("latent", [64, 7, 33])
@pytest.mark.parametrize("agreement", [0.0, 0.3])
def test_how_many_are_drawn_changes_no_image(judge, labels, latent, agreement, monkeypatch):
    sampler = Sampler(Generator(SHAPE, CLASSES, 8, latent).eval(), judge, agreement, 3)
    images = sampler.draw(labels, 5)
    torch.testing.assert_close(images[:13], sampler.draw(labels[:13], 5))
    monkeypatch.setattr("fedlens.server.generation.sampler.BATCH", 7)
    torch.testing.assert_close(images, sampler.draw(labels, 5))
    other = labels.clone()
    other[50:] = 0
    torch.testing.assert_close(images[:50], sampler.draw(other, 5)[:50])


def test_the_global_random_state_is_left_alone(blobs, judge, labels):
    before = torch.random.get_rng_state()
    Sampler(blobs, judge, 0.9, 4).draw(labels, 5)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_the_filter_raises_agreement_and_more_attempts_raise_it_further(blobs, judge, labels):
    rates = [
        agreeing(sampler, sampler.draw(labels, 5), labels)
        for sampler in (
            Sampler(blobs, judge, 0.0),
            *(Sampler(blobs, judge, 0.8, n) for n in (2, 8)),
        )
    ]
    assert rates[0] < 0.75
    assert rates[0] + 0.1 < rates[1] < rates[2]
    assert rates[2] > 0.97


def test_what_agrees_at_once_is_kept_as_it_was(blobs, judge, labels):
    filtered = Sampler(blobs, judge, 0.8, 8)
    first = filtered.unfiltered().draw(labels, 5)
    kept = filtered.label(first).gather(1, labels[:, None])[:, 0] >= 0.8
    assert 0 < int(kept.sum()) < len(labels)
    images = filtered.draw(labels, 5)
    assert torch.equal(images[kept], first[kept])
    assert not torch.isclose(images[~kept], first[~kept]).flatten(1).all(1).any()


def test_without_any_agreement_the_best_candidate_is_taken(blobs, judge, labels):
    strict = Sampler(blobs, judge, 0.999999, 5)
    images = strict.draw(labels, 5)
    assert images.shape == (200, *SHAPE)
    belief = strict.label(images).gather(1, labels[:, None])[:, 0]
    assert float(belief.max()) < strict.agreement
    fewer = Sampler(blobs, judge, 0.999999, 4).draw(labels, 5)
    before = strict.label(fewer).gather(1, labels[:, None])[:, 0]
    assert bool((belief >= before - 1e-6).all())


def test_one_attempt_is_no_filter(blobs, judge, labels):
    assert torch.equal(
        Sampler(blobs, judge, 0.9, 1).draw(labels, 5), Sampler(blobs).draw(labels, 5)
    )


def test_labels_are_probabilities(blobs, judge, labels):
    sampler = Sampler(blobs, judge)
    found = sampler.label(sampler.draw(labels, 5))
    assert found.shape == (200, CLASSES)
    torch.testing.assert_close(found.sum(1), torch.ones(200))
    assert sampler.draw(labels[:0], 5).shape == (0, *SHAPE)
    assert (sampler.classes, sampler.latent) == (CLASSES, 64)


def test_what_cannot_be_drawn_from_is_refused(blobs, judge):
    with pytest.raises(ValueError, match=r"agreement=1\.0"):
        Sampler(blobs, judge, 1.0)
    with pytest.raises(ValueError, match="needs an annotator"):
        Sampler(blobs, None, 0.5)
    with pytest.raises(ValueError, match="attempts=0"):
        Sampler(blobs, judge, 0.5, 0)
    with pytest.raises(ValueError, match="evaluation mode"):
        Sampler(Generator(SHAPE, CLASSES, 8))
    with pytest.raises(ValueError, match="cannot judge"):
        Sampler(Generator(SHAPE, 5, 8).eval(), judge)
    with pytest.raises(ValueError, match="trained no annotator"):
        Sampler(blobs).label(torch.zeros(1, *SHAPE))


@pytest.mark.parametrize("with_annotator", [False, True])
def test_a_sampler_comes_back_from_what_is_kept_of_it(labels, tmp_path, with_annotator):
    changes = {
        "generator.width": 8,
        "tasks.critic.rounds": 4,
        "tasks.annotator.rounds": 2,
        "tasks.annotator.components": 10,
        "release.agreement": 0.3,
    }
    config = Config().updated(planned(changes))
    generator = Generator(SHAPE, CLASSES, 8).eval()
    annotator = Annotator(SHAPE, CLASSES, 10) if with_annotator else None
    if annotator is not None:
        annotator.fit_frame(generator(torch.randn(30, 64), torch.arange(30) % CLASSES), 0.5)
        annotator.weight.copy_(torch.randn(CLASSES, 11))
    sampler = sampler_of(config, generator, annotator)
    assert sampler.agreement == (0.3 if with_annotator else 0.0)
    directory = RunDirectory.create(tmp_path / "run", config)
    digest = directory.save_generator(3, kept_arrays(sampler))
    arrays = load_generator(directory.generator_path(3))
    assert digest_of(arrays) == digest
    back = restored_sampler(config, SHAPE, CLASSES, arrays)
    assert torch.equal(back.draw(labels, 5), sampler.draw(labels, 5))
    with pytest.raises(ValueError, match="a network of"):
        restored_sampler(config.updated({"generator.width": 16}), SHAPE, CLASSES, arrays)
    directory.generator_path(3).write_bytes(b"cut")
    with pytest.raises(RunDirectoryError, match="damaged"):
        load_generator(directory.generator_path(3))


def test_opinions_and_rejections_are_those_of_what_is_drawn(blobs, judge, labels):
    """And change nothing of it."""
    filtered = Sampler(blobs, judge, agreement=0.9, attempts=4)
    drawn = filtered.judged(labels, 3)
    assert torch.equal(drawn.images, filtered.draw(labels, 3))
    answers = torch.softmax(judge(drawn.images), 1).gather(1, labels[:, None])[:, 0]
    assert torch.allclose(drawn.agreement, answers, atol=1e-5)
    assert torch.equal(drawn.passed, drawn.agreement >= 0.9)
    assert 1 <= int(drawn.tried.min()) < int(drawn.tried.max()) <= 4
    shares = drawn.rejected(labels)
    turned_down = {
        str(c): 1 - int(drawn.passed[labels == c].sum()) / int(drawn.tried[labels == c].sum())
        for c in range(CLASSES)
    }
    assert shares == pytest.approx(turned_down) and max(shares.values()) > 0.1
    plain = Sampler(blobs, judge).judged(labels, 3)
    assert plain.agreement.min() < 0.5 and bool(plain.passed.all())
    assert Sampler(blobs).judged(labels, 3).agreement is None


@pytest.mark.law("7: what a filter hides is not stored beside it")
def test_no_opinion_tells_what_a_filter_hides(blobs, judge, labels):
    class Grey(torch.nn.Module):
        noise_shape = (1,)

        def forward(self, images, noise):
            return torch.zeros_like(images)

    hidden = Sampler(blobs, judge, agreement=0.5, privatizer=Grey()).judged(labels, 3)
    assert hidden.agreement is None and not hidden.images.any()
