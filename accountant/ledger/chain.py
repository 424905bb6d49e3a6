"""Lines of the ledger: their form, their hashes, and reading them back with every check.

A line is canonical JSON (sorted keys, no spaces, ASCII) whose last key, ``sha256``, is the hash of
the line's own bytes without it. Checking therefore needs no second serialisation.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedlens.accountant.events import Event, EventError, event_from_json
from fedlens.foundation.errors import FedlensError

FORMAT = "fedlens-ledger-1"
_TAIL = len(',"sha256":""}') + 64
_ENTRY_KEYS = frozenset(
    ("at", "event", "evidence_digest", "index", "previous", "purpose", "round", "sha256")
)
_BLOCK = 1 << 20
_TEXT = rb'"[^"\\\x00-\x1f\x7f-\xff]*(?:\\.[^"\\\x00-\x1f\x7f-\xff]*)*"'
_NUMBER = rb"(0|[1-9][0-9]{0,15})"
_ENTRY = re.compile(
    rb'(\{"at":"([^"\\\x00-\x1f\x7f-\xff]*)","event":(\{[^}]*\}),'
    rb'"evidence_digest":(null|"[0-9a-f]{64}"),"index":' + _NUMBER + rb',"previous":"(.{64})",'
    rb'"purpose":(' + _TEXT + rb'),"round":' + _NUMBER + rb"(?:,\"run\":(" + _TEXT + rb")"
    rb'(?:,"slice":(' + _TEXT + rb'))?(?:,"source":"([0-9a-f]{64})")?)?)'
    rb',"sha256":"(.{64})"\}\n'
)
"""Entries as we write them: many times as quick to read as JSON in general."""


class ChainError(FedlensError, ValueError):
    """A line that is not what it should be."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


@dataclass(frozen=True, slots=True)
class LedgerEntry:
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
    """The day on which the process that wrote the entry began: ISO 8601, UTC."""
    evidence_digest: str | None
    """Commitment to the round's noised histogram of norms, or None if none is released."""
    previous: str
    """Hash of the line before."""
    hash: str
    """Hash of this line."""
    run: str | None = None
    """In a population's ledger: the run that the release belongs to."""
    source: str | None = None
    """There too, where it was booked after the fact: hash of the entry in the run's own ledger."""
    users: str | None = None
    """There too, where it is about a slice of the users: which, as ``attribute=value``."""


def canonical(record: object) -> bytes:
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


def seal_line(record: Mapping[str, Any]) -> tuple[bytes, LedgerEntry]:
    """An entry's line, and the entry as it will be read back.

    Raises:
        ChainError: a field is not what an entry holds.
    """
    line, _ = _sealed(record)
    return line, _entry_of(_parse(line[:-1]))


def _entry_of(record: dict[str, Any]) -> LedgerEntry:
    """An entry of any form that is JSON, with every field checked."""
    if record.keys() - {"run", "slice", "source"} != _ENTRY_KEYS:
        raise ChainError(f"has the wrong fields: {sorted(record)}")
    evidence = record["evidence_digest"]
    for name in ("index", "round"):
        if type(record[name]) is not int or record[name] < 0:
            raise ChainError(f"{name} = {record[name]!r}: not a whole number ≥ 0")
    for name in ("at", "purpose", "previous", *({"run", "slice"} & record.keys())):
        if not isinstance(record[name], str):
            raise ChainError(f"{name} = {record[name]!r}: not text")
    if not (evidence is None or _is_digest(evidence)):
        raise ChainError(f"evidence_digest = {evidence!r}: neither null nor 64 hexadecimal digits")
    if "source" in record and not ("run" in record and _is_digest(record["source"])):
        raise ChainError(f"source = {record['source']!r}: not 64 hexadecimal digits beside a run")
    if "slice" in record and "run" not in record:
        raise ChainError(f"slice = {record['slice']!r}: it belongs to no run")
    return LedgerEntry(
        index=record["index"],
        round=record["round"],
        event=_event_of(record["event"]),
        purpose=record["purpose"],
        at=record["at"],
        evidence_digest=evidence,
        previous=record["previous"],
        hash=record["sha256"],
        run=record.get("run"),
        source=record.get("source"),
        users=record.get("slice"),
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


def _canonical_value(text: bytes) -> Any:
    """A JSON value that is written in the one form, so that no two readers read it differently."""
    value = _loads(text)
    if canonical(value) != text:
        raise ChainError("is not canonical JSON")
    return value


def _parse(line: bytes) -> dict[str, Any]:
    """A line's record, its own hash checked."""
    record = _loads(line)
    _check_hash(line)
    if not isinstance(record, dict):
        raise ChainError("is no record")
    body = {key: value for key, value in record.items() if key != "sha256"}
    if canonical(body) != line[:-_TAIL] + b"}":
        raise ChainError("is not canonical JSON")
    return record


def _check_hash(line: bytes) -> None:
    digest = hashlib.sha256(line[:-_TAIL] + b"}").hexdigest()
    if line[-_TAIL:] != b',"sha256":"' + digest.encode("ascii") + b'"}':
        raise ChainError("was changed: its hash does not fit its content")


@dataclass
class Reader:
    """Reads lines in order and checks each against the one before. It may be fed in pieces."""

    entries: list[LedgerEntry] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    header_hash: str = ""
    head: str = ""
    """Hash of the last good line."""
    _events: dict[bytes, Event] = field(default_factory=dict)
    _texts: dict[bytes, str] = field(default_factory=dict)

    @property
    def lines(self) -> int:
        """How many lines were good."""
        return len(self.entries) + bool(self.header_hash)

    def feed(self, data: bytes) -> None:
        """Read whole lines: the header first, if there was none yet.

        Raises:
            ChainError: line number ``lines + 1`` is wrong.
        """
        start = 0
        if not self.header_hash:
            start = data.find(b"\n") + 1
            if not start:
                raise ChainError("is missing: the file has no header")
            self._header(data[: start - 1])
        while start < len(data):
            stop = data.rfind(b"\n", start, start + _BLOCK) + 1 or data.find(b"\n", start) + 1
            if not self._quickly(data, start, stop):
                for line in data[start : stop - 1].split(b"\n"):
                    self.take(_entry_of(_parse(line)))
            start = stop

    def take(self, entry: LedgerEntry) -> None:
        """Accept an entry whose own hash is right as the next one.

        Raises:
            ChainError: it does not continue the line before it.
        """
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
        text = canonical(entry.event.to_json())
        event = self._events.setdefault(text, entry.event)  # runs have few, and many rounds
        self.entries.append(replace(entry, event=event, previous=self.head))
        self.head = entry.hash

    def _header(self, line: bytes) -> None:
        record = _parse(line)
        if record.get("format") != FORMAT or not isinstance(record.get("header"), dict):
            raise ChainError(f"is not the header of a ledger of format {FORMAT!r}")
        self.header, self.header_hash = record["header"], record["sha256"]
        self.head = self.header_hash

    def _quickly(self, data: bytes, start: int, stop: int) -> bool:
        """Read lines of the usual form, with every check.

        Returns:
            Whether all of them were of that form and right. If not, nothing was read, and reading
            them one by one tells what is wrong, if anything is.
        """
        found: list[LedgerEntry] = []
        head, position = self.head, len(self.entries)
        previous, size = head.encode(), 0
        for fields in _ENTRY.findall(data, start, stop):
            body, at, event, evidence, index, before, what, number, run, *rest = fields
            users, source, digest = rest
            head_here = hashlib.sha256(body + b"}").hexdigest()
            own = head_here.encode()
            if own != digest or before != previous or int(index) != position:
                return False
            try:
                entry = LedgerEntry(
                    position,
                    int(number),
                    self._events.get(event) or self._event(event),
                    self._texts.get(what) or self._text(what),
                    at.decode(),
                    None if evidence == b"null" else evidence[1:-1].decode(),
                    head,
                    head_here,
                    (self._texts.get(run) or self._text(run)) if run else None,
                    source.decode() or None,
                    (self._texts.get(users) or self._text(users)) if users else None,
                )
            except ChainError:
                return False
            found.append(entry)
            head, previous = head_here, own
            position += 1
            size += len(body) + _TAIL + 1
        if size != stop - start:
            return False
        self.entries += found
        self.head = head
        return True

    def _event(self, text: bytes) -> Event:
        event = self._events[text] = _event_of(_canonical_value(text))
        return event

    def _text(self, text: bytes) -> str:
        value = self._texts[text] = str(_canonical_value(text))
        return value
