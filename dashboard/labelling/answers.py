"""What the labelling desk sends, checked and written into the store.

The browser is not trusted: every field is checked. It may send an answer again at any time;
the store takes each ``uuid`` once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeGuard

from fedlens.store import Annotation, Store, StoredProject, StoreError
from fedlens.store.imports import IMPORTED

SKIPPED = "skipped by the annotator"
LONGEST_UUID = 64
MOST_LABELS = 50
MOST_EVENTS = 500
LARGEST = 2**63 - 1


@dataclass
class Receipts:
    """What a desk is told of the answers that it sent."""

    acked: list[str] = field(default_factory=list)
    """Ids of the stored ones."""
    error: str | None = None
    """Why the next one was not stored."""


def scope_of(place: str, project: StoredProject, annotator_name: str) -> str:
    """A name for where unsent answers belong.

    Answers of another store, project or person are under another name, and are never taken.
    """
    text = f"{place}\n{project.project_id}\n{project.created_at.isoformat()}\n{annotator_name}"
    return "fedlens-" + hashlib.sha256(text.encode()).hexdigest()[:24]


def store_answers(
    store: Store, project_id: int, user_id: int, events: object, *, tab: str | None = None
) -> Receipts:
    """Store what a desk sent, in order, up to the first answer the store refuses.

    Of a very long list the first ones are taken; the desk sends the others again.
    What comes after a refused answer is not stored either: an undo must not take back another
    answer than the one it was meant for. The desk keeps and shows all that is not acknowledged.

    Args:
        store: where to.
        project_id: of the project on the desk.
        user_id: of the annotator.
        events: a list as the browser sent it, unchecked.
        tab: whose desk an undone answer's sample comes back to.
    """
    receipts = Receipts()
    sent = events[:MOST_EVENTS] if isinstance(events, list) else []
    queued = store.queued(project_id, _samples_in(sent)) if sent else frozenset()
    for event in sent:
        uuid = event.get("uuid") if isinstance(event, Mapping) else None
        if not is_id(uuid):
            receipts.error = "An answer came without an id of its own and was not stored."
            break
        try:
            _check_queued(event, queued)
            _take_one(store, project_id, user_id, uuid, event, tab)
        except StoreError as error:
            receipts.error = f"Not stored: {error}"
            break
        receipts.acked.append(uuid)
    return receipts


def _samples_in(events: Sequence[object]) -> set[int]:
    """The samples that answers are about, as far as they name any."""
    found = set()
    for event in events:
        with suppress(StoreError):
            found.add(whole_number(event if isinstance(event, Mapping) else {}, "sample_id"))
    return found


def _check_queued(event: Mapping[str, object], queued: Collection[int]) -> None:
    if event.get("kind") != "undo" and whole_number(event, "sample_id") not in queued:
        raise StoreError(f"sample_id = {event['sample_id']}: none that this project labels")


def is_id(uuid: object) -> TypeGuard[str]:
    """Whether a desk may call an answer so: none that an import is going to."""
    fits = isinstance(uuid, str) and 0 < len(uuid) <= LONGEST_UUID
    return fits and not str(uuid).startswith(IMPORTED)


def _take_one(
    store: Store,
    project_id: int,
    user_id: int,
    uuid: str,
    event: Mapping[str, object],
    tab: str | None,
) -> None:
    if event.get("kind") == "undo":
        given = event.get("sample_id")
        sample_id = None if given is None else whole_number(event, "sample_id")
        store.undo(project_id, user_id, uuid, sample_id=sample_id, tab=tab)
        return
    label_id = None if event.get("label_id") is None else whole_number(event, "label_id")
    store.annotate(
        Annotation(
            client_uuid=uuid,
            project_id=project_id,
            sample_id=whole_number(event, "sample_id"),
            user_id=user_id,
            label_id=label_id,
            skip_reason=SKIPPED if label_id is None else None,
            lead_ms=None if event.get("lead_ms") is None else whole_number(event, "lead_ms"),
            note=text_or_none(event, "note"),
            more_labels=_more_labels(event),
        )
    )


def _more_labels(event: Mapping[str, object]) -> list[int] | None:
    given = event.get("more_labels") or []
    if not isinstance(given, list) or len(given) > MOST_LABELS:
        raise StoreError(f"more_labels = {given!r:.80}: give a list of at most {MOST_LABELS}")
    return [whole_number({"more_labels": one}, "more_labels") for one in given] or None


def text_or_none(event: Mapping[str, object], name: str) -> str | None:
    """A text from JSON; none where it is empty or left out."""
    value = event.get(name)
    if value is not None and not isinstance(value, str):
        raise StoreError(f"{name} = {value!r:.80}: give a text")
    return value or None


def whole_number(event: Mapping[str, object], name: str) -> int:
    """A whole number from JSON, where 3 may arrive as 3.0."""
    value = event.get(name)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise StoreError(f"{name} = {value!r:.80}: an answer names it by a whole number")
    return value
