"""What filtered records tell, beside what the server released of the same people."""

from __future__ import annotations

from collections.abc import Sequence

from fedlens.store import RunRecord

BOUNDED = ("code", "spectral")
"""Networks of filters whose code is bounded, so that a capacity is certified."""


def filter_words(runs: Sequence[RunRecord], spent: str) -> list[str]:
    """What a person's records tell in all where a run has a filter whose code is bounded.

    Of those that tell most, if there are several: a person's device may run that one.

    Args:
        runs: of the same people.
        spent: the figure that binds, in words.
    """
    bounds = [_bound(run) for run in runs]
    known = [bound for bound in bounds if bound is not None]
    if not known:
        return []
    nats, records = max(known)
    unlike = f", {records} unlike ones {records * nats:g}" if records > 1 else ""
    return [
        f"{spent} for all that the server released; besides, each record that a "
        f"device releases filtered tells at most {nats:g} nats on average{unlike}. Neither figure "
        "contains the other"
    ]


def _bound(run: RunRecord) -> tuple[float, int] | None:
    """Nats of one filtered record at most, and records of a user as configured; None without."""
    network, nats = (run.config.get(f"privatizer.{name}") for name in ("network", "capacity"))
    if run.config.get("privatizer.kind", "none") == "none" or network not in BOUNDED:
        return None
    if not isinstance(nats, int | float):
        return None
    records = run.config.get("data.records_per_user") or run.config.get("data.samples_per_user")
    return float(nats), records if isinstance(records, int) else 0
