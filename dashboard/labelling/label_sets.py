"""A project's labels while they are being written: the default set, and what may be a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from fedlens.store import LabelKind, LabelRecord, StoreError

CLASS_KEYS = "1234567890abdefghijklmnopstvwyz"
UNKNOWN = LabelRecord(key="q", name="unknown class", kind="unknown")
ARTEFACT = LabelRecord(key="x", name="artefact", kind="artefact")
RESERVED = {"u": "it is Undo", "c": "the page uses it", "r": "the page uses it"}
ALLOWED = frozenset("abcdefghijklmnopqrstuvwxyz0123456789") - RESERVED.keys()
KINDS: tuple[LabelKind, ...] = get_args(LabelKind)


def default_labels(classes: Sequence[int]) -> list[LabelRecord]:
    """One label a class, then "unknown class" and "artefact".

    The digit of a class is its key. Beyond ten classes the letters follow; classes for which no
    key is left are left out, to be named by hand.

    Args:
        classes: those that samples were requested for.
    """
    free = [key for key in CLASS_KEYS if key not in {str(c) for c in classes}]
    labels = []
    for number in classes:
        key = str(number) if number <= 9 else (free.pop(0) if free else "")
        if key:
            labels.append(LabelRecord(key=key, name=f"class {number}"))
    return [*labels, UNKNOWN, ARTEFACT]


def read_labels(rows: Iterable[Mapping[str, object]]) -> tuple[LabelRecord, ...]:
    """The labels of an edited table with columns ``key``, ``name`` and ``kind``.

    Lines without a key and a name are passed over.

    Raises:
        StoreError: a key is not one free letter or digit, is there twice, or a name is missing.
    """
    labels = [_read(row) for row in rows if _text(row, "key") or _text(row, "name")]
    if not labels:
        raise StoreError("The label set is empty: give at least one key with a name.")
    for part in ("key", "name"):
        values = [str(getattr(label, part)) for label in labels]
        twice = sorted({value for value in values if values.count(value) > 1})
        if twice:
            raise StoreError(f"The {part} {twice[0]!r} is there twice: make it different.")
    return tuple(labels)


def _read(row: Mapping[str, object]) -> LabelRecord:
    key, name, kind = _text(row, "key").lower(), _text(row, "name"), _text(row, "kind") or "class"
    if key in RESERVED:
        raise StoreError(f"The key {key!r} cannot be used ({RESERVED[key]}): choose another.")
    if key not in ALLOWED:
        raise StoreError(f"The key {key!r} cannot be used: give one letter a–z or one digit.")
    if not name:
        raise StoreError(f"The label with key {key!r} has no name: give it one.")
    if kind not in KINDS:
        raise StoreError(f"The kind {kind!r} of {name!r} is none of {', '.join(KINDS)}.")
    return LabelRecord(key=key, name=name, kind=kind)


def _text(row: Mapping[str, object], column: str) -> str:
    """A cell's text; an empty cell is None or, from a numeric column, NaN."""
    value = row.get(column)
    return value.strip() if isinstance(value, str) else ""
