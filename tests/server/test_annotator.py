"""The annotator on the server: its steps, what it hands out, and that it goes on bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from run_tasks import context_of, planned
from torch.nn import functional as F

from fedlens.data.embedded import load_embedded
from fedlens.models.annotators import Annotator
from fedlens.models.weights import load_vector
from fedlens.server.config.mechanism import release_deviation
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.tasks.annotator import AnnotatorTask, suited_rate

SHAPE, CLASSES, COMPONENTS = (1, 28, 28), 10, 40


def annotator(rounds=4, **settings):
    known = {"rounds": rounds, "components": COMPONENTS, **settings}
    changes = {f"tasks.annotator.{name}": value for name, value in known.items()}
    config = Config().updated(planned({"tasks.critic.rounds": 1, **changes}))
    return AnnotatorTask(context_of(config, "annotator", shape=SHAPE, classes=CLASSES))


def begin(made, images):
    made.prepare(lambda: (images, torch.zeros(len(images), dtype=torch.int64)))


@pytest.fixture(scope="module")
def digits():
    dataset = load_embedded()
    images = torch.from_numpy(dataset.train_images[:1400].copy()).float() / 127.5 - 1
    return images, torch.from_numpy(dataset.train_labels[:1400].copy())


def releases(count, seed=0):
    source = np.random.default_rng(seed)
    return [source.normal(0, 0.01, CLASSES * (COMPONENTS + 1)) for _ in range(count)]


def iterate_of(made):
    network = Annotator(SHAPE, CLASSES, COMPONENTS)
    load_vector(network, made.weights())
    return network.weight.numpy().ravel()


def mean_of(made):
    return made.network.weight.numpy().ravel().copy()


def test_it_begins_once_and_learns_only_after_that(digits):
    made = annotator()
    assert not made.ready
    with pytest.raises(ValueError, match="no frame yet"):
        made.apply_release(releases(1)[0])
    begin(made, digits[0][:50])
    assert not made.ready
    frame = frame_of(made)
    assert made.size == CLASSES * (COMPONENTS + 1)
    begin(made, digits[0][50:99])
    assert frame_of(made) == frame  # it is taken once
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(410,\)"):
        made.apply_release(np.zeros(3))
    made.apply_release(releases(1)[0])
    assert made.ready


def test_a_release_moves_the_weight_along_it(digits):
    made = annotator(rate=2.0, momentum=0.5)
    begin(made, digits[0][:50])
    first, second = releases(2)
    made.apply_release(first)
    np.testing.assert_allclose(iterate_of(made), 2 * first, atol=1e-6)
    made.apply_release(second)
    np.testing.assert_allclose(iterate_of(made), 3 * first + 2 * second, atol=1e-6)


@pytest.mark.parametrize(("rounds", "momentum"), [(1, 0.0), (4, 0.5), (9, 0.9)])
def test_it_knows_its_own_noise(digits, rounds, momentum):
    """Fed with noise of the deviation that its run declares it finds no signal; with more, some."""
    shares = {1: [], 2: []}
    for seed in range(12):
        for scale, found in shares.items():
            made = annotator(rounds, rate=2.0, momentum=momentum)
            begin(made, digits[0][:50])
            source = np.random.default_rng(seed)
            deviation = scale * release_deviation(Config(), made._settings)
            for _ in range(rounds):
                made.apply_release(source.normal(0, deviation, made.size))
            found.append(made.signal().mean())
    assert np.mean(shares[1]) < 0.1
    assert np.mean(shares[2]) == pytest.approx(0.75, abs=0.05)


@pytest.mark.parametrize("rounds", [1, 4, 5])
def test_the_network_has_the_mean_of_the_last_quarter(digits, rounds):
    made = annotator(rounds, rate=1.0)
    begin(made, digits[0][:50])
    iterates = []
    for release in releases(rounds):
        made.apply_release(release)
        iterates.append(iterate_of(made))
        counted = iterates[3 * rounds // 4 :] or iterates[-1:]
        np.testing.assert_allclose(mean_of(made), np.mean(counted, axis=0), atol=1e-6)
    assert made.network.frame_digest() == frame_of(made)


def frame_of(made):
    network = Annotator(SHAPE, CLASSES, COMPONENTS)
    load_vector(network, made.weights())
    return network.frame_digest()


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_a_restored_one_goes_on_bit_for_bit(digits, cut):
    def fresh():
        return annotator(momentum=0.9)

    whole = fresh()
    begin(whole, digits[0][:50])
    for release in releases(4):
        whole.apply_release(release)
    before = fresh()
    begin(before, digits[0][:50])
    for release in releases(4)[:cut]:
        before.apply_release(release)
    after = fresh()
    after.restore({name: value.copy() for name, value in before.state().items()})
    assert after.ready == (cut > 0) and frame_of(after) == frame_of(whole)
    begin(after, digits[0][50:99])  # as a resumed run does; the frame stays
    assert frame_of(after) == frame_of(whole)
    for release in releases(4)[cut:]:
        after.apply_release(release)
    for name, value in whole.state().items():
        assert np.array_equal(value, after.state()[name]), name
    assert torch.equal(after.network.weight, whole.network.weight)
    assert after.network.frame_digest() == whole.network.frame_digest()


def test_a_state_is_a_copy(digits):
    made = annotator()
    begin(made, digits[0][:50])
    kept = {name: value.copy() for name, value in made.state().items()}
    held = made.state()
    made.apply_release(releases(1)[0])
    assert all(np.array_equal(held[name], kept[name]) for name in kept)


def test_rounds_without_noise_teach_it_digits_it_has_not_seen(digits):
    images, labels = digits
    made = annotator(rounds=40, rate=60.0)
    begin(made, images[:400])
    node = Annotator(SHAPE, CLASSES, COMPONENTS)
    for _ in range(40):
        load_vector(node, made.weights())
        rows = node.rows(images[:400])
        errors = F.one_hot(labels[:400], CLASSES) - torch.softmax(rows @ node.weight.mT, 1)
        made.apply_release((errors.mT @ rows / 400).numpy().astype(np.float64).ravel())
    right = (made.network(images[400:]).argmax(1) == labels[400:]).float().mean()
    assert float(right) > 0.8


def test_the_loss_is_a_sharpened_cross_entropy_that_reaches_the_images(digits):
    images, labels = digits[0][:20], digits[1][:20]
    plain, sharp, light = (
        annotator(sharpness=1.0, weight=1.0),
        annotator(sharpness=3.0, weight=1.0),
        annotator(sharpness=1.0, weight=0.25),
    )
    for made in (plain, sharp, light):
        begin(made, digits[0][:50])
        made.apply_release(releases(1)[0])
    logits, wanted = plain.network(images[::2]), labels[::2]  # every other image is enough
    expected = F.cross_entropy(logits, wanted)
    torch.testing.assert_close(plain.loss(images, labels), expected)
    torch.testing.assert_close(sharp.loss(images, labels), F.cross_entropy(3 * logits, wanted))
    torch.testing.assert_close(light.loss(images, labels), expected / 4)
    watched = images.clone().requires_grad_()
    sharp.loss(watched, labels).backward()
    assert float(watched.grad.abs().sum()) > 0


def test_too_many_components_are_refused():
    with pytest.raises(ConfigError, match=r"tasks\.annotator\.components = 5000"):
        annotator(components=5000)


@pytest.mark.parametrize(
    "changes", [{}, {"noise_multiplier": 90.0}, {"rounds": 9, "momentum": 0.5}]
)
def test_a_rate_of_0_moves_a_logit_by_as_much_noise_whatever_there_is_of_it(changes, digits):
    made = annotator(**{"rounds": 20, "rate": 0.0, "clipping_norm": 0.05, **changes})
    begin(made, digits[0][:99])
    deviation, source = made._deviation, np.random.default_rng(1)
    for _ in range(made._settings.rounds):
        made.apply_release(source.normal(0, deviation, made.size))
    found = float(np.std(iterate_of(made)))  # a row has norm 1: a weight's deviation is a logit's
    assert 0.5 < found / 0.9 <= 1.2


def test_a_rate_of_0_is_bounded_where_there_is_no_noise():
    settings = annotator(rate=0.0, clipping_norm=0.05)._settings
    assert suited_rate(settings, 0.0) == 200 / 0.05
    assert suited_rate(settings.model_copy(update={"rate": 7.0}), 0.0) == 7.0
