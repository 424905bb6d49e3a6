"""Gradients record by record, of any critic: by products of our own, or by Opacus.

An engine says itself which critics it fits; the first that does computes. Which one that is follows
from the critic's layers alone. Engines give raw gradients: drawing, clip, sum and noise are the
framework's (`fedlens.client.update.record_mode`), so none of them is trusted with a norm.

Opacus' ghost clipping has no place here: it adds weighted gradients up in float32, where one record
changes how those of others are rounded. Sums are made on a lattice, of rows that are there.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.client.update.clipping import Layered, Part, rows_of_updates
from fedlens.client.users.protocol import NodeDataError

RecordLosses = Callable[[Tensor], Tensor]
"""Each record's loss, [n], of the scores [n, ...] that the critic gives."""
_ROUNDING = 1e-3
"""How far scores and gradients of made-up records may be off, over their size."""
_MIXING = nn.modules.batchnorm._BatchNorm


class RecordEngine(Protocol):
    """Computes each record's own gradient."""

    def gradients(self, images: Tensor, labels: Tensor, losses: RecordLosses) -> tuple[Part, ...]:
        """Gradients of ``losses(critic(images, labels))`` at the critic's present weights.

        Args:
            images: [n, c, h, w]; n may be 0.
            labels: int64 [n].
            losses: each record's loss.

        Returns:
            For each trainable parameter, in their order, what
            `fedlens.client.update.clipping.Layered` takes.
        """


class ProductsEngine:
    """One pass forward and one back over all records, for layers that multiply by their weights.

    Such a layer's gradient is, for each record, the slope of its output times its input
    (Goodfellow, arXiv:1510.01799, for dense layers; with patches as columns for convolutions,
    Rochette et al., arXiv:1912.06015). Slopes of outputs are all that is asked of the pass back:
    the gradient of the whole batch is never computed, nor is a record's whole gradient, which the
    clip makes from its factors a few records at a time.
    """

    def __init__(self, critic: nn.Module) -> None:
        self._critic = critic
        self._layers = [part for part in critic.modules() if type(part) in (nn.Conv2d, nn.Linear)]

    @classmethod
    def fits(cls, critic: nn.Module) -> bool:
        """Whether all trainable parameters are those of dense layers and plain convolutions.

        Each must be some one layer's, which uses it in no other way.
        """
        owned: list[int] = []
        for part in critic.modules():
            own = dict(part.named_parameters(recurse=False))
            trained = [p for p in own.values() if p.requires_grad]
            whole = len(trained) == len(own) and own.keys() <= {"weight", "bias"}
            if trained and not (whole and _multiplies(part)):
                return False
            owned += map(id, trained)
        return len(owned) == len(set(owned))

    def gradients(self, images: Tensor, labels: Tensor, losses: RecordLosses) -> tuple[Part, ...]:
        """See `RecordEngine`."""
        with self._watch() as seen:
            loss = losses(self._critic(images, labels)).sum()
        slopes = torch.autograd.grad(loss, [output for _, _, output in seen], allow_unused=True)
        factors: dict[nn.Module, list[tuple[Tensor, Tensor]]] = {}
        for (layer, given, output), slope in zip(seen, slopes, strict=True):
            used = torch.zeros_like(output) if slope is None else slope
            factors.setdefault(layer, []).append(_factors(layer, given, used))
        by_parameter: dict[nn.Parameter, Part] = {}
        for layer in self._layers:
            by_parameter |= _parts(layer, factors.get(layer, []), len(images))
        return tuple(by_parameter[p] for p in self._critic.parameters() if p.requires_grad)

    @contextmanager
    def _watch(self) -> Iterator[list[tuple[nn.Module, Tensor, Tensor]]]:
        """Layers as they come, with their input and their output."""
        seen: list[tuple[nn.Module, Tensor, Tensor]] = []

        def keep(layer: nn.Module, given: tuple[Tensor, ...], output: Tensor) -> None:
            seen.append((layer, given[0].detach(), output))

        hooks = [layer.register_forward_hook(keep) for layer in self._layers]
        try:
            yield seen
        finally:
            for hook in hooks:
                hook.remove()


def _multiplies(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        return type(layer) is nn.Conv2d and plain and not isinstance(layer.padding, str)
    return type(layer) is nn.Linear


def _factors(layer: nn.Module, given: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Slopes [n, outputs, places] and inputs [n, places, inputs] of one use of a layer."""
    if isinstance(layer, nn.Conv2d):
        padding = tuple(int(side) for side in layer.padding)
        columns = F.unfold(given, layer.kernel_size, padding=padding, stride=layer.stride)
        return slope.flatten(2), columns.transpose(1, 2)
    if slope.dim() == 2:
        return slope[:, :, None], given[:, None, :]
    return slope.flatten(1, -2).transpose(1, 2), given.flatten(1, -2)


def _parts(
    layer: nn.Module, uses: list[tuple[Tensor, Tensor]], records: int
) -> dict[nn.Parameter, Part]:
    """A layer's gradients by parameter; zeros of one that was not used."""
    weight, bias = cast(nn.Parameter, layer.weight), cast(nn.Parameter | None, layer.bias)
    if not uses:
        own = [p for p in (weight, bias) if p is not None]
        return {p: p.new_zeros(records, p.numel()) for p in own}
    left, right = (torch.cat(some, place) for some, place in zip(zip(*uses), (2, 1)))  # noqa: B905
    found: dict[nn.Parameter, Part] = {weight: (left, right)}
    if bias is not None:
        found[bias] = left.sum(2)
    return found


class OpacusEngine:
    """Opacus' gradient samples: any layer that it knows, and others by its functional pass."""

    def __init__(self, critic: nn.Module) -> None:
        self._critic = critic

    @classmethod
    def fits(cls, critic: nn.Module) -> bool:
        """Whether Opacus finds nothing in the critic that records share."""
        from opacus.validators import ModuleValidator  # seconds, which our own critics need not pay

        return not ModuleValidator.validate(critic, strict=False)

    def gradients(self, images: Tensor, labels: Tensor, losses: RecordLosses) -> tuple[Part, ...]:
        """See `RecordEngine`."""
        trained = [p for p in self._critic.parameters() if p.requires_grad]
        if not len(images):
            return tuple(p.new_zeros(0, p.numel()) for p in trained)
        with self._sampled() as critic:
            torch.autograd.backward(losses(critic(images, labels)).sum())
            found = [cast(Any, p).grad_sample for p in trained]
        return tuple(
            p.new_zeros(len(images), p.numel()) if rows is None else rows.detach().flatten(1)
            for p, rows in zip(trained, found, strict=True)
        )

    @contextmanager
    def _sampled(self) -> Iterator[nn.Module]:
        """The critic under Opacus' hooks; nothing of records stays behind on it."""
        from opacus import GradSampleModule

        wrapped = GradSampleModule(self._critic, loss_reduction="sum")
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Full backward hook is firing")
                yield wrapped
        finally:
            wrapped.cleanup()
            for parameter in self._critic.parameters():
                parameter.grad = None
            for part in self._critic.modules():
                for left in ("activations", "max_batch_len"):
                    part.__dict__.pop(left, None)


ENGINES: tuple[type[ProductsEngine | OpacusEngine], ...] = (ProductsEngine, OpacusEngine)
"""In the order in which they are asked whether they fit: faster ones first."""


def record_engine(critic: nn.Module, shape: tuple[int, int, int], classes: int) -> RecordEngine:
    """The engine for a critic that is called with images [n, *shape] and labels [n].

    Raises:
        NodeDataError: no record of it has a gradient of its own, and what to do about it.
    """
    for name, part in critic.named_modules():
        if isinstance(part, _MIXING):
            raise NodeDataError(
                f"{type(part).__name__} {name!r} of the critic mixes the records of a batch, and "
                "then none has a gradient of its own: put nn.GroupNorm or nn.LayerNorm in its place"
            )
    alike = copy.deepcopy(critic)
    for part in alike.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.eval()
    images, labels = _made_up(critic, shape, classes)
    if not _told_apart(alike, images, labels):
        raise NodeDataError(
            "a record's score by the critic depends on the records that are computed with it (or "
            "on chance), and then none has a gradient of its own: compute each record by itself"
        )
    for engine in ENGINES:
        if engine.fits(critic) and _is_exact(engine(alike), alike, images[:1], labels[:1]):
            return engine(critic)
    raise NodeDataError(
        "Opacus has no gradients record by record of this critic: use layers that it knows, each "
        "through its own forward, with parameters that no other layer uses"
    )


def _made_up(critic: nn.Module, shape: tuple[int, int, int], classes: int) -> tuple[Tensor, Tensor]:
    """Three random images and labels: what is tried with them is public."""
    device = next(critic.parameters()).device
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return images.to(device), torch.arange(3, device=device) % classes


@torch.no_grad()
def _told_apart(critic: nn.Module, images: Tensor, labels: Tensor) -> bool:
    """Whether scores are the same together and alone."""
    together = critic(images, labels)
    alone = torch.cat([critic(images[i : i + 1], labels[i : i + 1]) for i in range(len(labels))])
    near = (together - alone).abs() <= _ROUNDING * (alone.abs() + alone.abs().mean())
    return bool((near | ~torch.isfinite(alone)).all())


def _is_exact(engine: RecordEngine, critic: nn.Module, image: Tensor, label: Tensor) -> bool:
    """Whether one record's gradient is that of PyTorch's own differentiation."""

    def summed(scores: Tensor) -> Tensor:
        return scores.reshape(len(scores), -1).sum(1)

    trained = [p for p in critic.parameters() if p.requires_grad]
    try:
        found = rows_of_updates(Layered(engine.gradients(image, label, summed)))[0].detach()
    except Exception:  # whatever an engine breaks on, it does not fit
        return False
    slopes = torch.autograd.grad(summed(critic(image, label)).sum(), trained, allow_unused=True)
    own = [torch.zeros_like(p) if g is None else g for p, g in zip(trained, slopes, strict=True)]
    wanted = torch.cat([slope.reshape(-1) for slope in own])
    size = wanted.norm()
    return bool((found - wanted).norm() <= _ROUNDING * size) or not bool(torch.isfinite(size))
