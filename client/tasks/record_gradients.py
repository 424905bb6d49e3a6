"""Gradients record by record, from one pass forward and one back over all of them.

A layer that multiplies by its weights has, for each record, the gradient "slope of its output
times its input" (Goodfellow, arXiv:1510.01799, for dense layers; with patches as columns for
convolutions, Rochette et al., arXiv:1912.06015). Slopes of outputs are all that is asked of the
pass back: the gradient of the whole batch is never computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Seen = list[tuple[nn.Module, Tensor, Tensor]]
"""Layers with weights, in the order in which they came, with their input and their output."""
GradientPart = Tensor | tuple[Tensor, Tensor]


def record_gradients(
    critic: nn.Module, images: Tensor, labels: Tensor, *, hinge: bool
) -> tuple[GradientPart, ...]:
    """Each record's own gradient of the critic's loss on real images, a part for each parameter.

    Args:
        critic: scores images given labels; all its parameters are those of `nn.Conv2d` (no groups,
            no dilation, with bias) and `nn.Linear` (with bias) layers, in the order in which they
            are used.
        images: [n, c, h, w].
        labels: int64 [n].
        hinge: whether the loss is max(0, 1 - score), in place of -score.

    Returns:
        For each parameter, in their order, what `fedlens.client.update.clipping.Layered` takes,
        float32.
    """
    with _watched(critic) as seen:
        scores = critic(images, labels)
    loss = (F.relu(1 - scores) if hinge else -scores).sum()
    slopes = torch.autograd.grad(loss, [output for _, _, output in seen])
    parts: list[GradientPart] = []
    for (layer, given, _), slope in zip(seen, slopes, strict=True):
        if isinstance(layer, nn.Conv2d):
            slope = slope.flatten(2)
            parts += [(slope, _columns(layer, given)), slope.sum(2)]
        else:
            parts += [(slope[:, :, None], given[:, None, :]), slope]
    return tuple(parts)


def _columns(layer: nn.Conv2d, given: Tensor) -> Tensor:
    """The patches that the weights meet, [n, places, values of a patch]."""
    padding = tuple(int(side) for side in layer.padding)
    columns: Tensor = F.unfold(given, layer.kernel_size, padding=padding, stride=layer.stride)
    return columns.transpose(1, 2)


@contextmanager
def _watched(network: nn.Module) -> Iterator[Seen]:
    seen: Seen = []

    def keep(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
        seen.append((layer, given[0].detach(), output))

    layers = [part for part in network.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    hooks = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield seen
    finally:
        for hook in hooks:
            hook.remove()
