"""Measure, print the table, keep figures and a plot: ``python -m benchmarks.peers``."""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedlens.foundation.offline import stay_offline

stay_offline()

import torch  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks import records  # noqa: E402
from benchmarks.peers import apple  # noqa: E402
from benchmarks.peers.curves import curves, plot_curves  # noqa: E402
from benchmarks.peers.flower import flower_round, over_flower  # noqa: E402
from benchmarks.peers.memory import peak_megabytes  # noqa: E402
from benchmarks.peers.ours import ENGINES, our_round  # noqa: E402
from benchmarks.peers.turns import Round, TurnCosts, children_megabytes, ratios, take_turns  # noqa: E402
from benchmarks.peers.work import BATCH, SIZES, STEPS  # noqa: E402

FLOWER, PFL = "Flower, an app a user", "pfl"
NOT_MEASURED = "not measured"


def main() -> None:
    """Measure and print."""
    given = _arguments()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    console = Console()
    found: dict[str, Any] = {"machine": machine(), "steps": {}, "records": {}}

    progress = Console(stderr=True)
    tell = progress.print

    def measure(grid: Any) -> None:
        for name in SIZES:
            ways = ways_of(grid, name, given.cohort)
            costs = take_turns(ways, frozenset({FLOWER}), given.cohort, given.turns, tell)
            found["steps"][name] = costs
        found["flower_megabytes"] = children_megabytes()
        if not given.quick:
            found["curves"] = curves(grid, given.cohort, tell)

    over_flower(2 * given.cohort, measure)
    found["megabytes"] = memory(given.cohort, found.pop("flower_megabytes"), tell)
    for name, costs in found["steps"].items():
        console.print(steps_table(name, costs, found["megabytes"]))
    for width, hidden in records.WIDTHS[: 1 if given.quick else None]:
        tell(f"record mode, width {width}")
        size, spent, _ = records.measured(width, hidden, given.turns + 2)
        found["records"][size] = spent
        console.print(records_table(size, spent))
    console.print(f"{machine()}. On a GPU: {gpu_words()}.")
    keep(found, given.out)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer users and turns, no curves")
    parser.add_argument("--cohort", type=int, help="users of a round")
    parser.add_argument("--turns", type=int, help="times that each way is measured")
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder to write to")
    given = parser.parse_args()
    given.cohort = given.cohort or (16 if given.quick else 64)
    given.turns = given.turns or (2 if given.quick else 4)
    return given


def ways_of(grid: Any, name: str, cohort: int) -> dict[str, Round]:
    """All ways to do a cohort's local steps."""
    ways = {engine: our_round(engine, SIZES[name], cohort) for engine in ENGINES}
    if apple.is_there():
        ways[PFL] = apple.apple_round(SIZES[name], cohort)
    return {**ways, FLOWER: flower_round(grid, name, cohort)}


def memory(cohort: int, flower: float, tell: Callable[[str], None]) -> dict[str, float]:
    """Megabytes that one round of the large critic takes; for Flower those of Ray's processes."""
    found = {FLOWER: flower}
    for name in (*ENGINES, PFL):
        if name != PFL or apple.is_there():
            tell(f"memory: {name}")
            found[name] = peak_megabytes(name, cohort)
    return found


def steps_table(name: str, costs: dict[str, TurnCosts], megabytes: dict[str, float]) -> Table:
    """Local steps of users under one critic."""
    size = SIZES[name].parameters
    table = Table(
        *("way", "CPU-ms a user", "users a second", "times pfl", "times Flower", "MB"),
        title=f"{STEPS} local steps of {2 * BATCH} images, {size:,} parameters",
    )
    for way, cost in costs.items():
        times = [of(costs, way, peer) for peer in (PFL, FLOWER)]
        middle = f"{1000 / cost.users_a_second:.1f} ({min(cost.cpu):.1f} to {max(cost.cpu):.1f})"
        table.add_row(
            way, middle, f"{cost.users_a_second:.0f}", *times, f"{megabytes.get(way, 0):.0f}"
        )
    if PFL not in costs:
        table.add_row(PFL, NOT_MEASURED, "", "", "", "")
    return table


def of(costs: dict[str, TurnCosts], way: str, peer: str) -> str:
    """How many times as fast as a peer a way is: the median turn, least and most."""
    if peer not in costs or way == peer:
        return ""
    low, middle, high = ratios(costs, peer, way)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def records_table(size: int, spent: dict[str, list[float]]) -> Table:
    """A step of record mode beside Opacus."""
    table = Table(
        "way", "CPU-ms a step", "times ours", title=f"{records.BATCH} records, {size:,} parameters"
    )
    costs = {name: TurnCosts(cpu=times) for name, times in spent.items()}
    for name, cost in costs.items():
        low, middle, high = ratios(costs, name, "fedlens")
        times = "" if name == "fedlens" else f"{middle:.2f} ({low:.2f} to {high:.2f})"
        table.add_row(name, f"{1000 / cost.users_a_second:.0f}", times)
    return table


def machine() -> str:
    """The processor, PyTorch, and how it multiplies."""
    model = platform.processor() or platform.machine()
    known = subprocess.run(["lscpu"], capture_output=True, text=True, check=False)  # noqa: S607
    for line in known.stdout.splitlines():
        if line.startswith("Model name:"):
            model = line.partition(":")[2].strip()
    low = [name for name, there in torch.cpu.get_capabilities().items() if there and "bf16" in name]
    return f"{model}, one thread, PyTorch {torch.__version__}, {' '.join(low) or 'no bfloat16'}"


def gpu_words() -> str:
    """The GPU that everything ran on, or that there was none."""
    if torch.cuda.is_available():
        return f"all rows but record mode ran on {torch.cuda.get_device_name()}"
    return NOT_MEASURED


def keep(found: dict[str, Any], out: Path) -> None:
    """Write figures and plot."""
    out.mkdir(parents=True, exist_ok=True)
    if "curves" in found:
        plot_curves(found["curves"], out / "users-a-second.png")
    steps = {
        name: {k: asdict(v) for k, v in costs.items()} for name, costs in found["steps"].items()
    }
    text = json.dumps({**found, "steps": steps}, indent=1)
    (out / "peers.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
