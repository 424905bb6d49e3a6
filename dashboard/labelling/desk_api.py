"""The labelling desk's own address: answers in, samples out, beside Streamlit and not through it.

``POST /desk/<project>/sync`` stores answers, then serves samples; ``/leave`` gives back what lies
on a desk; ``/review``, ``/decisions``, ``/agreed`` and ``/together`` are the reviewers'
(`fedlens.dashboard.labelling.review_api`). All stand behind `fedlens.dashboard.access.auth`, which
says who asks; an answer is stored as that account's, whatever the browser sends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from fedlens.dashboard.access.auth import ACCOUNT
from fedlens.dashboard.labelling import review_api
from fedlens.dashboard.labelling.answers import scope_of, store_answers
from fedlens.dashboard.labelling.wire import (
    LARGEST_REQUEST,
    Work,
    listed,
    read_body,
    shown,
    tab_of,
    whole,
)
from fedlens.store import Desk, Member, Permission, RunRecord, Store, StoredProject, StoreError

LONGEST_NUMBER = 10
RECENT = 20


def desk_routes(store: Store, others: Callable[[], Sequence[Store]] = tuple) -> list[Route]:
    """The routes.

    Args:
        store: the dashboard's own.
        others: further stores whose projects are labelled here.
    """

    def route(path: str, work: Work, needs: Permission) -> Route:
        async def endpoint(request: Request) -> Response:
            return await _answer(request, store, others, work, needs)

        return Route(f"/desk/{{project_id}}/{path}", endpoint, methods=["POST"])

    return [
        route("sync", sync, "annotate"),
        route("leave", leave, "annotate"),
        *(route(path, work, "review") for path, work in review_api.WORK.items()),
    ]


def sync(store: Store, project: StoredProject, account: Member, asked: Mapping[str, Any]) -> Any:
    """Store the answers sent, lease the samples wanted; say what the desk is to show."""
    tab, project_id = tab_of(asked), project.project_id
    receipts = store_answers(store, project_id, account.user_id, asked.get("events"), tab=tab)
    desk = store.serve(
        project_id,
        account.user_id,
        tab,
        limit=whole(asked.get("want"), "want"),
        known=frozenset(whole(one, "known") for one in listed(asked.get("known"), "known")),
    )
    said: dict[str, Any] = {"acked": receipts.acked, "error": receipts.error}
    run = store.run(project.run_id)
    if asked.get("recent"):
        answers = store.recent_answers(project_id, account.user_id, RECENT)
        said["recent"] = [
            {"label": answer.label_id, "sample": shown(sample, project, run)}
            for answer, sample in answers
        ]
    return said | _served(desk, project, run)


def leave(store: Store, project: StoredProject, account: Member, asked: Mapping[str, Any]) -> Any:
    """Give back what lies on the desk."""
    store.release_desk(project.project_id, account.user_id, tab_of(asked))
    return {}


async def _answer(
    request: Request,
    store: Store,
    others: Callable[[], Sequence[Store]],
    work: Work,
    needs: Permission,
) -> Response:
    account = request.scope.get(ACCOUNT)
    if not isinstance(account, Member) or not account.may(needs):
        return PlainTextResponse(f"Your role does not {needs}: ask an admin for another one.", 403)
    if "x-fedlens-desk" not in request.headers:  # another site's page cannot send it
        return PlainTextResponse("This address is the labelling desk's.", 403)
    body = await read_body(request)
    if body is None:
        return PlainTextResponse(f"Give a JSON object of at most {LARGEST_REQUEST} bytes.", 400)
    number = request.path_params["project_id"]
    if not (number.isascii() and number.isdecimal() and len(number) < LONGEST_NUMBER):
        return PlainTextResponse("There is no such project.", 404)
    return await anyio.to_thread.run_sync(_work, store, others, int(number), account, body, work)


def _work(
    home: Store,
    others: Callable[[], Sequence[Store]],
    project_id: int,
    account: Member,
    body: Mapping[str, Any],
    work: Work,
) -> Response:
    try:
        for store in (home, *others()):
            project = _project(store, project_id, account, body)
            if project is not None:
                number = account.user_id if store is home else store.ensure_user(account.name)
                return JSONResponse(work(store, project, replace(account, user_id=number), body))
        home.project(project_id)
    except StoreError as error:
        return PlainTextResponse(f"The store cannot answer: {error}", 503)
    return PlainTextResponse(
        "This page was opened by somebody else or over another store: load it again.", 409
    )


def _project(
    store: Store, project_id: int, account: Member, body: Mapping[str, Any]
) -> StoredProject | None:
    """The project, if it is the one that the desk was opened on, as the desk's scope tells."""
    try:
        found = store.project(project_id)
    except StoreError:
        return None
    return found if body.get("scope") == scope_of(store.place, found, account.name) else None


def _served(desk: Desk, project: StoredProject, run: RunRecord) -> dict[str, Any]:
    return {
        "queue": [shown(sample, project, run) for sample in desk.samples],
        "progress": {
            "total": desk.progress.total,
            "done": desk.progress.done,
            "skipped": desk.progress.skipped,
        },
        "free_at": None if desk.free_at is None else desk.free_at.isoformat(),
    }
