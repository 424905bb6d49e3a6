"""The baseline filter of Bertran et al. 2019 (section 5.3): a FaderNet.

Trained as Lample et al. 2017 say.
The filter reconstructs images from a code and the true attribute; the code is to defeat a
discriminator:

    filter:  mean (D(E(x), s) − x)² + weight · mean −log(1 − P_δ(s|E(x)))
    code:    mean −log P_δ(s|E(x))

Used as a filter, the decoder is told another attribute. Nothing here looks at what a classifier of
the released *image* finds.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fedlens.privatizers.classifiers import check_reads
from fedlens.privatizers.networks.fader import FaderNet
from fedlens.privatizers.protocol import (
    FILTER,
    Batch,
    Privatizer,
    PrivatizerError,
    Step,
    Weights,
    detached,
    named_weights,
    run,
)

CODE = "code"
"""The discriminator that reads the sensitive attribute from the code."""
LEAST = 1e-4
"""Least 1 − P_δ(s|code) that is told from none, so that the loss stays finite."""


class FaderPrivatizer(Privatizer):
    """A FaderNet with its discriminator.

    Args:
        filter: the autoencoder.
        code: reads the sensitive attribute from codes [n, *filter.code_shape].
        weight: of the discriminator's defeat against the mean squared error of pixels.

    Raises:
        PrivatizerError: the discriminator is of another shape, or the weight is below 0.
    """

    def __init__(
        self,
        filter: FaderNet,  # noqa: A002 - the network's name
        code: nn.Module,
        *,
        weight: float = 0.1,
    ) -> None:
        if not weight >= 0:
            raise PrivatizerError(f"weight={weight} must be at least 0")
        check_reads(code, torch.zeros(1, *filter.code_shape), filter.classes, "code")
        self.weight = weight
        self.noise_shape: tuple[int, ...] = filter.noise_shape
        self.networks: Mapping[str, nn.Module] = {FILTER: filter, CODE: code}
        self._encoder = _Encoder(filter)

    def local_step(
        self,
        weights: Mapping[str, Weights],
        batch: Batch,
        noise: Tensor,
        shared: Tensor | None = None,
        *,
        filtering: bool = True,
    ) -> Step:
        """The autoencoder's and the discriminator's losses; no scalar is squared."""
        net = self.networks[FILTER]
        own = {f"net.{name}": value for name, value in weights[FILTER].items()}
        codes = run(self._encoder, own, batch.records)
        told = (
            batch.sensitive.unsqueeze(1) == torch.arange(self._classes, device=codes.device)
        ).float()
        rebuilt = run(net, weights[FILTER], batch.records, noise, None, told)
        read = F.log_softmax(run(self.networks[CODE], weights[CODE], codes.detach()), -1)
        held = F.log_softmax(run(self.networks[CODE], detached(weights[CODE]), codes), -1)
        missed = (1 - (held.exp() * told).sum(-1)).clamp_min(LEAST)
        losses = {
            CODE: -(read * told).sum(-1).mean(),
            FILTER: F.mse_loss(rebuilt, batch.records) - self.weight * missed.log().mean(),
        }
        return Step(losses, codes.new_zeros(0))

    @torch.no_grad()
    def report(self, batch: Batch, noise: Tensor) -> dict[str, float]:
        """Pixel error with the true attribute, and the discriminator's cross-entropy."""
        told = F.one_hot(batch.sensitive, self._classes).float()
        rebuilt = self.networks[FILTER](batch.records, noise, None, told)
        step = self.local_step(named_weights(self.networks), batch, noise)
        return {
            "pixel_error": float(F.mse_loss(rebuilt, batch.records)),
            "code_cross_entropy": float(step.losses[CODE]),
        }

    @property
    def _classes(self) -> int:
        classes: int = self.networks[FILTER].classes  # type: ignore[assignment]
        return classes


class _Encoder(nn.Module):
    """A FaderNet's first half as a network of its own, over the same parameters."""

    def __init__(self, net: FaderNet) -> None:
        super().__init__()
        self.net = net

    def forward(self, records: Tensor) -> Tensor:
        return self.net.encode(records)
