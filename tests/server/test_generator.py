"""The generator's trainer: its learning rates, its steps, and that it goes on bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedlens.models.shapes import as_pixels
from fedlens.server.config.tree import Config
from fedlens.server.generation.generator import GeneratorTrainer

SHAPE, CLASSES = (1, 28, 28), 4


def trainer(**changes):
    small = {"generator.width": 8, "generator.batch": 8, "generator.latent": 8}
    return GeneratorTrainer(Config().updated({**small, **changes}), SHAPE, CLASSES)


def towards_bright(images, labels):
    return (images - 1).square().mean()


def rates_of(made, **plan):
    """The learning rate at every step of a call."""
    rates = []
    optimiser = made._optimiser
    step = optimiser.step
    optimiser.step = lambda: (rates.append(optimiser.param_groups[0]["lr"]), step())
    made.train(towards_bright, **plan)
    del optimiser.step
    return rates


def test_the_rate_falls_along_one_cosine_over_all_calls():
    whole = rates_of(trainer(), steps=9, rate=0.4, done=0, planned=9)
    shared_out = trainer()
    shared = rates_of(shared_out, steps=4, rate=0.4, done=0, planned=9)
    shared += rates_of(shared_out, steps=5, rate=0.4, done=4, planned=9)
    assert whole == shared
    assert whole[0] == 0.4
    assert whole == sorted(whole, reverse=True)
    assert rates_of(trainer(), steps=1, rate=0.4, done=1000, planned=1001)[0] < 0.0201
    assert rates_of(shared_out, steps=1, rate=0.1, done=0, planned=300) == [0.1]


def test_steps_lower_the_loss_and_are_told():
    made, told = trainer(), []
    first = made.train(towards_bright, steps=5, rate=0.01, done=0, planned=40, on_step=told.append)
    last = made.train(towards_bright, steps=35, rate=0.01, done=5, planned=40)
    assert told == [1, 2, 3, 4, 5]
    assert last < first


def test_the_average_follows_the_network_fast_at_first_and_then_by_its_decay():
    made, decays = trainer(**{"generator.averaging": 0.6}), []

    def learned(net):
        return [value.detach().double().clone() for value in net.parameters()]

    expected = learned(made.average)
    for step in range(30):
        made.train(towards_bright, steps=1, rate=0.01, done=step, planned=30)
        decays.append(min(0.6, (1 + step) / (10 + step)))
        pairs = zip(expected, learned(made.network), strict=True)
        expected = [decays[-1] * mean + (1 - decays[-1]) * new for mean, new in pairs]
        torch.testing.assert_close(learned(made.average), expected, atol=1e-5, rtol=0)
    assert decays[0] == 0.1 and decays[-1] == 0.6
    assert not np.allclose(made.state()["average"], made.weights(), atol=1e-4)


def test_no_steps_change_nothing():
    made = trainer()
    before = {name: value.copy() for name, value in made.state().items()}
    assert made.train(towards_bright, steps=0, rate=0.1, done=3, planned=3) == 0
    assert made.train(towards_bright, steps=0, rate=0.1, done=0, planned=0) == 0
    assert all(np.array_equal(value, before[name]) for name, value in made.state().items())


def test_a_restored_trainer_goes_on_bit_for_bit():
    def guided(images, labels):
        return towards_bright(images, labels) + images[labels == 0].mean()

    def first_part(made):
        made.train(towards_bright, steps=3, rate=0.01, done=0, planned=5)

    def rest(made):
        made.train(towards_bright, steps=2, rate=0.01, done=3, planned=5)
        made.train(guided, steps=3, rate=0.004, done=0, planned=3)

    whole, before, after = trainer(), trainer(), trainer()
    first_part(whole)
    rest(whole)
    first_part(before)
    after.restore({name: value.copy() for name, value in before.state().items()})
    rest(after)
    resumed = after.state()
    assert whole.state().keys() == resumed.keys()
    for name, value in whole.state().items():
        assert np.array_equal(value, resumed[name]), name


def test_labels_come_in_equal_blocks():
    seen = []

    def loss(images, labels):
        seen.append(labels)
        return images.mean()

    trainer().train(loss, steps=1, rate=0.01, done=0, planned=1)
    assert torch.equal(seen[0], torch.arange(CLASSES).repeat_interleave(2))


@pytest.mark.parametrize(
    ("steps", "done", "planned"), [(3, 0, 2), (1, 5, 5), (-1, 0, 2), (1, -1, 2)]
)
def test_steps_outside_the_plan_are_refused(steps, done, planned):
    with pytest.raises(ValueError, match=f"steps={steps} after done={done} do not fit"):
        trainer().train(towards_bright, steps=steps, rate=0.1, done=done, planned=planned)


def test_pixels_are_rounded_and_stay_in_range():
    images = torch.tensor([-1.0, 0.0, 1.0, 1.5]).view(1, 1, 2, 2)
    assert as_pixels(images).ravel().tolist() == [0, 128, 255, 255]
