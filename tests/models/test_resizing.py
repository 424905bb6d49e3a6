"""Convolutions behind a doubling, against the doubling and the convolution done one by one."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from fedlens.models.resizing import DoublingConv2d, FoldedConv2d, normalised, unfolded


def _maps(*size, seed=0):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


def _weighted(layer, seed=1):
    """The layer with weights that no global random state decided."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=source))
    return layer


def _folded(maps):
    """2 x 2 blocks as channels, the block's pixel before the channel."""
    count, channels, height, width = maps.shape
    blocks = maps.view(count, channels, height // 2, 2, width // 2, 2)
    return blocks.permute(0, 3, 5, 1, 2, 4).reshape(count, 4 * channels, height // 2, width // 2)


def test_unfolding_undoes_folding():
    maps = _maps(3, 5, 8, 6)
    assert torch.equal(unfolded(_folded(maps)), maps)


def test_a_doubling_convolution_is_both_steps_in_one():
    layer, maps = _weighted(DoublingConv2d(3, 5)), _maps(2, 3, 7, 7)
    doubled = F.interpolate(maps, scale_factor=2.0, mode="bilinear", align_corners=False)
    wanted = F.conv2d(doubled, layer.weight, padding=1)
    inside = (..., slice(2, -2), slice(2, -2))
    torch.testing.assert_close(unfolded(layer(maps))[inside], wanted[inside], atol=1e-5, rtol=1e-5)


def test_at_the_rim_what_lies_outside_is_zero():
    layer, maps = _weighted(DoublingConv2d(3, 5)), _maps(2, 3, 7, 7)
    framed = F.pad(maps, (2, 2, 2, 2))
    torch.testing.assert_close(
        unfolded(layer(maps)), unfolded(layer(framed))[..., 4:-4, 4:-4], atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_folded_convolution_is_one_of_the_unfolded_maps(outputs):
    layer, maps = _weighted(FoldedConv2d(5, outputs)), _maps(2, 5, 14, 14)
    wanted = F.conv2d(maps, layer.weight, layer.bias, padding=1)
    torch.testing.assert_close(unfolded(layer(_folded(maps))), wanted, atol=1e-5, rtol=1e-5)


def test_gradients_are_those_of_the_plain_convolution():
    layer, maps = _weighted(FoldedConv2d(5, 2)), _maps(2, 5, 14, 14).requires_grad_()
    target = _maps(2, 2, 14, 14, seed=4)
    (unfolded(layer(_folded(maps))) * target).sum().backward()
    found = layer.weight.grad.clone(), layer.bias.grad.clone(), maps.grad.clone()
    layer.zero_grad()
    maps.grad = None
    (F.conv2d(maps, layer.weight, layer.bias, padding=1) * target).sum().backward()
    for ours, plain in zip(found, (layer.weight.grad, layer.bias.grad, maps.grad), strict=True):
        torch.testing.assert_close(ours, plain, atol=1e-3, rtol=1e-4)


def test_folded_maps_are_normalised_channel_by_channel():
    maps, norm, plain = _maps(4, 5, 6, 6) * 3 + 1, nn.BatchNorm2d(5), nn.BatchNorm2d(5)
    wanted = F.relu(plain(maps))
    found = normalised(_folded(maps), norm)
    torch.testing.assert_close(unfolded(found), wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(norm.running_var, plain.running_var)
    assert found.is_contiguous(memory_format=torch.channels_last)
