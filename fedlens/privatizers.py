"""Filters that devices run before data leaves them: fit, measure, load, export.

Fitting and measuring use raw records without a budget and are simulations; a federation that fits
its filter under differential privacy is a run (`fedlens.simulate` with a ``privatizer`` section),
whose filter `load` takes as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fedlens.attacking import attack
from foundation.errors import WrongUse
from privatizers.classifiers import choices_of
from privatizers.export import Exported, Kind, example_inputs, export_filter, latency_ms, release
from privatizers.export import load_filter as load_exported
from privatizers.fitting import FitConfig, FittedFilter
from privatizers.fitting import fit_filter as fit

if TYPE_CHECKING:
    from studies.tradeoff.figures import Curve

__all__ = [
    "SUFFIXES",
    "Export",
    "Filter",
    "FitConfig",
    "FittedFilter",
    "attack",
    "curve",
    "export",
    "fit",
    "load",
]

SUFFIXES: Mapping[Kind, str] = {"torch": ".pt2", "onnx": ".onnx"}
"""Kinds of files that `export` writes, and how their names end."""


@dataclass(frozen=True)
class Filter:
    """A trained filter.

    Attributes:
        network: in evaluation mode; takes records, noise and, where it has any, opt-in bits.
        shape: of one record.
    """

    network: nn.Module
    shape: tuple[int, ...]

    @property
    def choices(self) -> int:
        """How many opt-in bits it takes."""
        return choices_of(self.network)

    def release(
        self, records: Tensor, source: torch.Generator, choice: Tensor | None = None
    ) -> Tensor:
        """Filtered records, each with fresh noise.

        Args:
            records: float32 [n, ...], images in [-1, 1].
            source: of the noise; seed it from the system where anybody is to be protected.
            choice: float32 [n, choices], 1 where the record's owner wants the attribute hidden.
        """
        return release(self.network, records, source, choice)


@dataclass(frozen=True)
class Export:
    """A filter as a file that was compared with the filter itself.

    Attributes:
        file: what was written, and how far it is off at most.
        choices: opt-in bits that it takes.
        latency_ms: median time of one record on one CPU thread.
    """

    file: Exported
    choices: int
    latency_ms: float

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "path": str(self.file.path),
            "kind": self.file.kind,
            "bytes": self.file.size,
            "choices": self.choices,
            "difference": self.file.difference,
            "latency_ms_p50": self.latency_ms,
        }


def load(path: Path | str) -> Filter:
    """The filter that a curve kept (a file of its ``filters/``) or a run trained (its directory).

    Raises:
        FedlensError: there is none.
        OSError: the file cannot be read.
    """
    place = Path(path)
    if place.is_dir():
        from simulations.reading import kept_run_filter

        return Filter(*kept_run_filter(place))
    from studies.tradeoff.filter_files import load_filter

    return Filter(*load_filter(place))


def export(path: Path | str, *, kind: Kind = "torch", out: Path | str | None = None) -> Export:
    """Write a filter as a file that devices run, its noise an input.

    A file that does not do what the filter does is refused and leaves nothing behind.

    Args:
        path: what `load` takes.
        kind: ``torch`` (torch.export) or ``onnx`` (needs ``fedlens[export]``).
        out: the file; by default beside or in ``path``, with the kind's suffix.

    Raises:
        WrongUse: there is no such kind.
        FedlensError: the filter cannot be loaded or exported.
    """
    if kind not in SUFFIXES:
        raise WrongUse(f"kind {kind!r}: choose one of {', '.join(SUFFIXES)}")
    place, loaded = Path(path), load(path)
    beside = place / "filter" if place.is_dir() else place
    target = beside.with_suffix(SUFFIXES[kind]) if out is None else Path(out)
    record = torch.zeros(loaded.shape)
    file = export_filter(loaded.network, record, target, kind)
    inputs = example_inputs(loaded.network, record)
    return Export(file, loaded.choices, latency_ms(load_exported(target, kind), inputs))


def curve(
    method: str,
    data: str,
    out: Path | str,
    *,
    seeds: Sequence[int] = (0,),
    points: Sequence[str] = (),
    attackers: Sequence[str] = (),
    quick: bool = False,
    data_dir: Path | str | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Curve:
    """Train a method at several points, attack every filter afresh on records it never saw.

    Goes on where it was stopped. Figures, plots and filters are in ``out``.

    Args:
        method: ``information``, ``cloak`` or ``alpha``.
        data: name of a source of records with a utility label and a sensitive attribute.
        out: folder of everything that is made.
        seeds: of data, training and attackers.
        points: places on the curve as the command writes them; the method's own by default.
        attackers: by name; all fresh ones by default.
        quick: fewer steps, smaller networks, fewer records.
        data_dir: folder of data files.
        tell: is told how far it is, a line at a time.

    Raises:
        FedlensError: method, point, attacker or data cannot be used.
    """
    from studies.tradeoff.report import CurvePlan, run_curve

    plan = CurvePlan(
        method=method,
        data=data,
        out=Path(out),
        seeds=tuple(seeds),
        points=tuple(points),
        attackers=tuple(attackers),
        quick=quick,
        data_dir=None if data_dir is None else Path(data_dir),
    )
    return run_curve(plan, tell)
