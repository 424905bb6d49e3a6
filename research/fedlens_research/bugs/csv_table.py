"""Every rate that was measured, as a table of one row for each trial and share."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from fedlens_research.bugs.measuring import MeasuredBug
from fedlens_research.bugs.results import BugResults
from fedlens_research.bugs.tallies import mean_error

COLUMNS = (
    *("question", "data", "users", "delta", "epsilon", "seed", "reference", "fault", "share"),
    *("draws", "found", "first", "named", "others", "refused", "flagged", "noticed", "covered"),
    *("mean_error", "names", "predicted_share", "visible_share"),
)


def write_csv(path: Path, results: BugResults) -> None:
    """Write the table; an empty cell is what does not apply or was never found.

    Args:
        path: CSV file; it is replaced.
        results: what was measured.
    """
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(COLUMNS)
        rows.writerows(row for one in results.measured for row in _rows(one))


def _rows(one: MeasuredBug) -> Iterator[list[object]]:
    trial = one.trial
    for tally in one.tallies:
        error = mean_error(tally)
        names = " ".join(f"{name}:{count}" for name, count in tally.names.items())
        yield [
            *(trial.question, trial.data, trial.users, f"{trial.delta:g}", trial.epsilon),
            *(trial.seed, trial.reference, trial.fault, tally.share, tally.draws, tally.found),
            *(tally.first, tally.named, tally.others, tally.refused, tally.flagged),
            *(tally.noticed, tally.covered, "" if error is None else f"{error:.4f}", names),
            *("" if share is None else f"{share:.4f}" for share in (one.predicted, one.visible)),
        ]
