"""Who trains a row: the federation as it is, or another mechanism to compare it with.

A provider is a module with the functions of `RunProvider`; a row names it. Most rows are trained by
`fedlens_research.table1.federated`.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from fedlens.server.config.sections import ReleaseConfig
from fedlens.server.config.tree import Config
from fedlens.simulations.students.distillation import Source
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.trials import Report


@dataclass(frozen=True)
class TrainedSpending:
    """What a training spent. Infinite ε: no guarantee."""

    epsilon_dp: float  # DP ε at ``delta_dp``
    delta_dp: float
    epsilon_dp_at_bdp_delta: float
    bdp_as_published: float
    bdp_corrected: float
    bdp_sound: float
    delta_bdp: float
    rounds: int  # Releases that were booked
    statement: str  # The guarantee in words

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; None for an infinite ε."""
        return {k: None if v == math.inf else v for k, v in asdict(self).items()}


class RunProvider(Protocol):
    """The functions of a provider's module."""

    def train(self, config: Config, folder: Path, report: Report) -> TrainedSpending:
        """Train what ``config`` says in ``folder``, or go on with what is there."""
        ...

    def source(self, folder: Path, release: ReleaseConfig) -> Source:
        """What was trained in ``folder``; with ``label`` too where there is an annotator.

        Where there is an annotator, the filter of ``release`` applies, whatever the run's own: it
        is post-processing.
        """
        ...


def provider(module: str) -> RunProvider:
    """The provider of this module's name.

    Raises:
        StudyError: this version has no such module.
    """
    try:
        return cast(RunProvider, importlib.import_module(module))
    except ModuleNotFoundError:
        raise StudyError(f"this version has no {module}, which trains the row") from None
