"""How a run goes, for its operator: a line of the log a round, and ``status.json`` in its folder.

It says rounds, both ε, how the run is computed, and how many nodes were asked and answered. Every
node is asked each round, whichever users were drawn, so none of it tells of a draw; no count of
users or records is in it, and no time.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedlens.accountant.account import Spending
from fedlens.accountant.wording import shown
from fedlens.foundation.json_values import json_value
from fedlens.server.run.directory import RunDirectory

logger = logging.getLogger(__name__)

STATUS_FILE = "status.json"


@dataclass(frozen=True)
class Attendance:
    """Which replies of a round came and counted."""

    asked: int = 0
    answered: int = 0
    refused: tuple[str, ...] = ()
    """Why each reply that was refused was; no reason quotes a value."""

    @property
    def missing(self) -> int:
        """Nodes that did not answer, or said that they failed."""
        return self.asked - self.answered - len(self.refused)


class RunStatusFile:
    """The file and the log of one run."""

    def __init__(self, directory: RunDirectory, rounds: int) -> None:
        self._directory = directory
        self._facts: dict[str, Any] = {
            "status": "running",
            "round": 0,
            "rounds": rounds,
            "output": str(directory.path),
            **_kept(directory),
        }
        self._facts.update(status="running", rounds=rounds, output=str(directory.path))

    def began(
        self, round_number: int, nodes: int, computed_by: Mapping[str, str], generator: str
    ) -> None:
        """The nodes are enrolled, and training begins or goes on.

        Args:
            round_number: rounds behind.
            nodes: how many are enrolled.
            computed_by: the engine of each task that leaves a choice.
            generator: in which precision and by how many threads it is trained.
        """
        for task, engine in computed_by.items():
            logger.info("nodes compute %s's local steps by: %s", task, engine)
        logger.info(
            "%d nodes are enrolled; the generator trains in %s; "
            "round %d of %d comes next; output in %s",
            *(nodes, generator, round_number + 1, self._facts["rounds"], self._directory.path),
        )
        # a run that goes on elsewhere may go on in another way: all of them are told
        before = self._facts.get("computed_by", {}).get("generator", "")
        ways = [way for way in before.split("; ") if way]
        known = {**computed_by, "generator": "; ".join(dict.fromkeys([*ways, generator]))}
        self._write(round=round_number, nodes_asked=nodes, computed_by=known)

    def finished_round(self, number: int, attendance: Attendance, spending: Spending) -> None:
        """A whole round is behind the model."""
        logger.info(
            "round %d of %d: DP ε %s at δ %g, Bayesian DP ε %s at δ %g; %d of %d nodes answered, "
            "%d missing, %d refused%s",
            *(number, self._facts["rounds"], shown(spending.dp_epsilon), spending.delta_dp),
            *(shown(spending.bdp_sound), spending.delta_bdp, attendance.answered),
            *(attendance.asked, attendance.missing, len(attendance.refused)),
            _reasons(attendance.refused),
        )
        self._write(
            round=number,
            nodes_asked=attendance.asked,
            nodes_answered=attendance.answered,
            nodes_missing=attendance.missing,
            refused=dict(Counter(attendance.refused)),
            **_figures(spending),
        )

    def ended(
        self, status: str, reason: str | None = None, spending: Spending | None = None
    ) -> None:
        """The run ended: ``finished``, ``stopped-by-budget``, ``interrupted`` or ``failed``.

        ``spending`` is what it guarantees as it ended, if it spent anything.
        """
        logger.info(
            "the run is %s%s; output in %s",
            *(status, f": {reason}" if reason else "", self._directory.path),
        )
        figures = _figures(spending) if spending is not None and spending.rounds else {}
        self._write(status=status, reason=reason, **figures)

    def _write(self, **facts: Any) -> None:
        self._facts.update(facts)
        content = json.dumps(json_value(self._facts), ensure_ascii=False)
        self._directory.save(STATUS_FILE, (content + "\n").encode(), private=True)


def _kept(directory: RunDirectory) -> dict[str, Any]:
    """What an earlier process of the run wrote; nothing where it cannot be read."""
    try:
        kept = json.loads((directory.path / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


def _figures(spending: Spending) -> dict[str, float | None]:
    return {
        "dp_epsilon": spending.dp_epsilon,
        "delta": spending.delta_dp,
        "bdp_epsilon": spending.bdp_sound,
        "bayesian_delta": spending.delta_bdp,
    }


def _reasons(refused: Sequence[str]) -> str:
    return f" ({'; '.join(sorted(set(refused)))})" if refused else ""
