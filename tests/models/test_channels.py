"""What a filter's channel promises: a release is post-processing of it, whatever the record."""

from __future__ import annotations

import pytest
import torch

from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser


@pytest.mark.parametrize("noisy", [True, False])
def test_a_releaser_sends_what_its_channel_says_and_noise_of_its_own(noisy: bool) -> None:
    net = ConvReleaser((1, 8, 8), 2, code=3, noisy=noisy, output_noise_std=0.2)
    source = torch.Generator().manual_seed(0)
    images = torch.rand(5, 1, 8, 8, generator=source) * 2 - 1
    noise = torch.randn(5, *net.noise_shape, generator=source)
    code = net.channel(images, noise)
    assert code.shape == (5, 3) and code.dtype == torch.float32
    own = noise[:, 3 if noisy else 0 :].view_as(images)
    expected = (net.decoded(code) + 0.2 * own).clamp(-1, 1)
    assert torch.equal(net(images, noise), expected)
    if noisy:
        torch.testing.assert_close(code - net.channel(images, 0 * noise), noise[:, :3])


def test_a_mask_sends_its_channel_and_constants() -> None:
    source = torch.Generator().manual_seed(0)
    keep = torch.rand(1, 4, 4, generator=source) > 0.5
    mask = MaskFilter(torch.full((1, 4, 4), 0.3), keep, torch.ones(1, 4, 4))
    records, noise = torch.rand(2, 6, 1, 4, 4, generator=source)
    sent, released = mask.channel(records, noise), mask(records, noise)
    assert sent.shape == (6, int(keep.sum()))
    assert torch.equal(released[:, keep], sent) and bool((released[:, ~keep] == 1).all())
