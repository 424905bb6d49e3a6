"""How the server computes on the machine it is on: threads, and the precision of products."""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path

import torch

from fedlens.models.precision import chosen
from fedlens.server.config.tree import Config

MOST = 4
"""Threads that are taken unasked: batches of a run are too small to keep more of them busy."""
QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Of a container: microseconds of processor, or ``max``, and in how many of the clock's."""
LOOKS, BETWEEN = 5, 0.02
"""Looks at what else runs, and seconds from one to the next."""
RUNNING = Path("/proc/loadavg")
"""Its fourth field begins with how many threads of the machine run or want to, this one too."""


def training_threads(config: Config) -> int:
    """Threads of the server's training: the setting's, or as many as were idle at the first call.

    A run of a fixed seed is to be repeated bit for bit, so it is trained with one.
    """
    if config.generator.threads:
        return config.generator.threads
    return 1 if config.privacy.fixed_seed >= 0 else idle_threads()


def faithful_threads(config: Config) -> int:
    """Threads of the generator of faithful samples, which may train beside the rounds."""
    return config.generator.threads or max(1, training_threads(config) // 2)


def generator_precision(config: Config) -> torch.dtype:
    """The type of products in the generator's training; that of a fixed seed is not left open."""
    precision = config.generator.precision
    fixed = precision == "auto" and config.privacy.fixed_seed >= 0
    return chosen("float32" if fixed else precision)


def generator_way(config: Config) -> str:
    """How the generator is trained here, for people to read."""
    threads = training_threads(config)
    name = str(generator_precision(config)).removeprefix("torch.")
    return f"{name}, {threads} thread{'s' if threads > 1 else ''}"


def has_spare_cores(threads: int) -> bool:
    """Whether this process may use twice as many cores as ``threads``."""
    return usable_cores() >= 2 * threads


def usable_cores() -> int:
    """Cores that this process may use, by its affinity and its container's quota (cgroup v2)."""
    counted = getattr(os, "sched_getaffinity", None)
    cores = len(counted(0)) if counted is not None else (os.cpu_count() or 1)
    try:
        quota, period = (int(part) for part in QUOTA.read_text().split())
    except (OSError, ValueError):  # no such file, or no quota
        return cores
    return max(1, min(cores, quota // period))


@cache
def idle_threads() -> int:
    """Cores that nothing else uses now, 1 to `MOST`; the answer stays that of the first call."""
    idle = (os.cpu_count() or 1) - _others_running()
    return max(1, min(usable_cores(), idle, MOST))


def _others_running() -> int:
    """Threads of the machine beside this one that run or want to: the median of some looks.

    The load average would still tell of what ended a minute ago; where a system has nothing else,
    it is taken.
    """
    seen = []
    try:
        for _ in range(LOOKS):
            seen.append(int(RUNNING.read_text().split()[3].split("/")[0]) - 1)
            time.sleep(BETWEEN)
    except (OSError, ValueError, IndexError):
        return round(os.getloadavg()[0]) if hasattr(os, "getloadavg") else 0
    return max(0, sorted(seen)[len(seen) // 2])
