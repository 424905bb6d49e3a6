"""What a privacy officer has ruled about a population's probes, beside its ledger.

A rule says from which cost on a probe is approved before it is asked; an approval lets one question
be asked once at one cost. What a run or a command was not let ask waits here too. All are lines in
the population's folder, only ever added, and the grant itself looks at them and writes down what it
used, so they bind pages and commands alike. Who may write to that folder may lift them: they keep
people from spending unasked, and are no lock.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.events import Event, SubsampledGaussian
from fedlens.accountant.ledger.spending import PROBE
from fedlens.accountant.ledger.terms import PopulationError, PopulationTerms
from fedlens.accountant.wording import percentage, shown
from fedlens.foundation.dates import today
from fedlens.foundation.files import write_durably

RULES = "officer.jsonl"
LARGEST = 1 << 20
"""Bytes: thousands of rules and approvals."""
MOST_WAITING = 100
"""Probes that wait for an officer: whoever asks for ever more cannot fill the file with them."""
_GRANTS = {"asked": 0, "approval": 1, "used": -1, "declined": 0}
"""How often a line of a kind lets its probe through."""


class Approvable(NamedTuple):
    """What an officer approves or declines: one question at its noise."""

    noise_multiplier: float
    sampling_rate: float
    question: str
    """With the run whose network is asked, where one is."""
    users: str
    """Slice that is asked; empty for everyone."""

    @classmethod
    def of(cls, event: Event, question: str, users: str) -> Approvable:
        """That of a probe's event."""
        if not isinstance(event, SubsampledGaussian):
            return cls(0.0, 1.0, question, users)
        return cls(event.noise_multiplier, event.sampling_rate, question, users)


class WaitingProbe(NamedTuple):
    """A probe that a run or a command was not let ask."""

    event: SubsampledGaussian
    """What one round of it spends."""
    question: str
    users: str
    run: str
    """Id of the run that asks; empty for settings that no run has."""
    times: int
    """How many rounds it has left."""

    @property
    def key(self) -> Approvable:
        """What an approval of it is of."""
        return Approvable.of(self.event, self.question, self.users)

    def epsilon(self, delta: float) -> float:
        """DP ε at δ of all its rounds by themselves."""
        alone = DifferentialAccountant()
        alone.compose(self.event, self.times)
        return alone.epsilon(delta).epsilon


class Decision(NamedTuple):
    """What an officer said of a probe that waited."""

    day: str
    question: str
    approved: bool
    by: str
    why: str


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
    allowed: Mapping[Approvable, int] = field(default_factory=dict)
    """How often it may still be asked."""
    waiting: Mapping[Approvable, WaitingProbe] = field(default_factory=dict)
    """What was neither approved nor declined since it was last asked for."""
    decided: tuple[Decision, ...] = ()
    """What was said of those that waited, the last one first."""

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
    above, warn = None, 1.0
    allowed, waiting = dict[Approvable, int](), dict[Approvable, WaitingProbe]()
    decided: list[Decision] = []
    for line in lines:
        kind = line["kind"]
        if kind == "rule":
            above, warn = line["approve_above"], float(line["warn_at"])
            above = None if above is None else float(above)
            continue
        more = _GRANTS[kind]
        if "event" not in line:
            continue  # of a price alone, as they once were: it is none
        one = _waiting(line)
        waiting.pop(one.key, None)
        if kind == "asked":
            waiting[one.key] = one
        allowed[one.key] = allowed.get(one.key, 0) + more * one.times
        if "day" in line:
            said = str(line["by"]), str(line["why"])
            decided.append(Decision(str(line["day"]), one.question, kind == "approval", *said))
    if not all(map(math.isfinite, (above or 0.0, warn))):
        raise ValueError("a number is not finite")
    return OfficerRules(above, warn, allowed, waiting, tuple(decided[::-1]))


def _waiting(line: Mapping[str, Any]) -> WaitingProbe:
    event = SubsampledGaussian.from_json(line["event"])
    words = str(line["question"]), str(line["users"]), str(line.get("run", ""))
    return WaitingProbe(event, *words, int(line.get("times", 1)))


def add_line(folder: Path, line: Mapping[str, Any]) -> None:
    """Write a rule or an approval down, durable on return; one process at a time."""
    path = folder / RULES
    before = path.read_bytes() if path.exists() else b""
    said = json.dumps(dict(line), sort_keys=True).encode() + b"\n"
    write_durably(path, before + said, private=True)


class OfficerMethods:
    """What of a population an officer rules."""

    terms: PopulationTerms

    @property
    def folder(self) -> Path:
        """Where its ledger and its officer's rules lie."""
        raise NotImplementedError

    def share_spent(self, users: str = "", after: Event | None = None) -> float:
        """What part of the budget is used up, as the filter counts, in [0, 1]."""
        raise NotImplementedError

    def _held(self) -> AbstractContextManager[None]:
        """The only process that writes to the folder, having read all that others wrote."""
        raise NotImplementedError

    def waits(self, event: Event, purpose: str, users: str = "", question: str = "") -> str | None:
        """Why an officer has to approve ``event`` first, or None; arguments as `charge`.

        Raises:
            PopulationError: the officer's rules cannot be read.
        """
        return self._asked_of_officer(event, purpose, users, question)[1]

    def ask_officer(
        self,
        event: Event,
        purpose: str,
        users: str = "",
        question: str = "",
        *,
        run: str = "",
        times: int = 1,
    ) -> str | None:
        """`waits`; and what does is put before the officer, once, unless `MOST_WAITING` others are.

        Args:
            event: as `charge`.
            purpose: the same.
            users: the same.
            question: the same.
            run: whose release it would be; empty for settings that no run has.
            times: how many rounds of it there are to be.
        """
        with self._held():
            reason = self.waits(event, purpose, users, question)
            if not reason:
                return None
            waiting = OfficerRules.read(self.folder).waiting
            if Approvable.of(event, question, users) in waiting:
                return reason
            if len(waiting) >= MOST_WAITING and (others := len(self.waiting())) >= MOST_WAITING:
                return (
                    f"a privacy officer of population {self.terms.population!r} approves such "
                    f"probes, and {others} wait already: ask again once some are decided"
                )
            self._write_down("asked", event, question, users=users, run=run, times=times)
        return reason

    def waiting(self) -> list[WaitingProbe]:
        """What runs and commands were not let ask, and an officer may let through.

        Raises:
            PopulationError: the officer's rules cannot be read.
        """
        there = OfficerRules.read(self.folder).waiting.values()
        return [one for one in there if self.waits(one.event, PROBE, one.users, one.question)]

    def _asked_of_officer(
        self, event: Event, purpose: str, users: str, question: str
    ) -> tuple[bool, str | None]:
        """Whether it needs an officer's approval, and why it waits, where it has none."""
        if purpose != PROBE:
            return False, None  # whatever state the rules are in
        rules = OfficerRules.read(self.folder)
        epsilon = self._needs_approval(rules, event, users)
        asked = Approvable.of(event, question, users)
        if epsilon is None or rules.allowed.get(asked, 0) > 0:
            return epsilon is not None, None
        return True, (
            f"a privacy officer approves probes of population {self.terms.population!r} that cost "
            f"more than DP ε = {rules.approve_above:g} or pass {percentage(rules.warn_at)} of the "
            f"budget, and has not approved this one (ε = {shown(epsilon)}): it waits for one on "
            "the dashboard's page Privacy, so ask again once it is approved"
        )

    def _needs_approval(self, rules: OfficerRules, event: Event, users: str) -> float | None:
        """The cost of what an officer has to approve; None for what needs no approval."""
        if not isinstance(event, SubsampledGaussian):
            return None
        alone = DifferentialAccountant()
        alone.compose(event)
        epsilon = alone.epsilon(self.terms.delta).epsilon
        asked = rules.needs_approval(epsilon, self.share_spent(users, event))
        return epsilon if asked else None

    def _use_approval(self, event: Event, purpose: str, users: str, question: str) -> None:
        if self._asked_of_officer(event, purpose, users, question)[0]:
            self._write_down("used", event, question, users=users)

    def _write_down(self, kind: str, event: Event, question: str, **more: str | int) -> None:
        add_line(self.folder, {"kind": kind, "event": event.to_json(), "question": question} | more)

    def set_officer_rule(self, approve_above: float | None, warn_at: float, *, by: str) -> None:
        """Have an officer approve probes from a cost on, whoever asks them; see `OfficerRules`."""
        rule = {"kind": "rule", "approve_above": approve_above, "warn_at": warn_at, "by": by}
        with self._held():
            add_line(self.folder, rule)

    def approve(
        self, event: SubsampledGaussian, *, question: str, users: str = "", by: str
    ) -> None:
        """Let one question be asked once with this noise, whatever the officer's rule says.

        Args:
            event: of the probe.
            question: as `charge` takes it.
            users: slice that is asked; empty for everyone.
            by: name of the officer.
        """
        with self._held():
            self._write_down("approval", event, question, users=users, by=by)

    def decide(self, one: WaitingProbe, *, approved: bool, by: str, why: str = "") -> None:
        """Let what waits be asked as often as it has rounds left, or have it wait no longer.

        What was declined waits again once it is asked again.

        Args:
            one: of `waiting`.
            approved: which of the two.
            by: name of the officer.
            why: in their words.
        """
        said: dict[str, str | int] = {
            "by": by,
            "why": why,
            "times": one.times,
            "day": today().isoformat(),
        }
        with self._held():
            kind = "approval" if approved else "declined"
            self._write_down(kind, one.event, one.question, users=one.users, **said)
