"""What the labelling desk sends, checked and written into the store.

The browser is not trusted: every field is checked. It may send an answer again at any time;
the store takes each ``uuid`` once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from server.store import Annotation, Store, StoreError

SKIPPED = "skipped by the annotator"
LONGEST_UUID = 64
REMEMBERED = 500


@dataclass
class Receipts:
    """What a session may tell its desk: which answers are safe, and what went wrong."""

    acked: list[str] = field(default_factory=list)
    """Ids of the last stored answers, oldest first."""
    undone: dict[str, int | None] = field(default_factory=dict)
    """For each acknowledged undo the sample it brought back, if any."""
    error: str | None = None

    def acknowledge(self, uuid: str) -> None:
        """Note an answer as stored; forget the oldest ones."""
        if uuid not in self.acked:
            self.acked.append(uuid)
        for old in self.acked[:-REMEMBERED]:
            self.undone.pop(old, None)
        del self.acked[:-REMEMBERED]


def take(store: Store, project_id: int, user_id: int, payload: object, receipts: Receipts) -> None:
    """Store what a desk sent, in order, up to the first answer the store refuses.

    What comes after a refused answer is not stored either: an undo must not take back another
    answer than the one it was meant for. The desk keeps and shows all that is not acknowledged.

    Args:
        store: where to.
        project_id: of the project on the desk.
        user_id: of the annotator.
        payload: ``{"events": [...]}`` as the browser sent it, unchecked.
        receipts: is brought up to date.
    """
    receipts.error = None
    for event in _events(payload):
        uuid = event.get("uuid")
        if not isinstance(uuid, str) or not 0 < len(uuid) <= LONGEST_UUID:
            receipts.error = "An answer came without an id of its own and was not stored."
            return
        try:
            _take_one(store, project_id, user_id, uuid, event, receipts)
        except StoreError as error:
            receipts.error = f"Not stored: {error}"
            return
        receipts.acknowledge(uuid)


def _events(payload: object) -> list[Mapping[str, object]]:
    events = payload.get("events") if isinstance(payload, Mapping) else None
    return [e for e in events if isinstance(e, Mapping)] if isinstance(events, list) else []


def _take_one(
    store: Store,
    project_id: int,
    user_id: int,
    uuid: str,
    event: Mapping[str, object],
    receipts: Receipts,
) -> None:
    if event.get("kind") == "undo":
        taken_back = store.undo(project_id, user_id, uuid)
        receipts.undone[uuid] = None if taken_back is None else taken_back.sample_id
        return
    label_id = None if event.get("label_id") is None else _whole(event, "label_id")
    store.annotate(
        Annotation(
            client_uuid=uuid,
            project_id=project_id,
            sample_id=_whole(event, "sample_id"),
            user_id=user_id,
            label_id=label_id,
            skip_reason=SKIPPED if label_id is None else None,
            lead_ms=None if event.get("lead_ms") is None else _whole(event, "lead_ms"),
        )
    )


def _whole(event: Mapping[str, object], name: str) -> int:
    """A whole number from JSON, where 3 may arrive as 3.0."""
    value = event.get(name)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise StoreError(f"{name} = {value!r}: an answer names it by a whole number")
    return value
