"""Notes of each draw of noise, which can be compared over all processes that a run went through."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from fedlens.accountant.ledger.ledger import Ledger


def note_draws(step: ModuleType, notes: Path, ledger: Path | None = None) -> None:
    """Note each draw before anything is made of it.

    A line holds the round, whether the ledger on the disk had the round's entry, and a digest of
    the noise itself.

    Args:
        step: `fedlens.server.round.step`, whose draws they are.
        notes: where to.
        ledger: the run's; by default that which the process opened last.
    """
    opened = _last_opened() if ledger is None else [ledger]
    real = step.noised_mean

    def noted(total: Any, **kwargs: Any) -> Any:
        entries = Ledger.read(opened[-1]).entries
        release = real(total, **kwargs)
        noise = release * kwargs["denominator"] - total.values
        digest = hashlib.sha256(noise.tobytes()).hexdigest()
        line = {"round": entries[-1].round if entries else 0, "noise": digest}
        append_line(notes, {**line, "entries": len(entries)})
        return release

    setattr(step, "noised_mean", noted)  # noqa: B010


def _last_opened() -> list[Path]:
    """Paths of the ledgers that this process creates or opens from now on, the last one last."""
    opened: list[Path] = []
    real = Ledger.__init__

    def noted(self: Ledger, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        opened.append(self.path)

    setattr(Ledger, "__init__", noted)  # noqa: B010
    return opened


def append_line(path: Path, record: Mapping[str, Any]) -> None:
    """Add a line of JSON to a file of notes."""
    with path.open("ab") as file:
        file.write(json.dumps(record).encode() + b"\n")
