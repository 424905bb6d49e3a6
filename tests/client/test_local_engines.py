"""Every engine of users' local steps is held to the plain loop, over random architectures.

On images of noise: SELU's slope jumps at 0, and where a whole background of one colour lies at the
jump, the plain loop itself differs by percents between float32 and float64.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F
from torch.nn.utils import parameters_to_vector

from fedlens.client.tasks.engines.autograd import LoopEngine, VmapEngine
from fedlens.client.tasks.engines.batches import LocalBatches, LocalRule
from fedlens.client.tasks.engines.blocks import StridedLayer
from fedlens.client.tasks.engines.columns import ColumnsEngine
from fedlens.client.tasks.wgan import WganLocalTask
from fedlens.client.update.clipping import clip_and_sum
from fedlens.client.users.protocol import LocalData
from fedlens.models.critics import WganCritic
from fedlens.models.limits import clamp_weights, weight_limits
from fedlens.server.config.tasks import WganConfig
from fedlens.server.tasks.wgan import LARGE, engine_for

CLASSES, POOL, CLIP, USERS = 3, 4, 0.3, 6
EXACT, LOW = 1e-4, 1e-2
"""How far the clipped sum may lie from the plain loop's, relative, in float32 and bfloat16."""
ENGINES = {
    "vmap": lambda critic, rule: VmapEngine(critic, rule),
    "columns": lambda critic, rule: ColumnsEngine(critic, rule, torch.float32),
    "columns, bfloat16": lambda critic, rule: ColumnsEngine(critic, rule, torch.bfloat16),
}
EVERY_ENGINE = pytest.mark.parametrize("name", ENGINES)
examples = settings(max_examples=8, deadline=None, derandomize=True)
architectures = st.fixed_dictionaries(
    {
        "channels": st.sampled_from([1, 3]),
        "side": st.sampled_from([16, 20, 28, 32]),
        "width": st.integers(1, 9),
        "hidden": st.integers(1, 20),
        "loss": st.sampled_from(["wasserstein", "hinge"]),
        "limit": st.sampled_from([0.0, 2.0]),
        "steps": st.integers(1, 4),
        "batch": st.integers(1, 6),
    }
)


def made(channels=1, side=28, width=8, hidden=12, loss="hinge", limit=2.0, **_):
    """A critic and a rule of steps so small that they do not themselves amplify what is rounded."""
    critic = WganCritic((channels, side, side), CLASSES, width, hidden)
    clamp_weights(critic, weight_limits(critic, limit))  # as the server's is, always
    return critic, LocalRule(loss, 0.005, weight_limits(critic, limit))


def batches_for(users, channels=1, side=28, steps=3, batch=4, records=5, **_):
    """Users who hold from no record to all that count, as the task draws from them."""
    source = torch.Generator().manual_seed(users)
    images = torch.randn(users, records, channels, side, side, generator=source)
    labels = torch.randint(CLASSES, (users, records), generator=source)
    held = torch.arange(users) % (records + 1)
    present = torch.arange(records) < held[:, None]
    own = torch.rand(users, steps, batch, generator=source) * held.clamp(min=1)[:, None, None]
    return LocalBatches(
        images * present[..., None, None, None],
        labels * present,
        own.long(),
        torch.tanh(torch.randn(CLASSES, POOL, channels, side, side, generator=source)),
        torch.randint(POOL, (users, steps, batch), generator=source),
    )


def apart(found, plain, clip=CLIP):
    """Distance of the clipped sums, relative."""
    one, other = (clip_and_sum(rows, clip)[0] for rows in (found, plain))
    return float((one - other).norm() / other.norm())


@EVERY_ENGINE
@examples
@given(architectures)
def test_the_clipped_sum_is_the_plain_loops(name, architecture):
    critic, rule = made(**architecture)
    batches = batches_for(USERS, **architecture)
    plain = LoopEngine(critic, rule).changes(batches)
    found = ENGINES[name](critic, rule).changes(batches)
    assert found.shape == (USERS, len(parameters_to_vector(critic.parameters())))
    assert found.dtype == torch.float32
    assert apart(found, plain) < (LOW if "bfloat16" in name else EXACT)


def test_the_plain_loop_is_what_an_optimiser_of_the_framework_does():
    critic, rule = made(loss="wasserstein")
    batches = batches_for(2)
    row = LoopEngine(critic, rule).changes(batches)[1]
    start = parameters_to_vector(critic.parameters()).detach().clone()
    optimiser = torch.optim.SGD(critic.parameters(), lr=rule.rate)
    for real, labels, fake in zip(
        batches.real[1], batches.step_labels[1], batches.fakes[1], strict=True
    ):
        optimiser.zero_grad()
        (critic(fake, labels).mean() - critic(real, labels).mean()).backward()
        optimiser.step()
        with torch.no_grad():
            for key, parameter in critic.named_parameters():
                parameter.clamp_(-rule.limits[key], rule.limits[key])
    plain = parameters_to_vector(critic.parameters()).detach() - start
    assert float((row - plain).norm() / plain.norm()) < EXACT


@EVERY_ENGINE
def test_a_row_is_the_same_bit_for_bit_whatever_others_hold_and_wherever_it_stands(name):
    critic, rule = made()
    batches = batches_for(USERS)
    rows = ENGINES[name](critic, rule).changes(batches)
    wild = batches.images.clone()
    wild[[0, 1, 2, 4, 5]] = torch.nan
    wild[2] = 1e30
    alone = LocalBatches(wild, batches.labels, batches.picks, batches.pool, batches.places)
    assert torch.equal(ENGINES[name](critic, rule).changes(alone)[3], rows[3])
    if name != "vmap":  # whose framework computes other numbers of users otherwise
        turned = LocalBatches(
            *(part.flip(0) for part in (batches.images, batches.labels, batches.picks)),
            batches.pool,
            batches.places.flip(0),
        )
        assert torch.equal(ENGINES[name](critic, rule).changes(turned).flip(0), rows)


@EVERY_ENGINE
@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e15, torch.inf, torch.nan])
def test_no_user_adds_more_than_the_clip_whatever_an_engine_makes_of_them(name, size):
    critic, rule = made(limit=0.0)
    batches = batches_for(USERS)
    images = batches.images * size
    odd = LocalBatches(images, batches.labels, batches.picks, batches.pool, batches.places)
    rows = ENGINES[name](critic, rule).changes(odd)
    for row in rows:
        total, norms = clip_and_sum(row[None], CLIP)
        assert float(total.norm()) <= CLIP * (1 + 1e-12)
        assert float(norms[0]) <= CLIP


def test_an_engine_keeps_nothing_of_the_users_it_computed_before():
    critic, rule = made()
    engine = ColumnsEngine(critic, rule, torch.bfloat16)
    first = batches_for(USERS)
    engine.changes(
        LocalBatches(first.images * torch.nan, first.labels, first.picks, first.pool, first.places)
    )
    fresh = ColumnsEngine(critic, rule, torch.bfloat16).changes(first)
    assert torch.equal(engine.changes(first), fresh)


@examples
@given(st.sampled_from([3, 4]), st.integers(1, 3), st.integers(4, 13))
def test_patches_in_blocks_are_those_of_the_framework_and_add_up_as_there(kernel, channels, side):
    if kernel == 4:
        side -= side % 2
    layer = StridedLayer(kernel, channels, 5, side)
    source = torch.Generator().manual_seed(side)
    maps = torch.randn(2, side, side, channels, generator=source)
    blocks = torch.zeros(2, *layer.blocks_shape())
    patches = torch.empty(2, layer.reach, layer.reach, layer.patch)
    layer.to_blocks(maps, blocks)
    layer.to_patches(blocks, patches)
    weights = torch.randn(5, channels, kernel, kernel, generator=source)
    images = maps.permute(0, 3, 1, 2).clone().requires_grad_()
    plain = F.conv2d(images, weights, stride=2, padding=1)
    found = patches @ layer.as_matrix(weights)
    torch.testing.assert_close(found.permute(0, 3, 1, 2), plain, atol=1e-4, rtol=1e-4)
    assert torch.equal(layer.from_matrix(layer.as_matrix(weights)[None])[0], weights.reshape(-1))

    slope = torch.randn(plain.shape, generator=source)
    (wanted,) = torch.autograd.grad(plain, images, slope)
    back, added = slope.permute(0, 2, 3, 1) @ layer.as_matrix(weights).T, torch.empty_like(blocks)
    layer.add_patches(back, added.fill_(torch.nan))
    turned = torch.empty_like(maps)
    layer.from_blocks(added, turned)
    torch.testing.assert_close(turned.permute(0, 3, 1, 2), wanted, atol=1e-4, rtol=1e-4)


def test_a_kernel_that_blocks_do_not_hold_is_refused():
    with pytest.raises(ValueError, match="a kernel of side 5"):
        StridedLayer(5, 1, 1, 8)


def test_the_engine_follows_from_settings_and_size_alone():
    small, large = WganCritic((1, 28, 28), 10), WganCritic((1, 28, 28), 10, 20, 64)
    assert len(parameters_to_vector(small.parameters())) < LARGE
    assert len(parameters_to_vector(large.parameters())) > LARGE
    assert engine_for(WganConfig(local_steps=4), small) == ("vmap", "float32")
    assert engine_for(WganConfig(local_steps=1), large) == ("vmap", "float32")
    assert engine_for(WganConfig(local_steps=4), large) == ("columns", "float32")
    low = WganConfig(local_steps=4, precision="bfloat16")
    assert engine_for(low, large) == ("columns", "bfloat16")
    assert engine_for(low, small) == ("vmap", "float32")
    assert engine_for(WganConfig(engine="loop", local_steps=4), large) == ("loop", "float32")
    assert engine_for(WganConfig(engine="columns", local_steps=4), small)[0] == "columns"


@pytest.mark.parametrize("engine", ["loop", "vmap", "columns"])
def test_the_task_computes_with_the_engine_it_is_told(users, make_request, engine):
    cohort, seeds = [users.user(0), users.user(5), users.user(6)], [1, 2, 3]
    gentle = {"local_steps": 3, "local_rate": 0.005}
    plain, found = (
        WganLocalTask(users, make_request(0, kind="wgan", engine=name, **gentle)).updates(
            cohort, seeds
        )
        for name in ("loop", engine)
    )
    assert apart(found, plain) < EXACT
    assert not found[2].any()  # the user without records
    assert isinstance(cohort[0], LocalData) and np.isfinite(found.numpy()).all()
