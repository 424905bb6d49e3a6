"""Commands as people type them, good and wrong: how each ends, and how many lines it says so in."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from fedlens.cli import main

FAST = """
schedule = "critic"
[data]
users = 30
nodes = 2
samples_per_user = 4
[privacy]
delta = 1e-3
[tasks.critic]
kind = "frozen"
rounds = 2
noise_multiplier = 3.0
generator_steps = 1
[generator]
batch = 20
width = 8
[release]
samples = 20
strip = 1
agreement = 0.0
"""
CONTRACT = 'name = "clinics"\nclasses = ["no", "yes"]\n'
SIMULATE = "simulate --config fast.toml --no-student"
SCHEDULE = "--sampling-rate 0.01 --noise-multiplier 1 --rounds 100 --delta 1e-5"
COMMANDS = (
    "",
    "--version",
    "--help",
    "simulate --help",
    "nonsense",
    f"{SIMULATE} --out run",
    f"{SIMULATE} --out run",
    f"{SIMULATE} --out poor --set privacy.epsilon_budget=0.01",
    f"{SIMULATE} --out new --set tasks.critic.sampling_rat=1",
    f"{SIMULATE} --out new --set tasks.critic.noise_multiplier=-1",
    f"{SIMULATE} --out new --set nonsense",
    f"{SIMULATE} --out new --set data.name=nonsense",
    f"{SIMULATE} --out new --set data.name=npz:/nowhere.npz",
    f"{SIMULATE} --out new --fault nonsense:0.3",
    f"{SIMULATE} --out new --transport pigeon",
    "simulate --config nowhere.toml --out new",
    "simulate --preset nonsense --out new",
    "resume run --no-student",
    "resume nowhere",
    "samples run --png sheet.png",
    "samples run --rows nonsense",
    "samples nowhere",
    "student nowhere",
    "dashboard nowhere",
    "diagnose run --reference nonsense",
    "findings run",
    "findings run --finding nonsense",
    "probe run --list",
    "probe run --probe nonsense --epsilon 1 --price",
    "ledger show run",
    "ledger verify run",
    "ledger export run --format json --out export.json",
    "backup run --out run.tar",
    "restore run.tar --out back",
    "TAMPER",
    "ledger verify run",
    "ledger show run",
    f"budget {SCHEDULE}",
    "budget --sampling-rate 2 --noise-multiplier 1 --rounds 100 --delta 1e-5",
    "budget --sampling-rate 0.01",
    "budget bayesian --norms nowhere.json --clipping-norm 1 --bogus",
    "calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01 --rounds 100",
    "calibrate --epsilon 1 --delta 1e-5 --sampling-rate 0.01",
    "calibrate --epsilon -1 --delta 1e-5 --sampling-rate 0.01 --rounds 100",
    "population create clinic --epsilon 0.01 --delta 1e-3 --unit user --users 30",
    "population create clinic --epsilon 0.01 --delta 1e-3 --unit user --users 30",
    "population show clinic",
    "population verify nowhere",
    f"{SIMULATE} --out shared --set privacy.population=clinic",
    "node check nowhere --federation federation.toml",
    "node secret secret.bin",
    "node secret secret.bin",
    "audit nowhere",
    "audit --preset nonsense",
    "deploy status nowhere",
    "accounts list --store nowhere.db",
    "labels export run --project nonsense",
    "db check --store run/store.db",
    "db check --store nowhere.db",
    "backup run --out harmed.tar",
    "backup nowhere --out nowhere.tar",
    "restore nowhere.tar --out other",
    "privatizer attack nowhere.pt2",
    "privatizer apply nowhere.pt2 in.npz out.npz",
    "completion bash",
    "completion nonsense",
)
"""Carried out in this order in one folder. ``TAMPER`` changes a number in the run's ledger."""


def prepare(folder: Path) -> None:
    """Write the files that `COMMANDS` name."""
    (folder / "fast.toml").write_text(FAST)
    (folder / "federation.toml").write_text(CONTRACT)


def outcomes(folder: Path, said: Callable[[], str]) -> dict[str, str]:
    """How each command ends.

    Args:
        folder: where they are carried out, the working folder by now.
        said: gives what was written to standard error since it was called last.
    """
    found: dict[str, str] = {}
    for command in COMMANDS:
        if command == "TAMPER":
            _tamper(folder / "run" / "ledger.jsonl")
            continue
        status = _status(command)
        again = " (again)" * sum(known.removesuffix(" (again)") == command for known in found)
        found[f"{command}{again}"] = f"{status}, {_kind(said())}"
    return found


def _tamper(ledger: Path) -> None:
    text = ledger.read_text()
    ledger.write_text(text.replace('"noise_multiplier":3.0', '"noise_multiplier":9.0', 1))


def _status(command: str) -> int:
    try:
        return main(command.split())
    except SystemExit as stop:  # of the parser
        return int(stop.code or 0)


def _kind(errors: str) -> str:
    """In what form standard error says it."""
    lines = errors.splitlines()
    if not lines:
        return "silent"
    if len(lines) == 1 and lines[0].startswith("fedlens: "):
        return "one line"
    if lines[0].startswith("usage: fedlens") and re.match(r"fedlens[a-z ]*: error: ", lines[-1]):
        return "usage and one line"
    return "Traceback" if "Traceback" in errors else f"{len(lines)} lines: {lines[0][:60]}"
