"""One step of one cell in a process of its own, so that memory and threads are its alone.

    python -m studies.table1.worker train|measure CELL OUT

Says on standard error how far it is; its last line there is the reason where it failed.
"""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

MEASURING_THREADS = 1
_KIB = 1024


def main(arguments: Sequence[str]) -> int:
    """Carry out a step; returns the exit status."""
    step, folder, out = arguments[0], Path(arguments[1]), Path(arguments[2])
    _stay_offline()
    from studies.table1.cells import read_json

    plan = read_json(folder / "plan.json") or {}
    try:
        (train if step == "train" else measure)(plan, folder, out)
    except Exception as error:
        if type(error).__module__ == "builtins":  # none of ours, so nobody expected it
            traceback.print_exc()
        (folder / "failure.txt").write_text(f"{type(error).__name__}: {error}", encoding="utf-8")
        return 1
    return 0


def _stay_offline() -> None:
    """Keep Flower from calling home; must be set before it is imported."""
    os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
    os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")


def train(plan: dict[str, Any], folder: Path, out: Path) -> None:
    """Train the cell's run, or go on with it, and write ``training.json``."""
    from server.config.tree import Config
    from studies.table1.cells import write_json
    from studies.table1.faults import write_faulty_copy
    from studies.table1.providers import provider

    config = Config().updated(plan["config"])
    if plan["fault"]:
        copy = folder / "faulty.npz"
        if not copy.is_file():
            write_faulty_copy(config, plan["fault"], copy)
        config = config.updated({"data.name": f"npz:{copy.absolute()}"})
    resumed = (folder / "run").exists()
    started = time.perf_counter()
    trained = provider(plan["provider"]).train(config, folder / "run", _reporter(plan))
    spent = {
        "seconds": round(time.perf_counter() - started, 1),
        "resumed": resumed,
        "threads": config.generator.threads,
        "peak_mb": peak_mb(),
    }
    write_json(folder / "training.json", {**trained.to_json(), **spent})


def measure(plan: dict[str, Any], folder: Path, out: Path) -> None:
    """Measure what was trained, and write ``cell.json``."""
    import torch

    from client.datasets.registry import load
    from server.config.tree import Config
    from studies.table1.cells import read_json, write_json
    from studies.table1.effort import Effort
    from studies.table1.measuring import Measuring
    from studies.table1.providers import provider

    torch.set_num_threads(MEASURING_THREADS)
    trained = read_json(folder / "training.json") or {}
    config = Config().updated(plan["config"])
    measuring = Measuring(
        provider(plan["provider"]).source(folder / "run", config.release),
        load(plan["data"], config.data.dir or None),
        Effort.from_json(plan["effort"]),
        config.seed,
        out / "judges",
    )
    found = measuring.all(
        curve=plan["curve"],
        sheet=folder / "contact-sheet.png",
        caption=_caption(plan["name"], trained),
        report=_reporter(plan),
    )
    found |= {"peak_mb": peak_mb(), "real": measuring.real_reference()}
    known = {key: plan[key] for key in ("name", "measures")}
    known |= {"seed": config.seed, "users": config.data.users, "lesson": plan["effort"]["lesson"]}
    write_json(folder / "cell.json", {**known, "training": trained, **found})


def _caption(name: str, trained: dict[str, Any]) -> str:
    private = trained["epsilon_dp"] is not None
    spent = f"DP ε={trained['epsilon_dp']:.3g} (δ={trained['delta_dp']:g})" if private else ""
    return f"SYNTHETIC {'· ' + spent if private else '· NOT PRIVATE'} · {name} · simulation only"


def _reporter(plan: dict[str, Any]) -> Callable[[str], None]:
    def report(text: str) -> None:
        sys.stderr.write(f"  {plan['name']}: {text}\n")
        sys.stderr.flush()

    return report


def peak_mb() -> float:
    """Largest resident memory of this process so far, in MiB.

    The kernel's own mark, where it tells: what getrusage says begins with the size of the process
    that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        marks = [int(line.split()[1]) for line in lines if line.startswith("VmHWM:")]
    except (OSError, ValueError):
        marks = []
    largest = marks[0] if marks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(largest / _KIB, 1)


def _end_with(parent: int) -> None:
    """End this process at once when the study that started it is gone; a run may be killed."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    sys.exit(main(sys.argv[1:]))
