"""What a filter's file claims of itself, so that an attack has something to hold it to.

A study that keeps a filter has measured it: on which data, what its attackers read, what the use
alone tells, how much of the use is kept. These figures travel in the file. Who changes the weights,
the noise or the bound afterwards leaves claims behind that no longer hold, and
`fedlens.privatizers.attacks.gate` finds that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

ONE, TEN, FIFTY, BARE = "one release", "ten alike", "fifty alike", "noise-free"
"""What an attacker sees: one release, the mean of ten or fifty near-duplicates, no noise at all."""


@dataclass(frozen=True)
class Claims:
    """What was measured when a filter was kept.

    Attributes:
        data: name of the source, without where it lies.
        noise: what is released hangs on noise.
        nats: a release tells at most that of anything, for one draw of noise; None where nothing
            is certified.
        reads: balanced accuracy of the strongest attacker by what it sees (`ONE`, `TEN`, ...).
        use_alone: the same of who knows a record's use and nothing else; None for series.
        use: share of the uses that is read from one release; None where the use is the record.
        seed: by which the source was dealt into parts.
    """

    data: str
    noise: bool
    nats: float | None
    reads: Mapping[str, float] = field(default_factory=dict)
    use_alone: float | None = None
    use: float | None = None
    seed: int = 0

    def row(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Claims:
        """Of a JSON object that :meth:`row` made.

        Raises:
            KeyError: something is missing.
            TypeError: something is of another kind.
            ValueError: a share is none.
        """
        reads = {str(name): _share(value) for name, value in dict(row["reads"]).items()}
        alone, use, nats = (row.get(name) for name in ("use_alone", "use", "nats"))
        return cls(
            str(row["data"]),
            bool(row["noise"]),
            None if nats is None else float(nats),
            reads,
            None if alone is None else _share(alone),
            None if use is None else _share(use),
            int(row.get("seed", 0)),
        )


def _share(value: Any) -> float:
    found = float(value)
    if not (math.isfinite(found) and found <= 1):  # a use may be 1 − NE, below 0
        raise ValueError(f"{value} is no share")
    return found
