"""Pages and exporters of another package that is installed are found and used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.store import EXPORTERS, Annotation, Store

MODULE = """
import streamlit as st
from fedlens.dashboard.widgets.pages import DashboardPage
from fedlens.dashboard.access.session import store

class Count:
    title, suffix, media_type = "How many", ".txt", "text/plain"
    def export(self, samples):
        return str(len(samples)).encode()

COUNT = Count()
PAGE = DashboardPage("Census", ":material/star:", "census", 5, lambda: st.write(
    f"{len(store().runs())} runs"
))
"""
ENTRY_POINTS = """
[fedlens.dashboard_pages]
census = outside_plugins:PAGE
broken = outside_plugins:ABSENT

[fedlens.exporters]
count = outside_plugins:COUNT
"""


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a page, an exporter, and a page that cannot be loaded."""
    folder = tmp_path / "site"
    metadata = folder / "outside-1.0.dist-info"
    metadata.mkdir(parents=True)
    (folder / "outside_plugins.py").write_text(MODULE)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(folder)


def words(app: AppTest) -> str:
    return "\n".join(str(part.value) for part in [*app.markdown, *app.warning])


@pytest.mark.usefixtures("outside")
def test_a_page_of_another_package_is_shown_and_a_broken_one_named(
    open_page: Callable[..., AppTest], store_at: tuple[str, Store]
) -> None:
    populated.whole_run(store_at[1])
    app = open_page("census")
    assert not app.exception
    assert "1 runs" in words(app)
    assert "'broken' (outside_plugins:ABSENT) cannot be loaded" in words(app)


@pytest.mark.usefixtures("outside")
def test_labels_are_offered_for_download_by_every_exporter(
    open_page: Callable[..., AppTest], store_at: tuple[str, Store]
) -> None:
    store = store_at[1]
    populated.whole_run(store)
    project = populated.add_project(store)
    user = store.ensure_user("tester")
    assert not open_page("results").get("download_button")
    store.annotate(
        Annotation(
            client_uuid="one",
            project_id=project,
            sample_id=store.queue(project, user)[0].sample_id,
            user_id=user,
            label_id=store.labels(project)[0].label_id,
        )
    )
    app = open_page("results")
    assert not app.exception
    titles = [button.label for button in app.get("download_button")]
    assert [one for one in titles if "interface" not in one] == [
        exporter.title for exporter in EXPORTERS.values()
    ]
    assert "How many" in titles, "the other package's"
