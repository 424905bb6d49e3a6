"""The accountants beside their peers, all in one run: ``make bench-accountant``.

ε and seconds of one query from nothing (events composed, ε asked for); time per round, per query
and per ledger line; the Bayesian accountant against a direct implementation. Wall-clock, one
thread, on this machine: compare within a table, not between machines.
"""

from __future__ import annotations

import importlib
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
from rich.console import Console
from rich.table import Table

from fedlens.accountant.bayesian.accountant import BayesianAccountant
from fedlens.accountant.bayesian.norms import NormHistogram
from fedlens.accountant.dp.calibration import noise_for
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Sampler, SubsampledGaussian
from fedlens.accountant.ledger.ledger import Ledger

SLOW_PEER_ROUNDS = 20_000  # More rounds than this cost one of the peers minutes or all memory
LINES = 100_000


@dataclass(frozen=True)
class AccountedSchedule:
    """A schedule of like rounds, and δ."""

    rate: float
    noise: float
    rounds: int
    delta: float

    def __str__(self) -> str:
        return f"q={self.rate:g} z={self.noise:g} T={self.rounds:g} δ={self.delta:g}"


SETTINGS = (
    AccountedSchedule(0.01, 1.0, 1000, 1e-5),
    AccountedSchedule(0.00426667, 1.1, 14062, 1e-5),
    AccountedSchedule(0.01, 4.0, 10_000, 1e-5),
    AccountedSchedule(0.1, 2.0, 1000, 1e-12),
    AccountedSchedule(0.0005, 1.0, 1000, 1e-7),
    AccountedSchedule(0.05, 1.0, 1, 1e-5),
    AccountedSchedule(1.0, 10.0, 100, 1e-12),
    AccountedSchedule(0.0001, 1.0, 1_000_000, 1e-8),
    AccountedSchedule(0.01, 100.0, 1_000_000, 1e-12),
)

WARM_UP = AccountedSchedule(0.5, 5.0, 2, 1e-3)

Query = Callable[[AccountedSchedule], float]


def _event(setting: AccountedSchedule) -> SubsampledGaussian:
    sampler: Sampler = "none" if setting.rate == 1 else "poisson"
    return SubsampledGaussian("user", sampler, "add-remove", setting.rate, setting.noise, 1.0)


def _ours(setting: AccountedSchedule) -> DifferentialAccountant:
    account = DifferentialAccountant()
    account.compose(_event(setting), setting.rounds)
    return account


def _opacus(name: str) -> Query:
    """An accountant of Opacus with its own orders, or (PRV) the upper end of its bracket."""

    def query(setting: AccountedSchedule) -> float:
        import opacus.accountants

        account = getattr(opacus.accountants, name)()
        account.history = [(setting.noise, setting.rate, setting.rounds)]
        return float(account.get_epsilon(setting.delta))

    return query


def _dp_accounting(module: str, name: str) -> Query:
    """An accountant of dp-accounting with its own orders or grid (1e-4)."""

    def query(setting: AccountedSchedule) -> float:
        import dp_accounting as dpa

        account = getattr(importlib.import_module(f"dp_accounting.{module}"), name)()
        gaussian = dpa.GaussianDpEvent(setting.noise)
        event = gaussian if setting.rate == 1 else dpa.PoissonSampledDpEvent(setting.rate, gaussian)
        account.compose(event, setting.rounds)
        return float(account.get_epsilon(setting.delta))

    return query


SLOW = "Opacus PRV"
COLUMNS: dict[str, Query] = {
    "ours, best": lambda setting: _ours(setting).epsilon(setting.delta).epsilon,
    "ours, RDP": lambda setting: _ours(setting).rdp(setting.delta).epsilon,
    "dp-accounting PLD": _dp_accounting("pld", "PLDAccountant"),
    SLOW: _opacus("PRVAccountant"),
    "dp-accounting RDP": _dp_accounting("rdp", "RdpAccountant"),
    "Opacus RDP": _opacus("RDPAccountant"),
}


def accuracy() -> Table:
    """ε and seconds of every accountant at every setting."""
    table = Table("setting", *COLUMNS, title="ε (seconds), from nothing to the answer")
    for query in COLUMNS.values():
        query(WARM_UP)  # load what has to be loaded
    for setting in SETTINGS:
        table.add_row(str(setting), *(_cell(name, setting) for name in COLUMNS))
    return table


def _cell(name: str, setting: AccountedSchedule) -> str:
    if name == SLOW and setting.rounds > SLOW_PEER_ROUNDS:
        return "not run"
    started = time.perf_counter()
    epsilon = COLUMNS[name](setting)
    return f"{epsilon:.6g} ({time.perf_counter() - started:.2f})"


def _milliseconds(work: Callable[[], object], times: int = 5) -> float:
    """Median milliseconds of one call."""
    found = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        found.append(time.perf_counter() - started)
    return 1e3 * float(np.median(found))


def speed() -> Table:
    """Time of what a run asks for, round after round."""
    table = Table("what", "median", "goal", title="One thread")
    event = _event(AccountedSchedule(0.01, 1.0, 1, 1e-5))
    account = DifferentialAccountant()
    account.compose(event, 100)
    account.rdp(1e-5), account.tight(1e-5)

    def one_more() -> None:
        account.compose(event)
        account.epsilon(1e-5)

    million = AccountedSchedule(
        0.011, 97.0, 1_000_000, 1e-12
    )  # one that no other table has asked for
    table.add_row("RDP query again", f"{_milliseconds(lambda: account.rdp(1e-5)):.2f} ms", "10 ms")
    table.add_row("tight query again", f"{_milliseconds(lambda: account.tight(1e-5)):.2f} ms", "")
    table.add_row("one more round and ε", f"{_milliseconds(one_more, 50):.2f} ms", "")
    table.add_row(
        "tight ε at T = 1e6", f"{_milliseconds(lambda: _ours(million).tight(1e-12), 1):.0f} ms",
        "2000 ms",
    )  # fmt: skip
    return table


def noise() -> Table:
    """Noise multiplier for (1, 1e-5) at q = .01 and T = 10,000: less is better."""
    table = Table("accountant", "noise multiplier", "seconds", title="(1, 1e-5), q=.01, T=10,000")
    wanted = {"epsilon": 1.0, "delta": 1e-5, "rounds": 10_000, "sampling_rate": 0.01}
    rows: dict[str, Callable[[], float]] = {
        "ours, best": lambda: noise_for(**wanted),  # type: ignore[arg-type]
        "ours, RDP": lambda: noise_for(**wanted, method="rdp"),  # type: ignore[arg-type]
        "dp-accounting PLD": _peer_noise,
        "Opacus RDP": _opacus_noise,
    }
    for name, work in rows.items():
        started = time.perf_counter()
        found = work()
        table.add_row(name, f"{found:.4f}", f"{time.perf_counter() - started:.2f}")
    return table


def _peer_noise() -> float:
    import dp_accounting as dpa
    from dp_accounting.pld import PLDAccountant

    def event(sigma: float) -> object:
        sampled = dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(sigma))
        return dpa.SelfComposedDpEvent(sampled, 10_000)

    bracket = dpa.ExplicitBracketInterval(1.0, 10.0)
    return float(dpa.calibrate_dp_mechanism(PLDAccountant, event, 1.0, 1e-5, bracket))


def _opacus_noise() -> float:
    from opacus.accountants.utils import get_noise_multiplier

    found = get_noise_multiplier(
        target_epsilon=1.0, target_delta=1e-5, sample_rate=0.01, steps=10_000, accountant="rdp"
    )
    return float(found)


def bayesian(users: int = 64, size: int = 100_000) -> Table:
    """A Bayesian round from raw updates, against computing distances anew for each order."""
    from benchmarks.direct_bayesian import direct_round
    from fedlens.accountant.bayesian.norms import norms_of

    table = Table("orders", "direct", "ours", "ratio", title=f"Bayesian round, {users} x {size:,}")
    source = np.random.default_rng(0)
    updates = source.normal(size=(users, size)).astype(np.float32)
    updates *= source.uniform(0.1, 1.0, (users, 1)) / np.linalg.norm(updates, axis=1)[:, None]
    event = SubsampledGaussian("user", "poisson", "add-remove", 0.01, 1.0, 1.0)
    for orders in (32, 128):
        lambdas = range(1, orders + 1)
        slow = _milliseconds(partial(direct_round, updates, 0.01, 1.0, lambdas), 3)

        def ours(orders: Sequence[int] = lambdas) -> None:
            account = BayesianAccountant(10, 1e-5, lambdas=orders)
            account.compose(event, norms_of(updates))

        quick = _milliseconds(ours)
        table.add_row(str(orders), f"{slow:.0f} ms", f"{quick:.1f} ms", f"{slow / quick:.0f}")
    norms = norms_of(updates)
    for name, given in (("norms", norms), ("histogram", NormHistogram.from_norms(norms, 1.0))):
        account = BayesianAccountant(1000, 1e-5)
        ms = _milliseconds(partial(account.compose, event, given), 50)
        table.add_row(f"given {name}, default orders", "", f"{ms:.2f} ms", "goal: under 5 ms")
    return table


def ledger() -> Table:
    """Appending to a ledger, and opening a long one."""
    table = Table("what", "measured", "goal", title="Ledger")
    event = _event(AccountedSchedule(0.01, 1.0, 1, 1e-5))
    with tempfile.TemporaryDirectory() as folder:
        kept = Ledger.create(Path(folder) / "ledger.jsonl", {"run_id": "benchmark"})
        counter = iter(range(10**9))

        def append() -> None:
            kept.append(event, round=next(counter), purpose="round", evidence_digest=None)

        synced = _milliseconds(append, 200)
        with mock.patch("os.fsync"):
            plain = _milliseconds(append, 2000)
            for _ in range(LINES - len(kept)):
                append()
        opening = _milliseconds(lambda: Ledger.open(kept.path), 3)
    table.add_row("append, all but fsync", f"{plain:.3f} ms", "1 ms")
    table.add_row("append", f"{synced:.3f} ms", "")
    table.add_row(f"open {LINES:,} lines, all checks", f"{opening:.0f} ms", "1000 ms")
    return table


def main() -> None:
    """Print every table."""
    warnings.simplefilter("ignore")  # peers warn of their own internals
    console = Console(width=None if Console().is_terminal else 150)
    for table in (accuracy, noise, speed, bayesian, ledger):
        console.print(table())


if __name__ == "__main__":
    main()
