"""Lines of the ledger: their form, their hashes, and reading them back with every check.

A line is canonical JSON (sorted keys, no spaces, ASCII) whose last key, ``sha256``, is the hash of
the line's own bytes without it. Checking therefore needs no second serialisation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from accountant.events import Event, EventError, event_from_json

FORMAT = "fedlens-ledger-1"
_TAIL = len(',"sha256":""}') + 64
_ENTRY_KEYS = frozenset(
    ("at", "event", "evidence_digest", "index", "previous", "purpose", "round", "sha256")
)
_ENTRY = re.compile(
    rb'\{"at":"([^"\\]*)","event":(\{[^{}]*\}),"evidence_digest":(null|"[0-9a-f]{64}"),'
    rb'"index":(0|[1-9]\d{0,15}),"previous":"([0-9a-f]{64})","purpose":("(?:[^"\\]|\\.)*"),'
    rb'"round":(0|[1-9]\d{0,15}),"sha256":"([0-9a-f]{64})"\}'
)
"""Entries as we write them: three times as quick to read as JSON in general."""


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
    event: Event
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
    """An entry's line, and the entry as it will be read back.

    Raises:
        ChainError: a field is not what an entry holds.
    """
    line, _ = _sealed(record)
    return line, _Lines().entry(line[:-1])


class _Lines:
    """Reads entries' lines. What repeats from line to line is read once and kept."""

    def __init__(self) -> None:
        self._events: dict[bytes, Event] = {}
        self._purposes: dict[bytes, str] = {}

    def entry(self, line: bytes) -> Entry:
        """The entry of a line, which must hash to what it says."""
        match = _ENTRY.fullmatch(line)
        if match is None:
            return _entry_of(_parse(line))
        _check_hash(line)
        at, event, evidence, index, previous, purpose, round_, digest = match.groups()
        return Entry(
            index=int(index),
            round=int(round_),
            event=self._event(event),
            purpose=self._purpose(purpose),
            at=at.decode("ascii"),
            evidence_digest=None if evidence == b"null" else evidence[1:-1].decode("ascii"),
            previous=previous.decode("ascii"),
            hash=digest.decode("ascii"),
        )

    def _event(self, text: bytes) -> Event:
        event = self._events.get(text)
        if event is None:
            event = self._events[text] = _event_of(_loads(text))
        return event

    def _purpose(self, text: bytes) -> str:
        purpose = self._purposes.get(text)
        if purpose is None:
            purpose = self._purposes[text] = str(_loads(text))
        return purpose


def _entry_of(record: dict[str, Any]) -> Entry:
    """An entry of a form that the pattern does not cover, with every field checked."""
    if record.keys() != _ENTRY_KEYS:
        raise ChainError(f"has the wrong fields: {sorted(record)}")
    evidence = record["evidence_digest"]
    for name in ("index", "round"):
        if type(record[name]) is not int or record[name] < 0:
            raise ChainError(f"{name} = {record[name]!r}: not a whole number ≥ 0")
    for name in ("at", "purpose", "previous"):
        if not isinstance(record[name], str):
            raise ChainError(f"{name} = {record[name]!r}: not text")
    if not (evidence is None or _is_digest(evidence)):
        raise ChainError(f"evidence_digest = {evidence!r}: neither null nor 64 hexadecimal digits")
    return Entry(
        index=record["index"],
        round=record["round"],
        event=_event_of(record["event"]),
        purpose=record["purpose"],
        at=record["at"],
        evidence_digest=evidence,
        previous=record["previous"],
        hash=record["sha256"],
    )


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and len(value) == 64 and not set(value) - set("0123456789abcdef")


def _event_of(data: Any) -> Event:
    try:
        return event_from_json(data)
    except (AttributeError, EventError, TypeError) as error:
        raise ChainError(f"event is not one we know: {error}") from error


def _loads(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ChainError("is not JSON") from error


def _parse(line: bytes) -> dict[str, Any]:
    """A line's record, its own hash checked."""
    record = _loads(line)
    _check_hash(line)
    if not isinstance(record, dict):
        raise ChainError("is no record")
    return record


def _check_hash(line: bytes) -> None:
    digest = hashlib.sha256(line[:-_TAIL] + b"}").hexdigest()
    if line[-_TAIL:] != b',"sha256":"' + digest.encode("ascii") + b'"}':
        raise ChainError("was changed: its hash does not fit its content")


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
        reader = _Lines()
        for line in lines[1:]:
            self._continue(reader.entry(line))

    def _header(self, line: bytes) -> None:
        record = _parse(line)
        if record.get("format") != FORMAT or not isinstance(record.get("header"), dict):
            raise ChainError(f"is not the header of a ledger of format {FORMAT!r}")
        self.header, self.header_hash = record["header"], record["sha256"]
        self.head, self.lines = self.header_hash, 1

    def _continue(self, entry: Entry) -> None:
        expected = len(self.entries)
        if entry.index != expected:
            why = (
                "a line before it is missing"
                if entry.index > expected
                else "repeated or out of order"
            )
            raise ChainError(f"has index {entry.index} where {expected} should be: {why}")
        if entry.previous != self.head:
            raise ChainError("does not continue the line before it: one of the two was replaced")
        self.entries.append(entry)
        self.head = entry.hash
        self.lines += 1
