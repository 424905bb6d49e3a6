"""What travels between a desk and the dashboard: checked fields in, samples out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from starlette.requests import Request

from fedlens.dashboard.samples.batches import is_intact
from fedlens.dashboard.samples.images import base64_text
from fedlens.store import Member, RunRecord, Store, StoredProject, StoredSample, StoreError

Work: TypeAlias = Callable[[Store, StoredProject, Member, Mapping[str, Any]], Any]
"""What an address of a desk does with what was asked; gives back what the browser is told."""

LARGEST_REQUEST = 512 * 1024
DAMAGED = "Damaged in the store: this picture is not what was drawn. Skip or exclude it."


async def read_body(request: Request) -> dict[str, Any] | None:
    """The JSON object that was sent; None where it is none, or too large."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > LARGEST_REQUEST:
            return None
    try:
        found = json.loads(content)
        # Halves of letters, which JSON may hold, are no text that a database takes.
        json.dumps(found, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def shown(sample: StoredSample, project: StoredProject, run: RunRecord) -> dict[str, Any]:
    """A sample for a desk; what it was requested for is told where the project is not blind."""
    said: dict[str, Any] = {"id": sample.sample_id, "png": base64_text(sample.png)}
    if not project.blind and sample.requested_class is not None:
        said["hint"] = f"requested as {run.name_of_class(sample.requested_class)}"
    if not is_intact(sample):
        said["hint"] = DAMAGED
    return said


def tab_of(asked: Mapping[str, Any]) -> str:
    """The name of the tab that asks.

    Raises:
        StoreError: it has none.
    """
    return text(asked.get("tab"), "tab")


def text(value: object, name: str) -> str:
    """A text as it came.

    Raises:
        StoreError: it is none.
    """
    if not isinstance(value, str):
        raise StoreError(f"{name} = {value!r:.80}: give a text")
    return value


def whole(value: object, name: str) -> int:
    """A whole number as it came.

    Raises:
        StoreError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise StoreError(f"{name} = {value!r:.80}: give a whole number")
    return value


def listed(value: object, name: str) -> list[object]:
    """A list as it came.

    Raises:
        StoreError: it is none.
    """
    if not isinstance(value, list):
        raise StoreError(f"{name} = {value!r:.80}: give a list")
    return value
