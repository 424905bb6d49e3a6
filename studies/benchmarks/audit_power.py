"""How often each audit catches each fault, and how often it cries wolf.

    python -m studies.benchmarks.audit_power --correct 100 --broken 20

The faults are put into the functions of the real path for the time of one audit: into the noise as
the server draws it and into the clip as the nodes do it.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from unittest.mock import patch

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from accountant.noise import BitSource, add_noise
from accountant.noise.bits import FixedBits
from accountant.noise.lattice import Values
from client.clipping import clip_and_sum
from server.config.tree import Config
from server.sampling import Cohort, Roster, draw_cohort
from simulations.audits.audit import AuditPlan, run_audits
from simulations.audits.schedule import Schedule

Fault = Callable[[], object]
COLUMNS = ("clipping", "sampling", "one-run", "one-shot", "noise")
SETTINGS = {
    "q=1 z=4 T=4": (1.0, 4.0, 4),
    "q=0.1 z=2 T=50": (0.1, 2.0, 50),
    "q=1 z=8 T=16": (1.0, 8.0, 16),
}


@contextmanager
def weaker_noise(factor: float) -> Iterator[None]:
    """The server's noise, times ``factor``."""

    def weak(
        total: Values, *, noise_multiplier: float, sensitivity: float, source: BitSource
    ) -> object:
        whole = add_noise(
            total, noise_multiplier=noise_multiplier, sensitivity=sensitivity, source=source
        )
        return total + factor * (whole - total)

    with patch("server.aggregation.add_noise", weak):
        yield


@contextmanager
def no_clipping() -> Iterator[None]:
    """Nodes add raw updates up and claim that they were clipped."""

    def raw(updates: Tensor, clipping_norm: float) -> tuple[Tensor, Tensor]:
        _, norms = clip_and_sum(updates, clipping_norm)
        return updates.double().sum(dim=0), norms

    with patch("client.cohort.clip_and_sum", raw):
        yield


@contextmanager
def repeated_noise() -> Iterator[None]:
    """A source that starts anew for each round's noise (and each cohort)."""

    def stuck(fixed_seed: int, *purpose: int) -> BitSource:
        return FixedBits(1)

    with patch("server.private_step.private_source", stuck):
        yield


@contextmanager
def another_rate(factor: float) -> Iterator[None]:
    """Cohorts drawn with another probability than the one that is accounted for."""

    def drawn(roster: Roster, sampling_rate: float, source: BitSource) -> Cohort:
        return draw_cohort(roster, min(1.0, factor * sampling_rate), source)

    with patch("server.private_step.draw_cohort", drawn):
        yield


FAULTS: dict[str, Fault] = {
    "none": nullcontext,
    "no noise": lambda: weaker_noise(0.0),
    "a tenth of the noise": lambda: weaker_noise(0.1),
    "half the noise": lambda: weaker_noise(0.5),
    "clipping off": no_clipping,
    "noise repeated": repeated_noise,
    "drawn half too often": lambda: another_rate(1.5),
}


def count_alarms(schedule: Schedule, fault: Fault, runs: int, plan: AuditPlan) -> Counter[str]:
    """In how many of ``runs`` audits each kind raised an alarm, and any of them ("any")."""
    found: Counter[str] = Counter()
    for _ in range(runs):
        with fault():  # type: ignore[attr-defined]
            findings = list(run_audits(schedule, plan, source=np.random.default_rng()))
        alarms = {f.kind for f in findings if f.verdict == "alarm"}
        found.update(alarms)
        found["any"] += bool(alarms)
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--correct", type=int, default=100, help="audits without a fault")
    parser.add_argument("--broken", type=int, default=20, help="audits of each fault")
    parser.add_argument("--setting", choices=SETTINGS, default="q=1 z=4 T=4")
    parser.add_argument("--canaries", type=int, default=1000)
    parser.add_argument("--dims", type=int, default=20_000)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    rate, noise, rounds = SETTINGS[chosen.setting]
    critic = {"sampling_rate": rate, "noise_multiplier": noise, "rounds": rounds}
    settings = {f"tasks.critic.{name}": value for name, value in critic.items()}
    schedule = Schedule.of(Config().updated(settings))
    plan = AuditPlan(canaries=chosen.canaries, dims=chosen.dims)
    title = (
        f"{chosen.setting}: ε = {schedule.stated.epsilon:.3g} at δ = {schedule.stated.delta:g}, "
        f"{chosen.canaries} canaries in {chosen.dims} dimensions"
    )
    table = Table("fault", "audits", "alarm", *COLUMNS, "s an audit", title=title)
    for name, fault in FAULTS.items():
        if rate == 1 and name.startswith("drawn"):
            continue  # everybody takes part as it is
        runs = chosen.correct if name == "none" else chosen.broken
        started = time.perf_counter()
        found = count_alarms(schedule, fault, runs, plan)
        each = (time.perf_counter() - started) / max(1, runs)
        cells = [str(found[kind]) for kind in ("any", *COLUMNS)]
        table.add_row(name, str(runs), *cells, f"{each:.1f}")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
