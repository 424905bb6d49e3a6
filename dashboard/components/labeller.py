"""The labelling desk: one sample, one key a label, and a queue kept in the browser.

Keys may come faster than a page can be redrawn, so the browser decides which sample a key belongs
to: the one on the screen. Each answer travels with its sample's id and an id of its own, is kept
in the browser's storage until the server has acknowledged it, and is sent again if need be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.components.assets import asset
from dashboard.images import base64_text
from server.store import LabellingProgress, StoredLabel, StoredSample

QUEUE_LENGTH = 60

_DESK = st.components.v2.component(
    "fedlens_labeller", html="<div></div>", css=asset("labeller.css"), js=asset("labeller.js")
)


def desk_data(
    *,
    scope: str,
    labels: Sequence[StoredLabel],
    queue: Sequence[StoredSample],
    progress: LabellingProgress,
    acked: Sequence[str],
    undone: Mapping[str, int | None],
    error: str | None,
) -> dict[str, Any]:
    """What the desk shows.

    Args:
        scope: names store, project and annotator; unsent answers are kept under it.
        labels: the project's labels.
        queue: the next samples without an answer.
        progress: as the server counts it.
        acked: ids of the answers that are safely stored.
        undone: for each acknowledged undo the sample it brought back, if any.
        error: why the last answers could not be stored.
    """
    return {
        "scope": scope,
        "labels": [
            {"id": label.label_id, "key": label.key, "name": label.name, "kind": label.kind}
            for label in labels
        ],
        "queue": [{"id": sample.sample_id, "png": base64_text(sample.png)} for sample in queue],
        "progress": {"total": progress.total, "done": progress.done, "skipped": progress.skipped},
        "acked": list(acked),
        "undone": dict(undone),
        "error": error,
    }


def labeller(data: Mapping[str, Any], *, key: str, on_answers: Callable[[object], None]) -> None:
    """Put the desk on the page; ``on_answers`` is given what the browser sends, unchecked."""

    def answered() -> None:
        on_answers(getattr(st.session_state.get(key), "answers", None))

    _DESK(data=dict(data), key=key, on_answers_change=answered)
