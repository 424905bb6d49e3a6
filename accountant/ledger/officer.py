"""What a privacy officer has ruled about a population's probes, beside its ledger.

A rule says from which cost on a probe is approved before it is asked; an approval lets one question
be asked once at one cost. Both are lines in the population's folder, only ever added, and the grant
itself looks at them and writes down what it used, so they bind pages and commands alike. Who may
write to that folder may lift them: they keep people from spending unasked, and are no lock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedlens.accountant.ledger.terms import PopulationError
from fedlens.foundation.files import write_durably

RULES = "officer.jsonl"
LARGEST = 1 << 20
"""Bytes: thousands of rules and approvals."""


def needs_approval(
    approve_above: float | None, warn_at: float, epsilon: float, used_after: float | None
) -> bool:
    """Whether a rule has an officer asked first.

    Args:
        approve_above: DP ε of one probe above which one is; None for never.
        warn_at: share of the budget above which one is, where one is asked at all.
        epsilon: DP ε of the probe by itself.
        used_after: share of the budget that would be used with it; None without a budget.
    """
    if approve_above is None:
        return False
    return epsilon > approve_above or (used_after is not None and used_after > warn_at)


@dataclass(frozen=True)
class OfficerRules:
    """What holds now."""

    approve_above: float | None = None
    """DP ε of one probe above which an officer approves it; None: never asked."""
    warn_at: float = 1.0
    allowed: Mapping[tuple[float, str, str], int] = field(default_factory=dict)
    """By noise multiplier z, question and slice: how often it may still be asked."""

    @classmethod
    def read(cls, folder: Path) -> OfficerRules:
        """The rules in a population's folder; none where nobody made any.

        Raises:
            PopulationError: what is there cannot be read: no probe is granted then.
        """
        path = folder / RULES
        if not path.exists():
            return cls()
        try:
            return _gathered([json.loads(line) for line in _content(path).splitlines()])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PopulationError(
                f"{path} cannot be read ({error}), so no probe is granted: bring it back from a "
                "backup, or move it away and have the officer set the rule anew"
            ) from None

    def needs_approval(self, epsilon: float, used_after: float | None) -> bool:
        """`needs_approval` by this rule."""
        return needs_approval(self.approve_above, self.warn_at, epsilon, used_after)


def _content(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError("it is larger than any that was written")
    return content


def _gathered(lines: list[dict[str, Any]]) -> OfficerRules:
    above, warn, allowed = None, 1.0, dict[tuple[float, str, str], int]()
    for line in lines:
        if line["kind"] == "rule":
            above, warn = line["approve_above"], float(line["warn_at"])
            above = None if above is None else float(above)
        elif line["kind"] == "approval" and "question" not in line:
            continue  # of a price alone, as they once were: it is none
        else:
            noise, question, users = line["noise_multiplier"], line["question"], line["users"]
            asked = float(noise), str(question), str(users)
            more = {"approval": 1, "used": -1}[line["kind"]]
            allowed[asked] = allowed.get(asked, 0) + more
    if not all(map(math.isfinite, (above or 0.0, warn))):
        raise ValueError("a number is not finite")
    return OfficerRules(above, warn, allowed)


def add_line(folder: Path, line: Mapping[str, Any]) -> None:
    """Write a rule or an approval down, durable on return; one process at a time."""
    path = folder / RULES
    before = path.read_bytes() if path.exists() else b""
    said = json.dumps(dict(line), sort_keys=True).encode() + b"\n"
    write_durably(path, before + said, private=True)
