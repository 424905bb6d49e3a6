"""The reviewers' side of the desk: decisions in, samples on which answers differ out.

A desk sends each decision with an id of its own, the sample it was about, and the last row that it
knew of that sample: a decision that another reviewer was faster with is not overwritten unseen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedlens.dashboard.labelling.answers import (
    MOST_EVENTS,
    is_id,
    text_or_none,
    whole_number,
)
from fedlens.dashboard.labelling.wire import Work, listed, shown, text, whole
from fedlens.store import (
    Adjudication,
    Member,
    ReviewedSample,
    RunRecord,
    Store,
    StoredProject,
    StoreError,
)

MOST_CARDS = 60
MOST_KNOWN = 300
RECENT = 20
PAGE = 60


@dataclass
class _Receipts:
    acked: list[str] = field(default_factory=list)
    stale: list[int] = field(default_factory=list)
    """Samples that somebody else decided since the reviewer looked."""
    error: str | None = None


def review(store: Store, project: StoredProject, account: Member, asked: Mapping[str, Any]) -> Any:
    """Store the decisions sent; say which samples wait, and which known ones no longer do."""
    receipts = _store_decisions(store, project, account, asked.get("events"))
    known = [whole(one, "known") for one in listed(asked.get("known"), "known")][:MOST_KNOWN]
    wanted = [one for one in _waiting(store, project, asked) if one not in set(known)]
    counts = store.review_counts(project.project_id)
    said: dict[str, Any] = {
        "acked": receipts.acked,
        "error": receipts.error,
        "stale": _cards(store, project, receipts.stale),
        "gone": sorted(store.settled(project.project_id, known)),
        "queue": _cards(store, project, wanted),
        "progress": {"waiting": counts.waiting, "decided": counts.decided},
    }
    if asked.get("recent"):
        mine = store.decisions_by(project.project_id, account.user_id, RECENT)
        said["recent"] = _cards(store, project, mine)
    return said


def _waiting(store: Store, project: StoredProject, asked: Mapping[str, Any]) -> list[int]:
    want = min(max(whole(asked.get("want"), "want"), 0), MOST_CARDS)
    return store.disputed(project.project_id, limit=want)


def decisions(
    store: Store, project: StoredProject, _: Member, asked: Mapping[str, Any]
) -> dict[str, Any]:
    """A page of the list of reviewed samples, by filters, and who has decided any."""
    label, reviewer = asked.get("label"), asked.get("reviewer")
    total, page = store.list_reviewed(
        project.project_id,
        text(asked.get("state"), "state"),  # type: ignore[arg-type]  # the store checks it
        label_id=None if label is None else whole(label, "label"),
        reviewer_id=None if reviewer is None else whole(reviewer, "reviewer"),
        offset=max(0, whole(asked.get("offset", 0), "offset")),
        limit=PAGE,
    )
    people = store.reviewers(project.project_id)
    said = {"total": total, "cards": _cards(store, project, page)}
    return said | {"reviewers": [{"id": one, "name": name} for one, name in people.items()]}


def agreed(
    store: Store, project: StoredProject, _: Member, asked: Mapping[str, Any]
) -> dict[str, int]:
    """How many undecided samples agree by a share, and how many do not."""
    fits, not_ = store.agreed(project.project_id, _share(asked))
    return {"agreed": fits, "differing": not_}


def together(
    store: Store, project: StoredProject, account: Member, asked: Mapping[str, Any]
) -> dict[str, int]:
    """Decide many samples by agreement, or take back what was decided so; how many they were."""
    uuid = text(asked.get("uuid"), "uuid")
    decision = Adjudication(
        project_id=project.project_id,
        sample_id=0,
        user_id=account.user_id,
        label_id=None,
        client_uuid=uuid,
    )
    if asked.get("undo"):
        count = store.reopen_together(decision, text(asked["undo"], "undo"))
        store.log(account.name, "decisions taken back", f"{project.name}, {count} samples")
    else:
        accept = asked.get("accept") is True
        expected = whole(asked.get("expected"), "expected")
        count = store.decide_together(
            decision, share=_share(asked), accept=accept, expected=expected
        )
        did = "accepted by agreement" if accept else "excluded by agreement"
        store.log(account.name, did, f"{project.name}, {count} samples")
    return {"count": count}


def _share(asked: Mapping[str, Any]) -> float:
    share = asked.get("share")
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise StoreError(f"share = {share!r:.80}: give a number")
    return float(share)


def _store_decisions(
    store: Store, project: StoredProject, account: Member, events: object
) -> _Receipts:
    receipts = _Receipts()
    for event in events[:MOST_EVENTS] if isinstance(events, list) else []:
        uuid = event.get("uuid") if isinstance(event, Mapping) else None
        if not is_id(uuid):
            receipts.error = "A decision came without an id of its own and was not stored."
            break
        try:
            if not _take_one(store, project, account, uuid, event):
                receipts.stale.append(whole_number(event, "sample_id"))
        except StoreError as error:
            receipts.error = f"Not stored: {error}"
            break
        receipts.acked.append(uuid)
    return receipts


def _take_one(
    store: Store,
    project: StoredProject,
    account: Member,
    uuid: str,
    event: Mapping[str, Any],
) -> bool:
    reopens = event.get("kind") == "undo"
    label_id = None if event.get("label_id") is None else whole_number(event, "label_id")
    decision = Adjudication(
        project_id=project.project_id,
        sample_id=whole_number(event, "sample_id"),
        user_id=account.user_id,
        label_id=None if reopens else label_id,
        note=text_or_none(event, "note") or "",
        client_uuid=uuid,
        reopens=reopens,
    )
    gold = event.get("gold") is True and not reopens
    taken = store.adjudicate(decision, seen=text_or_none(event, "seen") or "", gold=gold)
    if taken:
        did = "decision taken back" if reopens else "decided"
        store.log(account.name, did, f"{project.name}, sample {decision.sample_id}")
    return taken


def _cards(store: Store, project: StoredProject, ids: list[int]) -> list[dict[str, Any]]:
    names = {} if project.blind else store.user_names()
    run = store.run(project.run_id)
    return [_card(one, project, run, names) for one in store.reviewed(project.project_id, ids)]


def _card(
    one: ReviewedSample, project: StoredProject, run: RunRecord, names: Mapping[int, str]
) -> dict[str, Any]:
    """A sample with what was said of it; by whom, where the project is not blind."""
    answers = [
        {"label": said.label_id, "note": said.note or "", "who": names.get(said.user_id, "")}
        for said in one.answers
    ]
    if project.blind:  # by order of answering a reviewer would know who is who
        answers.sort(key=lambda said: (said["label"] is None, said["label"] or 0))
    card = shown(one.sample, project, run) | {
        "answers": answers,
        "last": one.last,
        "decided": one.decision is not None,
        "label": one.final_label_id,
        "gold": one.gold_label_id is not None,
    }
    if one.decision is not None:
        day = f"{one.decision.created_at:%Y-%m-%d}"
        card |= {"by": one.decision.reviewer, "day": day, "note": one.decision.note}
    return card


WORK: dict[str, Work] = {
    "review": review,
    "decisions": decisions,
    "agreed": agreed,
    "together": together,
}
"""What each address of the reviewers does."""
