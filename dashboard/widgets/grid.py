"""A page of up to 1,000 images as one sprite on one canvas; a click picks an image.

A thousand image elements take a browser some fifteen seconds, one canvas less than one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from fedlens.dashboard.samples.images import Sprite, base64_text
from fedlens.dashboard.widgets.display import asset

_STYLE = """
.grid { position: relative; }
.grid canvas {
  display: block;
  cursor: pointer;
  border-radius: 4px;
  image-rendering: pixelated;
}
.grid canvas:focus-visible { outline: 3px solid var(--st-primary-color); outline-offset: 2px; }
.grid .under {
  min-height: 1.5em;
  margin-top: 0.35rem;
  font-family: var(--st-font);
  font-size: 0.875rem;
  color: var(--st-text-color);
  opacity: 0.75;
}
"""
_GRID = st.components.v2.component(
    "fedlens_grid", html="<div></div>", css=_STYLE, js=asset("grid.js")
)


def grid_data(
    sprite: Sprite,
    ids: Sequence[int],
    names: Sequence[str],
    selected: int | None,
    factor: int,
    turn: int | None = None,
) -> dict[str, Any]:
    """What the canvas is drawn from.

    Args:
        sprite: the images.
        ids: an id for each image, in the sprite's order.
        names: what to call each image, shown under the pointer and read aloud.
        selected: id of the image to frame.
        factor: whole enlargement of each image.
        turn: where several may be chosen, a number; with another one none is chosen any more.

    Raises:
        ValueError: ids and names do not match the sprite.
    """
    if not len(ids) == len(names) == sprite.count:
        raise ValueError(
            f"{len(ids)} ids and {len(names)} names for a sprite of {sprite.count} images: "
            "give one of each per image"
        )
    return {
        "sprite": base64_text(sprite.png),
        "columns": sprite.columns,
        "width": sprite.width,
        "height": sprite.height,
        "ids": list(ids),
        "names": list(names),
        "selected": selected,
        "factor": factor,
        "several": turn is not None,
        "turn": turn,
    }


def grid(
    data: Mapping[str, Any],
    *,
    key: str,
    on_pick: Callable[[int], None],
    on_choose: Callable[[list[int]], None] | None = None,
) -> None:
    """Put the grid on the page.

    Args:
        data: of :func:`grid_data`.
        key: of the widget.
        on_pick: given the id of an image that was clicked.
        on_choose: given the ids of all that are chosen, where several may be.
    """

    def picked() -> None:
        sample_id = picked_id(getattr(st.session_state.get(key), "picked", None), data["ids"])
        if sample_id is not None:
            on_pick(sample_id)

    def chosen() -> None:
        ids = chosen_ids(getattr(st.session_state.get(key), "chosen", None), data["ids"])
        if ids is not None and on_choose is not None:
            on_choose(ids)

    _GRID(data=dict(data), key=key, on_picked_change=picked, on_chosen_change=chosen)


def chosen_ids(value: object, ids: Sequence[int]) -> list[int] | None:
    """The ids the browser sent, those that are shown, each once; ``None`` for what is no list."""
    if not isinstance(value, list):
        return None
    known = set(ids)
    whole = [one for one in value if isinstance(one, int) and not isinstance(one, bool)]
    return [one for one in dict.fromkeys(whole) if one in known]


def picked_id(value: object, ids: Sequence[int]) -> int | None:
    """The id the browser sent, if it is one of those shown."""
    known = isinstance(value, int) and not isinstance(value, bool) and value in ids
    return value if known and isinstance(value, int) else None
