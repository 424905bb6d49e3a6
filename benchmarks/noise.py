"""What exact noise costs beside float noise, and clipping to exact sums: ``make bench-noise``."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from fedlens.accountant.noise import add_noise, chosen, private_source, require_sound_noise
from fedlens.accountant.noise.bits import SystemBits
from fedlens.client.update.clipping import Layered, clip_and_sum

SIZES = (10_000, 100_000, 1_000_000)


def seconds(work: Callable[[], object], repeats: int = 3) -> float:
    """The shortest of some runs."""
    found = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return min(found)


def rows() -> list[tuple[str, float]]:
    """What was done, and its seconds."""
    source, plain = private_source(-1), np.random.default_rng()
    found = []
    for size in SIZES:
        total = np.zeros(size)

        def exact(total: np.ndarray = total) -> object:
            return add_noise(total, noise_multiplier=5.2, sensitivity=0.3, source=source)

        def floats(size: int = size) -> object:
            return plain.normal(0.0, 1.56, size)

        found.append((f"exact noise, {size:,} coordinates", seconds(exact)))
        found.append((f"float noise of NumPy, {size:,} coordinates", seconds(floats)))
    users, left, right = torch.randn(500, 7850), torch.randn(5000, 10), torch.randn(5000, 401)
    return [
        *found,
        ("bits of the operating system, 32 MB", seconds(lambda: SystemBits().words(1 << 22))),
        ("a cohort of 1,000,000 users, q = .01", seconds(lambda: chosen(10**6, 0.01, source))),
        ("clip and add up 500 users of 7,850 values", seconds(lambda: clip_and_sum(users, 0.3))),
        (
            "clip and add up 5,000 records' products, 10 x 401",
            seconds(lambda: clip_and_sum(Layered(((left[:, :, None], right[:, None, :]),)), 0.3)),
        ),
    ]


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    require_sound_noise()
    tested = time.perf_counter() - started
    table = Table("what", "seconds")
    for what, took in [("self-test, once a process", tested), *rows()]:
        table.add_row(what, f"{took:.3f}")
    Console().print(table)


if __name__ == "__main__":
    main()
