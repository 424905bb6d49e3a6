"""The sample browser's own address: fields, pixels and orders out, tags and labels in.

``/gallery/<run>/...`` stands beside Streamlit, so that no page is redrawn for a click.
``columns`` tells what is known of a batch's samples, ``pictures`` their pixels as they are stored,
``order`` and ``map`` what they look like, ``sample`` where one comes from; ``tag``, ``label`` and
``evidence`` take what was chosen. All stand behind `fedlens.dashboard.access.auth`, which says who
asks.
"""

from __future__ import annotations

import gzip
import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, get_args

import anyio
import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fedlens.dashboard.access.auth import ACCOUNT
from fedlens.dashboard.labelling.answers import MOST_EVENTS, store_answers
from fedlens.dashboard.labelling.wire import listed, read_body, text, whole
from fedlens.dashboard.samples.batches import batch_identity, intact_pixels
from fedlens.dashboard.samples.embedding import MAPS
from fedlens.dashboard.samples.order import Looks, looks_of, to_steps
from fedlens.dashboard.samples.whole import WHOLE, Whole, WholeOrder
from fedlens.dashboard.summary.badges import provenance
from fedlens.store import (
    Member,
    Permission,
    SampleColumns,
    SampleFilter,
    Store,
    StoreError,
)

PART = 20_000
"""Samples that are browsed at once; of a larger batch one part after another."""
MOST_PICTURES = 512
MOST_CHOSEN = 1000
TAG_LINES = 20
SECONDS_KEPT = 3600
_RANGES = re.compile(r"\d{1,10}(-\d{1,10})?(,\d{1,10}(-\d{1,10})?)*", re.ASCII)


@dataclass(frozen=True)
class Asked:
    """A request that was let in."""

    store: Store
    """That knows the run."""
    run_id: str
    account: Member
    """As that store numbers them."""
    given: Mapping[str, Any]
    """Parameters of the address, or the fields sent."""

    @property
    def wanted(self) -> SampleFilter:
        """The batch's samples, or all of the run."""
        batch = str(self.given.get("batch", ""))
        number = int(batch) if batch.isdecimal() and len(batch) < 10 else None
        return SampleFilter(run_id=self.run_id, batch_id=number)

    @property
    def offset(self) -> int:
        """Where the part begins."""
        part = str(self.given.get("part", ""))
        return PART * (int(part) if part.isdecimal() and len(part) < 10 else 0)

    @property
    def order(self) -> WholeOrder | None:
        """The order of the whole batch, of which the part is one; None for as stored."""
        given = str(self.given.get("order", ""))
        return next((one for one in get_args(WholeOrder) if one == given), None)

    @property
    def like(self) -> int:
        """The sample that others are compared with; 0 for none."""
        like = str(self.given.get("like", ""))
        return int(like) if like.isdecimal() and len(like) < 10 else 0


Work: TypeAlias = Callable[[Asked], Response]


def gallery_routes(home: Store, owner_of: Callable[[str], Store]) -> list[Route]:
    """The routes.

    Args:
        home: the dashboard's own store, which numbers the accounts.
        owner_of: the store that knows a run.
    """

    def route(path: str, work: Work, needs: Permission, method: str) -> Route:
        async def endpoint(request: Request) -> Response:
            account = request.scope.get(ACCOUNT)
            if not isinstance(account, Member) or not (account.may("look") and account.may(needs)):
                return PlainTextResponse(f"Your role does not {needs}.\n", 403)
            if method == "POST" and "x-fedlens-desk" not in request.headers:
                return PlainTextResponse("This address is the sample browser's.\n", 403)
            given = await read_body(request) if method == "POST" else dict(request.query_params)
            if given is None:
                return PlainTextResponse("Give a JSON object.\n", 400)
            run_id = request.path_params["run_id"]
            return await anyio.to_thread.run_sync(_do, work, home, owner_of, run_id, account, given)

        return Route(f"/gallery/{{run_id}}/{path}", endpoint, methods=[method])

    looks = [("columns", columns), ("pictures", pictures), ("order", order), ("map", places)]
    return [
        *(route(path, work, "look", "GET") for path, work in [*looks, ("sample", sample)]),
        route("tag", tag, "review", "POST"),
        route("label", label, "annotate", "POST"),
        route("evidence", evidence, "manage", "POST"),
    ]


def _do(
    work: Work,
    home: Store,
    owner_of: Callable[[str], Store],
    run_id: str,
    account: Member,
    given: Mapping[str, Any],
) -> Response:
    try:
        store = owner_of(run_id)
        store.run(run_id)
        if store.place != home.place and account.may("annotate"):
            account = replace(account, user_id=store.ensure_user(account.name))
        return work(Asked(store, run_id, account, given))
    except StoreError as error:
        return PlainTextResponse(f"{error}", 409)


def columns(asked: Asked) -> Response:
    """What is known of each sample of a part, without the pictures; how far the order of it is."""
    if asked.order is None:
        found = asked.store.sample_columns(asked.wanted, asked.offset, PART)
    else:
        whole = _whole(asked)
        if isinstance(whole, float):
            return JSONResponse({"share": whole}, 202)
        found = _columns_at(asked, whole)
    agreed = [None if one is None else round(one, 4) for one in found.agreements]
    said = {
        "ids": found.sample_ids,
        "classes": found.classes,
        "agreements": agreed,
        "labels": found.labels,
        "tags": found.tags,
    }
    return _packed(json.dumps(said, separators=(",", ":")).encode(), "application/json")


def _columns_at(asked: Asked, whole: Whole) -> SampleColumns:
    """The fields of a part of a whole batch's order."""
    chosen = _part_of(asked, whole)
    ids = whole.sample_ids[chosen].tolist()
    labels, tags = asked.store.sample_marks(ids)
    return SampleColumns(
        sample_ids=ids,
        classes=[None if one < 0 else one for one in whole.classes[chosen].tolist()],
        agreements=[None if one != one else one for one in whole.agreements[chosen].tolist()],
        labels=labels,
        tags=tags,
    )


def _part_of(asked: Asked, whole: Whole) -> NDArray[np.int64]:
    ranked = whole.ranked(asked.order or "oddest", asked.like, PART)
    return ranked[asked.offset : asked.offset + PART]


def pictures(asked: Asked) -> Response:
    """Pixels of samples: a byte for each, 1 where it is intact, then those of the intact ones.

    The pixels are the stored ones, uint8 [height, width, channels], each picture after the other.
    """
    ids = _ids_in(str(asked.given.get("ids", "")))
    known = {one.sample_id: one for one in asked.store.samples_by_id(ids)}
    found = [known.get(one) for one in ids]
    here = [one if one is not None and one.run_id == asked.run_id else None for one in found]
    pixels = [None if one is None else intact_pixels(one) for one in here]
    shape = next((one.shape for one in pixels if one is not None), None)
    intact = [one if one is not None and one.shape == shape else None for one in pixels]
    body = bytes(one is not None for one in intact)
    body += b"".join(np.moveaxis(one, 0, -1).tobytes() for one in intact if one is not None)
    response = _packed(body, "application/octet-stream")
    response.headers["cache-control"] = f"private, max-age={SECONDS_KEPT}"
    return response


def _ids_in(ranges: str) -> list[int]:
    """The numbers of a text such as ``3-5,9``.

    Raises:
        StoreError: it is another text, or they are too many.
    """
    ids: list[int] = []
    for part in ranges.split(",") if _RANGES.fullmatch(ranges) else []:
        first, _, last = part.partition("-")
        ids += range(int(first), min(int(last or first), int(first) + MOST_PICTURES) + 1)
    if not 0 < len(ids) <= MOST_PICTURES:
        raise StoreError(f"ids = {ranges!r:.80}: name 1 to {MOST_PICTURES} samples, as in 3-5,9")
    return ids


def _packed(body: bytes, kind: str) -> Response:
    response = Response(gzip.compress(body, 1), media_type=kind)
    response.headers["content-encoding"] = "gzip"
    return response


def _made_from(asked: Asked) -> tuple[object, ...]:
    batches = asked.store.batches(asked.run_id)
    chosen = [one for one in batches if asked.wanted.batch_id in (None, one.batch_id)]
    return (asked.store.place, *(batch_identity(one) for one in chosen))


def _looks(asked: Asked) -> Looks:
    return looks_of(asked.store, _made_from(asked), asked.wanted, asked.offset, PART)


def _whole(asked: Asked) -> Whole | float:
    return WHOLE.get(asked.store, _made_from(asked), asked.wanted)


def order(asked: Asked) -> Response:
    """The ids of a part: the oddest first, or those most like one."""
    looks, like = _looks(asked), str(asked.given.get("like", ""))
    if like.isdecimal() and int(like) in looks.sample_ids:
        return JSONResponse(looks.by_likeness(int(like)))
    return JSONResponse(looks.by_oddness())


def places(asked: Asked) -> Response:
    """Where the samples of a part lie on the map, in the order in which ``columns`` gives them.

    ``later``: a clearer map of them is being prepared.
    """
    if asked.order is None:
        features = _looks(asked).features
    else:
        whole = _whole(asked)
        if isinstance(whole, float):
            return JSONResponse({"share": whole}, 202)
        features = whole.features[_part_of(asked, whole)]
    made_from = _made_from(asked), asked.order, asked.like, asked.offset
    clear, later = MAPS.get(made_from, features)
    across, down = to_steps(features[:, :2] if clear is None else clear)
    return JSONResponse({"x": across, "y": down, "clear": clear is not None, "later": later})


def sample(asked: Asked) -> Response:
    """Where one sample comes from, and what was done with it."""
    number = str(asked.given.get("id", ""))
    found = asked.store.sample(int(number) if number.isdecimal() and len(number) < 10 else 0)
    if found.run_id != asked.run_id:
        raise StoreError(f"sample {number}: it is none of this run")
    store = asked.store
    batch = store.batch(found.batch_id)
    history = store.tag_history(asked.run_id, sample_id=found.sample_id, limit=TAG_LINES)
    said = store.labels_on(found.sample_id)
    return JSONResponse(
        {
            "provenance": provenance(store.run(asked.run_id), batch, found),
            "private": batch.private,
            "sha256": found.sha256,
            "labels": [f"{label or 'skipped'} ({project})" for project, label in said],
            "history": [
                f"{one.day:%Y-%m-%d}: tag “{one.tag}” {'given' if one.added else 'removed'} by "
                f"{one.actor}"
                for one in history
            ],
        }
    )


def tag(asked: Asked) -> Response:
    """Give samples a tag, or take it away; of how many it was."""
    ids, name = _chosen(asked), text(asked.given.get("tag"), "tag").strip()
    store, author = asked.store, asked.account.name
    if asked.given.get("on") is True:
        return JSONResponse({"count": store.tag_samples(ids, name, author=author)})
    gone = store.untag_samples(ids, name, author=author)
    run = store.run(asked.run_id)
    store.log(author, "tag taken away", f"{name}, {gone} samples of run {run.name}")
    return JSONResponse({"count": gone})


def label(asked: Asked) -> Response:
    """Answer for the asker that samples have a label; which of them were stored."""
    ids = _chosen(asked)
    project = asked.store.project(whole(asked.given.get("project"), "project"))
    if project.run_id != asked.run_id:
        raise StoreError(f"project {project.name!r}: it is of another run")
    if project.blind:
        raise StoreError(f"project {project.name!r} is blind: its samples are labelled at the desk")
    number = whole(asked.given.get("label"), "label")
    events = [{"uuid": str(uuid.uuid4()), "sample_id": one, "label_id": number} for one in ids]
    done, error = 0, None
    for place in range(0, len(events), MOST_EVENTS):
        sent = events[place : place + MOST_EVENTS]
        receipts = store_answers(asked.store, project.project_id, asked.account.user_id, sent)
        done, error = done + len(receipts.acked), receipts.error
        if error:
            break
    return JSONResponse({"count": done, "ids": ids[:done], "error": error})


def evidence(asked: Asked) -> Response:
    """Keep samples as evidence of a finding; how many were new."""
    number = whole(asked.given.get("finding"), "finding")
    if asked.store.finding(number).run_id != asked.run_id:
        raise StoreError(f"finding {number}: it is of another run")
    author = asked.account.name
    added = asked.store.add_samples_to_finding(number, _chosen(asked), author=author)
    return JSONResponse({"count": added})


def _chosen(asked: Asked) -> list[int]:
    """The samples that were chosen, each of the run.

    Raises:
        StoreError: there are none or too many, or one is not of the run.
    """
    ids = [whole(one, "ids") for one in listed(asked.given.get("ids"), "ids")]
    if not 0 < len(ids) <= MOST_CHOSEN:
        raise StoreError(f"{len(ids):,} samples are chosen: choose 1 to {MOST_CHOSEN:,}")
    found = asked.store.samples_by_id(ids)
    if len(found) != len(set(ids)) or any(one.run_id != asked.run_id for one in found):
        raise StoreError("ids: some are of no sample of this run")
    return ids
