"""What a filter costs a device: ``python -m benchmarks.filters``.

Median wall time of one record on one CPU thread, in milliseconds: the filter as it is, its
torch.export program and its ONNX file, with the noise drawn before; and what drawing it costs. The
goal is below 1 ms for masks up to 3x224x224 and for U-Nets up to 3x64x64. Figures move with the
machine and its load: compare within a table.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from fedlens.privatizers.export import (
    Kind,
    example_inputs,
    export_filter,
    latency_ms,
    load_filter,
)
from fedlens.privatizers.networks.filters import UNet
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import LstmReleaser

GOAL = 1.0
KINDS: tuple[Kind, ...] = ("torch", "onnx")


def mask(shape: tuple[int, ...]) -> MaskFilter:
    """A mask that keeps a tenth of the entries."""
    source = torch.Generator().manual_seed(0)
    keep = torch.rand(shape, generator=source) < 0.1
    return MaskFilter(torch.rand(shape, generator=source), keep, torch.zeros(shape), trained=True)


def filters() -> list[tuple[str, nn.Module, tuple[int, ...]]]:
    """What is measured: name, filter, shape of a record."""
    images = [(1, 28, 28), (3, 32, 32), (3, 64, 64)]
    return [
        *(("mask", mask(shape), shape) for shape in [*images, (3, 224, 224)]),
        *(("U-Net, width 8", UNet(shape, 8), shape) for shape in images),
        ("U-Net, width 4", UNet(images[-1], 4), images[-1]),
        ("LSTM, 4 x 64", LstmReleaser(), (24, 1)),
    ]


def measure(filter_: nn.Module, shape: tuple[int, ...], folder: Path) -> dict[str, float]:
    """Milliseconds by way of running it, and the files' bytes."""
    record = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    inputs = example_inputs(filter_, record)
    source = torch.Generator().manual_seed(2)

    def draw(_: Tensor, noise: Tensor) -> Tensor:
        return torch.randn(noise.shape, generator=source)

    filter_.eval().requires_grad_(False)
    found = {"noise": latency_ms(draw, inputs), "filter": latency_ms(filter_, inputs)}
    for kind in KINDS:
        made = export_filter(filter_, record, folder / kind, kind)
        found[kind] = latency_ms(load_filter(made.path, kind), inputs)
        found[f"{kind} bytes"] = made.size
    return found


def main() -> None:
    """Measure and print."""
    table = Table(title="one record on one CPU thread: median ms")
    for name in ("filter", "record", "noise", "eager", "torch.export", "ONNX", "ONNX kB", "< 1 ms"):
        table.add_column(name, justify="left" if name in ("filter", "record") else "right")
    with tempfile.TemporaryDirectory() as folder:
        for name, filter_, shape in filters():
            found = measure(filter_, shape, Path(folder))
            best = min(found[way] for way in ("filter", *KINDS))
            table.add_row(
                name,
                "x".join(map(str, shape)),
                *(f"{found[way]:.3f}" for way in ("noise", "filter", *KINDS)),
                f"{found['onnx bytes'] / 1000:.0f}",
                "yes" if best < GOAL else "no",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
