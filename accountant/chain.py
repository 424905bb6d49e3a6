"""Lines of the ledger: their form, their hashes, and reading them back with every check.

A line is canonical JSON (sorted keys, no spaces, ASCII) whose last key, ``sha256``, is the hash of
the line's own bytes without it. Checking therefore needs no second serialisation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accountant.events import EventError, SubsampledGaussian

FORMAT = "fedlens-ledger-1"
_TAIL = len(',"sha256":""}') + 64
_ENTRY_KEYS = frozenset(
    ("at", "event", "evidence_digest", "index", "previous", "purpose", "round", "sha256")
)


class ChainError(ValueError):
    """A line that is not what it should be."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Entry:
    """One release, as the ledger holds it."""

    index: int
    """0 for the first entry."""
    round: int
    """The round it happened in."""
    event: SubsampledGaussian
    """The mechanism."""
    purpose: str
    """What it was for."""
    at: str
    """When the entry was written: ISO 8601, UTC."""
    evidence_digest: str | None
    """Commitment to the round's private norm histogram, or None if none was kept."""
    previous: str
    """Hash of the line before."""
    hash: str
    """Hash of this line."""


def canonical(record: Mapping[str, Any]) -> bytes:
    """The one serialisation of JSON values: sorted keys, no spaces, ASCII, no NaN.

    Raises:
        ChainError: something in it is not JSON.
    """
    try:
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ChainError(f"is not JSON: {error}") from error
    return text.encode("ascii")


def _sealed(record: Mapping[str, Any]) -> tuple[bytes, str]:
    body = canonical(record)
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + b',"sha256":"' + digest.encode("ascii") + b'"}\n', digest


def header_line(header: Mapping[str, Any]) -> tuple[bytes, str]:
    """First line of a ledger, and its hash."""
    return _sealed({"format": FORMAT, "header": dict(header)})


def seal_line(record: Mapping[str, Any]) -> tuple[bytes, Entry]:
    """An entry's line, checked as if it had been read.

    Raises:
        ChainError: a field is not what an entry holds.
    """
    line, digest = _sealed(record)
    return line, _entry({**record, "sha256": digest}, {})


def _entry(record: dict[str, Any], events: dict[tuple[Any, ...], SubsampledGaussian]) -> Entry:
    if record.keys() != _ENTRY_KEYS:
        raise ChainError(f"has the wrong fields: {sorted(record)}")
    round_, evidence = record["round"], record["evidence_digest"]
    if type(round_) is not int or round_ < 0:
        raise ChainError(f"round = {round_!r}: not a whole number ≥ 0")
    if not (evidence is None or _is_digest(evidence)):
        raise ChainError(f"evidence_digest = {evidence!r}: neither null nor 64 hexadecimal digits")
    if not isinstance(record["purpose"], str) or not isinstance(record["at"], str):
        raise ChainError("purpose and at must be text")
    return Entry(
        index=record["index"],
        round=round_,
        event=_event(record["event"], events),
        purpose=record["purpose"],
        at=record["at"],
        evidence_digest=evidence,
        previous=record["previous"],
        hash=record["sha256"],
    )


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def _event(data: Any, known: dict[tuple[Any, ...], SubsampledGaussian]) -> SubsampledGaussian:
    try:
        key = tuple(data.items())
        event = known.get(key)
        if event is None:
            event = known[key] = SubsampledGaussian.from_json(data)
    except (AttributeError, EventError, TypeError) as error:
        raise ChainError(f"event is not one we know: {error}") from error
    return event


@dataclass
class Reader:
    """Reads lines in order and checks each against the one before."""

    entries: list[Entry] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    header_hash: str = ""
    head: str = ""
    """Hash of the last good line."""
    lines: int = 0
    """How many lines were good."""

    def feed(self, data: bytes) -> None:
        """Read whole lines, the header first.

        Raises:
            ChainError: line number ``lines + 1`` is wrong.
        """
        lines = data.split(b"\n")[:-1]
        if not lines:
            raise ChainError("is missing: the file has no header")
        self._header(lines[0])
        events: dict[tuple[Any, ...], SubsampledGaussian] = {}
        for line in lines[1:]:
            self._line(line, events)

    def _header(self, line: bytes) -> None:
        record = _parse(line)
        if record.get("format") != FORMAT or not isinstance(record.get("header"), dict):
            raise ChainError(f"is not the header of a ledger of format {FORMAT!r}")
        self.header, self.header_hash = record["header"], record["sha256"]
        self.head, self.lines = self.header_hash, 1

    def _line(self, line: bytes, events: dict[tuple[Any, ...], SubsampledGaussian]) -> None:
        record = _parse(line)
        index, expected = record.get("index"), len(self.entries)
        if index != expected or type(index) is not int:
            raise ChainError(
                f"has index {index!r} where {expected} should be: {_why(index, expected)}"
            )
        if record.get("previous") != self.head:
            raise ChainError("does not continue the line before it: one of the two was replaced")
        entry = _entry(record, events)
        self.entries.append(entry)
        self.head = entry.hash
        self.lines += 1


def _parse(line: bytes) -> dict[str, Any]:
    """A line's record, its own hash checked."""
    try:
        record = json.loads(line)
    except ValueError as error:
        raise ChainError("is not JSON") from error
    digest = hashlib.sha256(line[:-_TAIL] + b"}").hexdigest()
    if not isinstance(record, dict) or line[-_TAIL:] != b',"sha256":"%b"}' % digest.encode("ascii"):
        raise ChainError("was changed: its hash does not fit its content")
    return record


def _why(index: object, expected: int) -> str:
    if type(index) is not int:
        return "not an entry"
    return "a line before it is missing" if index > expected else "repeated or out of order"
