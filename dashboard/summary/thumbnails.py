"""Small pictures of runs, each at an address of its own: a browser asks for those that it shows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import anyio
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from fedlens.dashboard.access.auth import ACCOUNT
from fedlens.dashboard.samples import images
from fedlens.dashboard.samples.batches import drop_damaged, rank_batches
from fedlens.store import Member, SampleFilter, Store, StoreError

if TYPE_CHECKING:
    from starlette.requests import Request

CLASSES = 6
SECONDS_KEPT = 3600


def thumbnail_route(owner_of: Callable[[str], Store]) -> Route:
    """``GET /thumbnail/<run>``: a sample of each of the first classes of a run's newest batch.

    Args:
        owner_of: the store that knows a run.
    """

    async def endpoint(request: Request) -> Response:
        account = request.scope.get(ACCOUNT)
        if not isinstance(account, Member) or not account.may("look"):
            return PlainTextResponse("Your role does not look at runs.\n", 403)
        png = await anyio.to_thread.run_sync(_picture, owner_of, request.path_params["run_id"])
        if not png:
            return PlainTextResponse("There are no samples of such a run.\n", 404)
        kept = {"cache-control": f"private, max-age={SECONDS_KEPT}"}
        return Response(png, media_type="image/png", headers=kept)

    return Route("/thumbnail/{run_id}", endpoint, methods=["GET"])


def _picture(owner_of: Callable[[str], Store], run_id: str) -> bytes:
    try:
        store = owner_of(run_id)
        batches = rank_batches(store.batches(run_id))
        return _drawn(store, store.place, batches[0].batch_id, run_id) if batches else b""
    except StoreError:
        return b""


@lru_cache(maxsize=2048)
def _drawn(store: Store, _place: str, batch_id: int, run_id: str) -> bytes:
    classes = store.requested_classes(run_id)[:CLASSES]
    wanted = [SampleFilter(batch_id=batch_id, requested_class=one) for one in classes]
    found = [one for each in wanted for one in store.samples(each, limit=1)]
    if not classes:
        found = store.samples(SampleFilter(batch_id=batch_id), limit=CLASSES)
    pngs = [one.png for one in drop_damaged(found)]
    return images.to_png(images.sheet(pngs, len(pngs), 1)) if pngs else b""
