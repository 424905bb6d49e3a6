"""All that an outside auditor needs to check a ledger and recompute its figures without this code.

An export holds every line as it is in the file, so its hashes can be checked byte for byte, and
beside each what it says and what it costs. It holds nothing of the private evidence, so the
Bayesian figures in it can be read but not recomputed.
"""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from fedlens.accountant.events import Event
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population
from fedlens.accountant.ledger.together import LedgersTogether
from fedlens.accountant.statement import Spending, statement
from fedlens.foundation.json_values import json_value

FORMAT = "fedlens-export-1"
_LINE_COLUMNS = (
    "index", "round", "run", "at", "purpose", "evidence_digest", "previous", "source", "sha256",
)  # fmt: skip
_EVENT_COLUMNS = (
    "mechanism", "unit", "sampler", "adjacency", "sampling_rate", "noise_multiplier",
    "clipping_norm", "sensitivity", "count", "released",
)  # fmt: skip
_COST_COLUMNS = ("kind", "sampling_rate", "noise")
COLUMNS = (
    "what", "ledger", *_LINE_COLUMNS, *_EVENT_COLUMNS,
    *(f"priced_{name}" for name in _COST_COLUMNS), "line", "name", "value",
)  # fmt: skip
"""Of the CSV form. ``what`` is header, entry, figure or statement."""


def export_of(
    ledger: Ledger, spending: Spending, users: int, population: Population | None
) -> dict[str, Any]:
    """A run's export, JSON values without infinities (those are null).

    Args:
        ledger: of the run, checked.
        spending: both accountants' figures, fit to be shown.
        users: enrolled users; silos at record level.
        population: whose budget the run spends from, if it does.
    """
    return {
        "format": FORMAT,
        "ledger": _ledger_record(ledger),
        "mechanisms": _mechanisms(_counted(ledger)),
        "figures": _figures(spending),
        "users": users,
        "statement": statement(spending, users),
        "population": None if population is None else _population_record(population),
    }


def as_csv(export: Mapping[str, Any]) -> str:
    """The same as one table: a row for each line, then a row for each figure."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", restval="")
    writer.writeheader()
    population = export["population"]
    writer.writerows(_line_rows("run", export["ledger"]))
    if population is not None:
        writer.writerows(_line_rows("population", population["ledger"]))
        writer.writerows(_figure_rows("population", population["figures"]))
    writer.writerows(_figure_rows("run", export["figures"]))
    said = {"what": "statement", "ledger": "run", "name": "statement", "value": export["statement"]}
    writer.writerow(said)
    return text.getvalue()


def _ledger_record(ledger: Ledger) -> dict[str, Any]:
    with ledger.path.open(encoding="ascii") as file:
        lines = [line for line, _ in zip(file, range(len(ledger) + 1), strict=False)]
    header, *rest = (line.rstrip("\n") for line in lines)
    return {
        "header": {"line": header, "record": json.loads(header)},
        "entries": [
            {"line": line, "record": json.loads(line), "priced_as": asdict(entry.event.mechanism)}
            for line, entry in zip(rest, ledger.entries, strict=True)
        ],
        "head": ledger.head,
    }


def _population_record(population: Population) -> dict[str, Any]:
    spent, terms = population.spent(), population.terms
    return {
        "ledger": _ledger_record(population.ledger),
        "mechanisms": _mechanisms([entry.event for entry in population.ledger.entries]),
        "figures": {
            "epsilon_budget": terms.epsilon_budget,
            "delta_dp": terms.delta,
            "order": terms.order,
            "share_spent": population.share_spent(),
            "dp_epsilon": json_value(spent.epsilon),
            "dp_method": spent.method,
            "dp_order": spent.order,
        },
    }


def _counted(ledger: Ledger) -> list[Event]:
    """All that the run's figures are of: what it builds on, its own entries and the plan's rest."""
    return LedgersTogether([ledger]).events


def _mechanisms(events: Iterable[Event]) -> list[dict[str, Any]]:
    """What was released how often, as the accountants price it; ``count`` counts releases."""
    counts: Counter[Any] = Counter()
    for event in events:
        counts[event.mechanism] += event.count
    return [{**asdict(mechanism), "count": n} for mechanism, n in sorted(counts.items())]


def _figures(spending: Spending) -> dict[str, Any]:
    record = asdict(spending)
    del record["schedule"]
    figures: dict[str, Any] = json_value(record)
    return figures


def _line_rows(which: str, ledger: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    header = ledger["header"]
    digest = header["record"]["sha256"]
    yield {"what": "header", "ledger": which, "sha256": digest, "line": header["line"]}
    for entry in ledger["entries"]:
        record, cost = entry["record"], entry["priced_as"]
        line = {name: record[name] for name in _LINE_COLUMNS if name in record}
        priced = {f"priced_{name}": cost[name] for name in _COST_COLUMNS}
        event = record["event"]
        yield {"what": "entry", "ledger": which, "line": entry["line"], **line, **event, **priced}


def _figure_rows(which: str, figures: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in figures.items():
        nested = isinstance(value, (Mapping, list, tuple))
        shown = json.dumps(value) if nested else "" if value is None else value
        yield {"what": "figure", "ledger": which, "name": name, "value": shown}
