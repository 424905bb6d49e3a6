"""Pieces of a seed's trial, kept as they come: a study that is killed loses the one at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.foundation.files import write_durably
from fedlens.foundation.json_values import json_value
from fedlens.foundation.tables import Row
from fedlens_research.framework.store import TrialStore

if TYPE_CHECKING:  # what a study is called is told without a training framework
    from torch import Tensor


@dataclass(frozen=True)
class Piece:
    """Rows that were measured together, and what is drawn of them."""

    rows: list[Row]
    shown: Mapping[str, Tensor] = field(default_factory=dict)  # by name, for pictures


@dataclass(frozen=True)
class PieceStore:
    """A folder of pieces of one trial, each found by the trial's plan and its own key."""

    folder: Path
    plan: Mapping[str, Any]

    def piece(self, key: Mapping[str, Any], make: Callable[[], Piece]) -> Piece:
        """The piece that is kept under ``key``, or the one made now and kept.

        ``key`` is JSON, and with the plan says all that the piece depends on.
        """
        from safetensors.torch import save

        plan = {**self.plan, "piece": dict(key)}
        store = TrialStore(self.folder)
        kept = store.find(plan)
        drawn = store.path(plan).with_suffix(".safetensors")
        shown = None if kept is None else _shown(drawn)
        if kept is not None and shown is not None:
            return Piece(kept["rows"], shown)
        made = make()
        found = Piece([plain(row) for row in made.rows], made.shown)
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {name: tensor.contiguous() for name, tensor in found.shown.items()}
        write_durably(drawn, save(tensors))  # first: with its rows the piece counts as whole
        store.keep(plan, {"rows": found.rows})
        return found


def plain(row: Row) -> Row:
    """JSON values: numbers of other libraries as Python's, what is not finite as null."""
    values: dict[str, Any] = dict(row)
    values = {k: v.item() if hasattr(v, "item") else v for k, v in values.items()}
    found: Row = json_value(values)
    return found


def _shown(path: Path) -> dict[str, Tensor] | None:
    """Tensors of a file, or None where there is no whole one."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError):
        return None
    return found
