"""Record mode of any critic: engines agree with PyTorch's own gradients, and the rule chooses."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedlens.client.tasks.record_gradients import OpacusEngine, ProductsEngine, record_engine
from fedlens.client.tasks.record_steps import RecordSteps
from fedlens.client.tasks.wgan_networks import LOSSES
from fedlens.client.update.clipping import Layered, clip_and_sum, rows_of_updates
from fedlens.client.update.record_mode import record_reply
from fedlens.client.users.protocol import NodeDataError
from fedlens.models.critics import WganCritic

SHAPE, CLASSES, RECORDS, CLIP = (1, 8, 8), 3, 7, 0.4


class Scored(nn.Module):
    """A body that gives a score a class, of which the record's own counts."""

    def __init__(self, *body):
        super().__init__()
        self.body = nn.Sequential(*body)

    def forward(self, images, labels):
        return self.body(images).gather(1, labels[:, None])[:, 0]


class Embedded(nn.Module):
    """A score by the label's own vector."""

    def __init__(self):
        super().__init__()
        self.seen, self.named = nn.Linear(64, 5), nn.Embedding(CLASSES, 5)

    def forward(self, images, labels):
        return (F.silu(self.seen(images.flatten(1))) * self.named(labels)).sum(1)


class Again(nn.Module):
    """A layer that is used twice and on pixels one by one, and one that is not used."""

    def __init__(self):
        super().__init__()
        self.enter, self.turn = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.idle, self.head = nn.Linear(3, 3), nn.Linear(8, CLASSES)

    def forward(self, images, labels):
        rows = torch.tanh(self.enter(images[:, 0]))
        rows = torch.tanh(self.turn(torch.tanh(self.turn(rows))))
        return self.head(rows.mean(1)).gather(1, labels[:, None])[:, 0]


class Own(nn.Module):
    """A layer that Opacus knows nothing of."""

    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.full((64,), 0.5))

    def forward(self, rows):
        return torch.where(rows > 0, rows, self.slope * rows)


def conv(*more, **options):
    return nn.Conv2d(1, 4, 3, **options), nn.SELU(), *more, nn.Flatten()


CRITICS = {
    "linear": (lambda: Scored(nn.Flatten(), nn.Linear(64, CLASSES)), ProductsEngine),
    "dense": (
        lambda: Scored(nn.Flatten(), nn.Linear(64, 6, bias=False), nn.SELU(), nn.Linear(6, 3)),
        ProductsEngine,
    ),
    "conv": (lambda: Scored(*conv(stride=2), nn.Linear(36, CLASSES)), ProductsEngine),
    "wgan": (lambda: WganCritic((1, 28, 28), CLASSES, 2, 5), ProductsEngine),
    "again": (Again, ProductsEngine),
    "groups": (
        lambda: Scored(*conv(nn.Conv2d(4, 4, 3, groups=2, dilation=2)), nn.Linear(16, CLASSES)),
        OpacusEngine,
    ),
    "group norm": (
        lambda: Scored(*conv(nn.GroupNorm(2, 4)), nn.Linear(144, CLASSES)),
        OpacusEngine,
    ),
    "layer norm": (
        lambda: Scored(nn.Flatten(), nn.Linear(64, 6), nn.LayerNorm(6), nn.Linear(6, CLASSES)),
        OpacusEngine,
    ),
    "embedding": (Embedded, OpacusEngine),
    "own layer": (
        lambda: Scored(nn.Flatten(), Own(), nn.Linear(64, CLASSES)),
        OpacusEngine,
    ),
}
EACH = pytest.mark.parametrize("name", CRITICS)


def made(name):
    torch.manual_seed(4)
    critic, engine = CRITICS[name]
    return critic(), engine


def shape_of(critic):
    return getattr(critic, "shape", SHAPE)


def made_up(critic, count=RECORDS):
    source = torch.Generator().manual_seed(3)
    images = torch.rand(count, *shape_of(critic), generator=source) * 2 - 1
    return images, torch.arange(count) % CLASSES


def plain(critic, records, losses):
    """Record after record, by PyTorch's own differentiation."""
    rows = []
    for image, label in zip(*records, strict=True):
        loss = losses(critic(image[None], label[None])).sum()
        slopes = torch.autograd.grad(loss, list(critic.parameters()), allow_unused=True)
        pairs = zip(critic.parameters(), slopes, strict=True)
        rows.append(torch.cat([(p * 0 if g is None else g).reshape(-1) for p, g in pairs]))
    return torch.stack(rows).detach()


def near(one, other):
    return torch.linalg.vector_norm(one - other) <= 1e-4 * torch.linalg.vector_norm(other)


@EACH
@pytest.mark.parametrize("loss", LOSSES)
def test_engines_give_the_same_rows_norms_and_clipped_sums(name, loss):
    critic, _ = made(name)
    records = made_up(critic)
    wanted = plain(critic, records, LOSSES[loss].real)
    fitting = [one for one in (ProductsEngine, OpacusEngine) if one.fits(critic)]
    assert OpacusEngine in fitting
    for engine in fitting:
        found = Layered(engine(critic).gradients(*records, LOSSES[loss].real))
        assert near(rows_of_updates(found), wanted)
        for ours, theirs in zip(clip_and_sum(found, CLIP), clip_and_sum(wanted, CLIP), strict=True):
            assert near(ours, theirs)


@EACH
def test_the_rule_chooses_ours_where_it_fits_and_opacus_elsewhere(name):
    critic, engine = made(name)
    assert type(record_engine(critic, shape_of(critic), CLASSES)) is engine


@EACH
def test_no_record_has_no_row_of_the_same_width(name):
    critic, engine = made(name)
    rows = rows_of_updates(Layered(engine(critic).gradients(*made_up(critic, 0), torch.neg)))
    assert rows.shape == (0, sum(p.numel() for p in critic.parameters()))


def test_nothing_of_records_stays_on_a_critic():
    critic, _ = made("layer norm")
    records = made_up(critic)
    before = {name: set(vars(part)) for name, part in critic.named_modules()}

    def breaks(scores):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        OpacusEngine(critic).gradients(*records, breaks)
    OpacusEngine(critic).gradients(*records, torch.neg)
    assert {name: set(vars(part)) for name, part in critic.named_modules()} == before
    for parameter in critic.parameters():
        assert parameter.grad is None and not vars(parameter)


def test_frozen_parameters_have_no_gradient():
    critic, _ = made("layer norm")
    critic.body[1].requires_grad_(False)
    rows = rows_of_updates(Layered(OpacusEngine(critic).gradients(*made_up(critic), torch.neg)))
    assert rows.shape == (RECORDS, 12 + 7 * CLASSES)


class Centred(Scored):
    """Scores less their mean over whatever is in the batch."""

    def forward(self, images, labels):
        scores = super().forward(images, labels)
        return scores - scores.mean()


class Tied(Scored):
    """A layer's weight is used once more, outside it, where no engine sees it."""

    def forward(self, images, labels):
        rows = images.flatten(1)
        return super().forward(images, labels) + F.linear(rows, self.body[1].weight)[:, 0]


@pytest.mark.parametrize(
    ("critic", "message"),
    [
        (Scored(*conv(nn.BatchNorm2d(4)), nn.Linear(144, 3)), "BatchNorm2d 'body.2'.*GroupNorm"),
        (
            Scored(*conv(nn.BatchNorm2d(4, affine=False)), nn.Linear(144, 3)),
            "BatchNorm2d.*GroupNorm",
        ),
        (Centred(nn.Flatten(), nn.Linear(64, 3)), "depends on the records"),
        (Tied(nn.Flatten(), nn.Linear(64, 3)), "own forward"),
    ],
    ids=["batch norm", "batch norm without weights", "mean of the batch", "tied"],
)
def test_a_critic_whose_records_have_no_gradients_of_their_own_is_refused(critic, message):
    with pytest.raises(NodeDataError, match=message):
        record_engine(critic, SHAPE, CLASSES)


def test_dropout_is_no_mixing():
    critic = Scored(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, CLASSES))
    assert type(record_engine(critic, SHAPE, CLASSES)) is ProductsEngine


class Network(nn.Module):
    """A critic that only Opacus takes."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(784), nn.Linear(784, 10)

    def forward(self, images, labels):
        return self.head(self.norm(images.flatten(1))).gather(1, labels[:, None])[:, 0]


class Steps:
    """A task of another package around it."""

    takes_steps = True

    def __init__(self, users, rate=0.1):
        torch.manual_seed(1)
        self.steps = RecordSteps(Network(), users, torch.neg, rate)
        self.record_rows = self.steps.rows
        self.take_step, self.change = self.steps.take_step, self.steps.change


def test_any_critic_steps_along_clipped_noised_sums(users, make_request):
    """With no noise and every record drawn, a step is minus the mean of clipped gradients."""
    settings = {"unit": "record", "fixed_seed": 4, "sampling_rate": 1.0, "denominator": 51.0}
    request = make_request(0, clipping_norm=0.5, noise_multiplier=0.0, **settings)
    found = record_reply(users, Steps(users), request).numpy()
    torch.manual_seed(1)
    critic = Network()
    data = [users.user(position) for position in range(len(users))]
    records = torch.cat([d.images for d in data]), torch.cat([d.labels for d in data])
    total, _ = clip_and_sum(plain(critic, records, torch.neg), 0.5)
    np.testing.assert_allclose(found, -0.1 * total / 51, atol=1e-5)
    loud = make_request(0, clipping_norm=0.5, noise_multiplier=40.0, **settings)
    noise = record_reply(users, Steps(users), loud).numpy() - found
    assert noise.std() == pytest.approx(0.1 * 40 * 0.5 / 51, rel=0.05)
