"""How a run goes, for its operator: a line of the log a round, ``status.json``, and a display.

The file says rounds, both ε, how the run is computed, and how many nodes were asked and answered.
Every node is asked each round, whichever users were drawn, so none of it tells of a draw; no count
of users or records is in it, and no time.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from fedlens.accountant.account import Spending
from fedlens.accountant.wording import shown
from fedlens.foundation.json_values import json_value
from fedlens.server.config.schedule import expected_work, total_rounds
from fedlens.server.config.tree import Config
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.observer import FinishedRound, RunObserver
from fedlens.server.round.sealed import Attendance
from fedlens.server.run.directory import RunDirectory
from fedlens.store import RunStatus

logger = logging.getLogger(__name__)

STATUS_FILE = "status.json"
WAITING = "waiting"


class RunStatusFile(RunObserver):
    """The file and the log of one run."""

    def __init__(
        self,
        directory: RunDirectory,
        rounds: int,
        nodes: int = 0,
        computed_by: Mapping[str, str] | None = None,
        generator: str = "",
    ) -> None:
        """Take up what an earlier process of the run wrote.

        Args:
            directory: the run's.
            rounds: how many are planned.
            nodes: how many are enrolled.
            computed_by: the engine of each task that leaves a choice.
            generator: in which precision and by how many threads it is trained.
        """
        self._directory, self._nodes = directory, nodes
        self._computed_by, self._generator = dict(computed_by or {}), generator
        self._facts: dict[str, Any] = {
            "status": "running",
            "round": 0,
            "rounds": rounds,
            "output": str(directory.path),
            **_load(directory),
        }
        self._facts.update(status="running", reason=None, rounds=rounds, output=str(directory.path))

    def begin(self, rounds: Sequence[FinishedRound]) -> None:
        """The nodes are enrolled, and training begins or goes on."""
        for task, engine in self._computed_by.items():
            logger.info("nodes compute %s's local steps by: %s", task, engine)
        logger.info(
            "%d nodes are enrolled; the generator trains in %s; "
            "round %d of %d comes next; output in %s",
            *(
                self._nodes,
                self._generator,
                len(rounds) + 1,
                self._facts["rounds"],
                self._directory.path,
            ),
        )
        # a run that goes on elsewhere may go on in another way: all of them are told
        before = self._facts.get("computed_by", {}).get("generator", "")
        ways = [way for way in before.split("; ") if way]
        ways = list(dict.fromkeys([*ways, self._generator]))
        known = {**self._computed_by, "generator": "; ".join(ways)}
        self._write(round=len(rounds), nodes_asked=self._nodes, computed_by=known)

    def wait(self, lacking: str | None) -> None:
        """The next round waits for nodes, and what it lacks; None: it waits no more."""
        self._write(status="running" if lacking is None else WAITING, reason=lacking)

    def finish_round(
        self, round_: FinishedRound, attendance: Attendance, spending: Spending
    ) -> None:
        """A whole round is behind the model."""
        logger.info(
            "round %d of %d: DP ε %s at δ %g, Bayesian DP ε %s at δ %g; %d of %d nodes answered, "
            "%d missing, %d refused%s",
            *(round_.number, self._facts["rounds"], shown(spending.dp_epsilon), spending.delta_dp),
            *(shown(spending.bdp_sound), spending.delta_bdp, attendance.answered),
            *(attendance.asked, attendance.missing, len(attendance.refused)),
            _reasons(attendance.refused),
        )
        self._write(
            round=round_.number,
            nodes_asked=attendance.asked,
            nodes_answered=attendance.answered,
            nodes_missing=attendance.missing,
            refused=dict(Counter(attendance.refused)),
            **_figures(spending),
        )

    def end(self, status: RunStatus, reason: str | None, spending: Spending | None = None) -> None:
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


def _load(directory: RunDirectory) -> dict[str, Any]:
    """What an earlier process of the run wrote; nothing where it cannot be read."""
    try:
        found = json.loads((directory.path / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _figures(spending: Spending) -> dict[str, float | None]:
    return {
        "dp_epsilon": spending.dp_epsilon,
        "delta": spending.delta_dp,
        "bdp_epsilon": spending.bdp_sound,
        "bayesian_delta": spending.delta_bdp,
    }


def _reasons(refused: Sequence[str]) -> str:
    return f" ({'; '.join(sorted(set(refused)))})" if refused else ""


@dataclass(frozen=True)
class Progress:
    """How far a run is, for displays."""

    round: int
    rounds: int
    share: float
    """Share of the present round's generator steps that are done."""
    whole: float
    """Share of the run's expected work that is done, for the time that is left."""
    spending: Spending


OnProgress = Callable[[Progress], None]


class ProgressDisplay(RunObserver):
    """Tells a display how far a run is, at every step of its generator."""

    def __init__(self, config: Config, ledger: RunLedger, on_progress: OnProgress | None) -> None:
        """``on_progress`` is told; None for no display."""
        self._rounds, self._ledger, self._tell = total_rounds(config), ledger, on_progress
        self._work = list(accumulate(expected_work(config), initial=0))

    def show_step(self, number: int, share: float) -> None:
        """A share of a round's steps is done."""
        if self._tell is None:
            return
        behind, before = self._work[number], self._work[number - 1]
        whole = (before + share * (behind - before)) / self._work[-1]
        self._tell(Progress(number, self._rounds, share, whole, self._ledger.spending()))
