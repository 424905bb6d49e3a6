"""The two steps of a trial of the table: train, then measure; each in a process of its own."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from fedlens.accountant.wording import shown
from fedlens.data.registry import load
from fedlens.server.config.tree import Config
from fedlens.server.generation.compute import generator_precision
from fedlens_research.framework.store import read_json, write_json
from fedlens_research.framework.worker import peak_mb
from fedlens_research.table1.evaluation import EvaluationBudget
from fedlens_research.table1.faults import write_faulty_copy
from fedlens_research.table1.measuring import Measuring
from fedlens_research.table1.providers import provider
from fedlens_research.table1.trials import MEASURED_FILE, PLAN_FILE, TRAINED_FILE

MEASURING_THREADS = 1


def train(folder: Path, out: Path) -> None:
    """Train the trial's run in ``folder``, or go on with it, and write what it spent."""
    del out
    plan = read_json(folder / PLAN_FILE) or {}
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
        "precision": str(generator_precision(config)).removeprefix("torch."),
        "peak_mb": peak_mb(),
    }
    write_json(folder / TRAINED_FILE, {**trained.to_json(), **spent})


def measure(folder: Path, out: Path) -> None:
    """Measure what was trained in ``folder``; judging networks are kept in ``out``."""
    torch.set_num_threads(MEASURING_THREADS)
    plan, trained = (read_json(folder / name) or {} for name in (PLAN_FILE, TRAINED_FILE))
    config = Config().updated(plan["config"])
    measuring = Measuring(
        provider(plan["provider"]).source(folder / "run", config.release),
        load(plan["data"], config.data.dir or None),
        EvaluationBudget.from_json(plan["effort"]),
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
    known |= {"seed": config.seed, "users": config.data.users, "images": plan["effort"]["images"]}
    write_json(folder / MEASURED_FILE, {**known, "training": trained, **found})


def _caption(name: str, trained: dict[str, Any]) -> str:
    private = trained["epsilon_dp"] is not None
    spent = ""
    if private:
        spent = f"DP ε={shown(trained['epsilon_dp'])} (δ={shown(trained['delta_dp'])})"
        bayesian = trained.get("bdp_corrected")
        bayesian = math.inf if bayesian is None else bayesian
        spent += f" · Bayesian DP ε={shown(bayesian)} (δ={shown(trained['delta_bdp'])}, estimate)"
    return f"SYNTHETIC {'· ' + spent if private else '· NOT PRIVATE'} · {name} · simulation only"


def _reporter(plan: dict[str, Any]) -> Callable[[str], None]:
    def report(text: str) -> None:
        sys.stderr.write(f"  {plan['name']}: {text}\n")
        sys.stderr.flush()

    return report
