"""Small runs of each kind of task: every message both ways, and the ledgers that they leave.

A run ends as soon as its last round is in the ledger: what is learned of it is no part of a
message. Values of arrays and floats are not looked at, for processors round differently.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.common.serde import recorddict_to_proto

from fedlens.accountant.ledger.population import Population, PopulationTerms
from fedlens.client.private_arrays import read_private
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.federation.apps import client_app
from fedlens.simulations.transports.inprocess import InProcessGrid

POPULATION = "frozen"
SMALL = {
    "data.users": 40,
    "data.nodes": 2,
    "data.samples_per_user": 5,
    "privacy.delta": 1e-3,
    "privacy.fixed_seed": 3,
    "generator.batch": 20,
    "generator.width": 8,
    "release.samples": 10,
    "release.strip": 1,
}
RECORD = {"privacy.unit": "record", "privacy.delta": 1e-5, "data.records_per_node": 100}
MASKED = {
    "data.nodes": 3,
    "aggregation.secure": True,
    "aggregation.tolerated_dropouts": 1,
    "aggregation.colluding": 0,
}
GUIDED = {
    "tasks.annotator.components": 6,
    "tasks.annotator.features": "orientations",
    "tasks.annotator.guided_steps": 1,
}
SUMS = {
    "privatizer.kind": "trained",
    "privatizer.trained_by": "sums",
    "privatizer.highest_frequency": 3,
    "privatizer.width": 4,
}
TRAINED = {
    "privatizer.kind": "trained",
    "privatizer.trained_by": "rounds",
    "privatizer.network": "dense",
    "tasks.privatizer.lead": 1,
    "tasks.privatizer.rounds": 2,
}
RUNS: dict[str, tuple[tuple[str, ...], dict[str, object]]] = {
    "frozen, focused, annotator": (
        ("warmup=frozen", "critic=focused", "annotator"),
        {"tasks.critic.components": 6, **GUIDED},
    ),
    "wgan, two rounds, half of the users": (
        ("critic=wgan",),
        {"tasks.critic.rounds": 2, "tasks.critic.sampling_rate": 0.5},
    ),
    "records, frozen": (("critic=frozen",), {**RECORD, "tasks.critic.sampling_rate": 0.5}),
    "records, wgan": (
        ("critic=wgan",),
        {**RECORD, "tasks.critic.sampling_rate": 0.5, "tasks.critic.local_steps": 2},
    ),
    "probe": (("probe",), {"tasks.probe.probe": "label_share:3"}),
    "card": (("card",), {}),
    "frequencies, moments": (
        ("frequencies", "moments", "critic=frozen"),
        {**SUMS, "tasks.moments.rounds": 2},
    ),
    "privatizer, its filter": (("privatizer", "critic=frozen"), TRAINED),
    "masked, noise of the server": (("critic=frozen",), MASKED),
    "masked, noise of the nodes": (
        ("critic=frozen",),
        {**MASKED, "aggregation.noise": "distributed"},
    ),
    "a slice of a population": (
        ("critic=frozen",),
        {
            "privacy.population": POPULATION,
            "privacy.fixed_seed": -1,
            "data.users": 30,
            "data.slices": "ward=a:30,b:10",
            "data.slice": "ward=a",
        },
    ),
}
"""Tasks, each ``NAME=KIND`` where they differ, and the settings of each run."""
UNTIL = {"frequencies, moments": 2}
"""Rounds after which a run ends, where not after its last: the fit of a filter takes long."""


class Enough(BaseException):
    """The run has asked all that it asks."""


def config_of(name: str) -> Config:
    """The configuration of one of `RUNS`."""
    tasks, settings = RUNS[name]
    named = [(task.partition("=")[0], task.rpartition("=")[2]) for task in tasks]
    whole: dict[str, object] = {"schedule": " ".join(task for task, _ in named)}
    for task, kind in named:
        whole |= {f"tasks.{task}.kind": kind, f"tasks.{task}.rounds": 1}
        if kind in ("frozen", "focused", "wgan"):
            whole[f"tasks.{task}.generator_steps"] = 1
    return Config().updated({**SMALL, **whole, **settings})


def carried_out(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """What the messages of a run are, and the lines of its ledger and its population's.

    ``folder / "home"`` must be the home of fedlens.
    """
    config = config_of(name)
    population = folder / "home" / "populations" / POPULATION
    if config.privacy.population:
        terms = PopulationTerms(POPULATION, "user", 1e-3, 1000.0, users=40, slices="ward")
        Population.create(population, terms)
    rounds = UNTIL.get(name, sum(task.rounds for task in config.tasks.values()))
    directory = RunDirectory.create(folder / "run", config)
    ledger = directory.ledger

    def stop(_: object = None) -> None:
        if ledger.exists() and len(ledger.read_text().splitlines()) > rounds:
            raise Enough

    seen = Exchanges(stop)
    with contextlib.suppress(Enough):
        grid = InProcessGrid(seen, config.data.nodes, config.flat())
        train(config, directory, grid, observer=stop)
    ledgers = {"run": ledger, "population": population / "ledger.jsonl"}
    lines = {k: path.read_text().splitlines() for k, path in ledgers.items() if path.exists()}
    return seen.found(), lines


class Exchanges:
    """A ClientApp that writes down of what form each message and its reply are."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop = stop
        self.known: dict[str, dict[str, Any]] = {}
        self.order: list[str] = []

    def __call__(self, message: Message, context: Context) -> Message:
        self.stop()
        asked = form_of(message.content)
        reply = client_app(message, context)
        exchange = {"request": asked, "reply": form_of(reply.content)}
        self.order.append(self._named(message.metadata.message_type, exchange))
        return reply

    def found(self) -> dict[str, Any]:
        """The forms by name, and the order in which they were exchanged."""
        order: list[list[Any]] = []
        for name in self.order:
            if order and order[-1][0] == name:
                order[-1][1] += 1
            else:
                order.append([name, 1])
        return {"order": [f"{name} x{times}" for name, times in order], **self.known}

    def _named(self, kind: str, exchange: dict[str, Any]) -> str:
        for name, known in self.known.items():
            if name.partition(" ")[0] == kind and known == exchange:
                return name
        alike = sum(name.partition(" ")[0] == kind for name in self.known)
        name = f"{kind} {alike + 1}"
        self.known[name] = exchange
        return name


def form_of(content: RecordDict) -> dict[str, Any]:
    """Records with their keys and the types, dtypes and shapes of values, and bytes in all."""
    records = {
        name: _arrays(record) if isinstance(record, ArrayRecord) else _fields(record)
        for name, record in content.items()
    }
    return {**records, "bytes": len(recorddict_to_proto(content).SerializeToString())}


def _fields(record: Mapping[str, Any]) -> dict[str, str]:
    return {key: _type(value) for key, value in record.items()}


def _type(value: Any) -> str:
    if isinstance(value, bytes):
        return f"bytes {len(value)}"
    if value == []:
        return "list of none"
    if isinstance(value, list):
        kinds = Counter(_type(item) for item in value)
        return "list of " + ", ".join(f"{times} {kind}" for kind, times in sorted(kinds.items()))
    return type(value).__name__


def _arrays(record: ArrayRecord) -> dict[str, str]:
    return {name: _array(array) for name, array in record.items()}


def _array(array: Any) -> str:
    form = f"{array.dtype} {list(array.shape)}"
    try:
        held = read_private(array)
    except Exception:  # an array as it is
        return form
    return f"{form} holds {held.dtype} {list(held.shape)}"


# What may differ between two runs, or two processors, of a ledger's line

HEX = re.compile(r"[0-9a-f]{64}")
NORMALISED = {
    "at": (r"\d{4}-\d\d-\d\d", "DAY"),
    "run_id": (r"[0-9a-f]{12}", "RUN"),
    "run": (r"[0-9a-f]{12}", "RUN"),
    "population": (HEX.pattern, "HASH"),
    "id": (r"[0-9a-f]{32}", "RANDOM"),
    "evidence_digest": (HEX.pattern, "SALTED"),
    "previous": (HEX.pattern, "HASH"),
    "source": (HEX.pattern, "HASH"),
    "sha256": (HEX.pattern, "HASH"),
}
"""What a line has that no second run repeats, by key. The day is today's; names of runs and of
populations are drawn; the commitment to noised norms is salted, and what it commits to is computed
from images; the hashes chain over these. All else is exact: the order of keys, blanks, how numbers
are written, the settings' digest. The noise that a line names has six digits, of a square root."""


def normalised(line: str) -> str:
    """A line with `NORMALISED` values replaced, byte for byte as it was but for them."""
    for key, (pattern, word) in NORMALISED.items():
        line = re.sub(f'"{key}":"{pattern}"', f'"{key}":"{word}"', line)
    json.loads(line)
    return line
