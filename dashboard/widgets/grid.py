"""A batch's samples as one grid that the browser fills, filters, sorts and enlarges by itself.

No page is redrawn for a click: fields, pixels and orders come from
`fedlens.dashboard.samples.gallery_api`, pictures only of the samples that are in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from fedlens.dashboard.widgets.display import asset
from fedlens.store import StoredBatch

SCRIPTS = ("grid.js", "grid_tiles.js", "grid_close_up.js", "grid_map.js")
"""One script to the browser: a component's parts cannot import each other without a bundler."""
_GRID = st.components.v2.component(
    "fedlens_grid",
    html="<div></div>",
    css=asset("grid.css"),
    js="\n".join(map(asset, SCRIPTS)),
)


@dataclass(frozen=True)
class Marks:
    """What may be given to samples on the grid."""

    tags: bool = False
    labels: Sequence[Mapping[str, Any]] = ()
    """Of each label that may be given ``id``, ``project`` and ``name``."""
    findings: Sequence[Mapping[str, Any]] = ()
    """Of each finding that takes evidence ``id`` and ``name``."""


def grid_data(
    run_id: str,
    batch: StoredBatch | None,
    *,
    count: int,
    shape: tuple[int, int, int],
    version: str,
    label_names: Mapping[int, str] | None = None,
    marks: Marks | None = None,
    classes: Sequence[int] | None = None,
    class_names: Sequence[str] = (),
) -> dict[str, Any]:
    """What the grid is told once; everything else it asks for itself.

    Args:
        run_id: whose samples are shown.
        batch: of which; ``None`` for all of the run.
        count: how many they are.
        shape: height, width and channels of a sample.
        version: tells these samples from others that had the same numbers.
        label_names: what labels are called, by id; left out of a plain grid, which has neither
            filters nor a close-up: a click there picks a sample.
        marks: what may be given to samples.
        classes: on a plain grid the classes that are shown; ``None`` for all.
        class_names: what people call the classes; empty where they have numbers alone.
    """
    given = marks or Marks()
    return {
        "run": run_id,
        "batch": "all" if batch is None else str(batch.batch_id),
        "words": "" if batch is None else f"round {batch.round}, {batch.purpose}",
        "count": count,
        "shape": list(shape),
        "version": version,
        "plain": label_names is None,
        "classes": None if classes is None else list(classes),
        "classNames": list(class_names),
        "names": {str(one): name for one, name in (label_names or {}).items()},
        "tags": given.tags,
        "labels": [dict(one) for one in given.labels],
        "findings": [dict(one) for one in given.findings],
    }


def grid(
    data: Mapping[str, Any], *, key: str, on_pick: Callable[[int], None] | None = None
) -> None:
    """Put the grid on the page.

    Args:
        data: of :func:`grid_data`.
        key: of the widget.
        on_pick: given the id of a sample that was clicked, on a plain grid.
    """

    def picked() -> None:
        said = getattr(st.session_state.get(key), "picked", None)
        if on_pick is not None and isinstance(said, int) and not isinstance(said, bool):
            on_pick(said)

    _GRID(data=dict(data), key=key, on_picked_change=picked)
