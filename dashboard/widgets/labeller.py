"""The labelling desk: one sample, one key a label, and a queue kept in the browser.

Keys may come faster than a page can be redrawn, so the browser decides which sample a key belongs
to: the one on the screen. Each answer travels with its sample's id and an id of its own, is kept
in the browser's storage until the server has acknowledged it, and is sent again if need be. It goes
to `fedlens.dashboard.labelling.desk_api` and not through Streamlit: no page has to be redrawn for
it, and a server that was started anew takes it as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from fedlens.dashboard.widgets.display import asset
from fedlens.store import StoredLabel, StoredProject

# One script to the browser: a component's parts cannot import each other without a bundler.
SCRIPTS = ("labeller.js", "labeller_drawing.js", "labeller_review.js")
_DESK = st.components.v2.component(
    "fedlens_labeller",
    html="<div></div>",
    css=asset("labeller.css"),
    js="\n".join(map(asset, SCRIPTS)),
)


def desk_data(
    scope: str, project: StoredProject, labels: Sequence[StoredLabel], *, review: bool = False
) -> dict[str, Any]:
    """What the desk is told once; everything else it asks for itself.

    Args:
        scope: names store, project and annotator; unsent answers are kept under it.
        project: on the desk.
        labels: the project's.
        review: whether decisions about others' answers are made on it.
    """
    return {
        "opened_on": scope,
        "scope": f"{scope}-review" if review else scope,
        "review": review,
        "project": project.project_id,
        "several": project.several,
        "labels": [
            {"id": label.label_id, "key": label.key, "name": label.name, "kind": label.kind}
            for label in labels
        ],
    }


def labeller(data: Mapping[str, Any], *, key: str) -> None:
    """Put the desk on the page."""
    _DESK(data=dict(data), key=key)
