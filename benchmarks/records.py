"""Record mode beside Opacus, in one run: ``make bench-records``.

A step of DP-SGD on the critic: the sum over 256 records of their clipped gradients. CPU time of one
thread, the ways in turn, so that a busy machine slows all alike; the ratio is of times of the same
turn. Opacus adds up float32 without a lattice, so it does less than we do. Critics that our
engine does not fit take their gradients from Opacus in any case.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from fedlens.client.tasks.record_gradients import OpacusEngine, ProductsEngine
from fedlens.client.tasks.wgan_networks import LOSSES
from fedlens.client.update.clipping import Layered, clip_and_sum
from fedlens.client.update.record_mode import AT_ONCE
from fedlens.models.critics import WganCritic

BATCH, TURNS, CLIP = 256, 12, 0.5
WIDTHS = ((8, 32), (20, 64))
Way = Callable[[], Tensor]


def ours(
    critic: WganCritic,
    images: Tensor,
    labels: Tensor,
    kind: type[ProductsEngine | OpacusEngine] = ProductsEngine,
) -> Way:
    """As nodes do it, shared part and lattice included."""
    size = sum(parameter.numel() for parameter in critic.parameters())
    shared, engine = torch.zeros(critic.classes, size), kind(critic)

    def step() -> Tensor:
        total = torch.zeros(size, dtype=torch.float64)
        for some, kinds in zip(
            torch.split(images, AT_ONCE), torch.split(labels, AT_ONCE), strict=True
        ):
            parts = engine.gradients(some, kinds, LOSSES["hinge"].real)
            total += clip_and_sum(Layered(parts, shared, kinds), CLIP)[0]
        return total

    return step


def hooks(critic: WganCritic, images: Tensor, labels: Tensor) -> Way:
    """Opacus' gradients record by record, clipped as its optimiser does."""
    wrapped = GradSampleModule(critic, loss_reduction="sum")

    def step() -> Tensor:
        torch.autograd.backward(F.relu(1 - wrapped(images, labels)).sum())
        rows = [cast(Any, parameter).grad_sample for parameter in critic.parameters()]
        norms = torch.stack([row.flatten(1).norm(dim=1) for row in rows]).norm(dim=0)
        scale = (CLIP / (norms + 1e-6)).clamp(max=1.0)
        total = torch.cat([torch.einsum("i,i...", scale, row).flatten() for row in rows])
        wrapped.zero_grad()
        return total

    return step


def ghost(critic: WganCritic, images: Tensor, labels: Tensor) -> Way:
    """Opacus' ghost clipping: norms without gradients, then a weighted pass back."""
    wrapped = GradSampleModuleFastGradientClipping(
        critic, loss_reduction="sum", max_grad_norm=CLIP, use_ghost_clipping=True
    )

    def step() -> Tensor:
        losses = F.relu(1 - wrapped(images, labels))
        torch.autograd.backward(losses.sum(), retain_graph=True)
        scale = wrapped.get_clipping_coef()
        wrapped.zero_grad()
        wrapped.disable_hooks()
        torch.autograd.backward((scale * losses).sum())
        wrapped.enable_hooks()
        total = torch.cat(
            [cast(Any, parameter).grad.flatten() for parameter in critic.parameters()]
        )
        wrapped.zero_grad()
        return total

    return step


WAYS: Mapping[str, Callable[[WganCritic, Tensor, Tensor], Way]] = {
    "fedlens": ours,
    "fedlens on Opacus' gradients": partial(ours, kind=OpacusEngine),
    "Opacus hooks": hooks,
    "Opacus ghost": ghost,
}


def measured(
    width: int, hidden: int, turns: int = TURNS
) -> tuple[int, dict[str, list[float]], float]:
    """P, milliseconds of each way's turns, and how far the sums lie apart at most, over C."""
    source = torch.Generator().manual_seed(1)
    images = torch.randn(BATCH, 1, 28, 28, generator=source)
    labels = torch.randint(10, (BATCH,), generator=source)
    critics = {name: WganCritic((1, 28, 28), 10, width, hidden) for name in WAYS}
    steps = {name: way(critics[name], images, labels) for name, way in WAYS.items()}
    sums = [step().double() for step in steps.values()]
    apart = max(float((one - sums[0]).norm()) for one in sums[1:]) / CLIP
    spent: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(turns):
        for name, step in steps.items():
            started = time.process_time()
            step()
            spent[name].append(1e3 * (time.process_time() - started))
    return len(sums[0]), spent, apart


def main() -> None:
    """Measure and print the table."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    table = Table("parameters", "way", "ms a step", "fedlens is faster by", "range")
    for width, hidden in WIDTHS:
        size, spent, apart = measured(width, hidden)
        for name, times in spent.items():
            ratios = np.array(times) / np.array(spent["fedlens"])
            low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
            table.add_row(
                f"{size:,}",
                name,
                f"{np.median(times):.0f}",
                f"{middle:.2f}",
                f"{low:.2f} to {high:.2f}",
            )
        table.add_row("", f"sums lie {apart:.1e} C apart at most", "", "", "")
    table.title = f"One step, {BATCH} records, CPU time of one thread, in turn"
    Console().print(table)


if __name__ == "__main__":
    main()
