"""Runs over data without labels: no page calls them a class, and people make the label set."""

from __future__ import annotations

import re
from collections.abc import Callable

import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.labelling.agreement_tables import class_table, title_of
from fedlens.dashboard.labelling.project_form import labels_of_names
from fedlens.store import Annotation, LabelRecord, Store, StoreError

Opener = Callable[..., AppTest]
PEOPLE_S = (
    LabelRecord(key="r", name="ring"),
    LabelRecord(key="s", name="star"),
    LabelRecord(key="x", name="artefact", kind="artefact"),
)


def shown(app: AppTest) -> str:
    """Everything that a page says, the names of its fields too."""
    kinds = ("markdown", "caption", "info", "warning", "error", "title", "subheader", "html")
    parts = [str(one.value) for kind in kinds for one in app.get(kind)]
    fields = [
        one.label for kind in ("selectbox", "checkbox", "text_input") for one in app.get(kind)
    ]
    return "\n".join([*parts, *fields])


@pytest.fixture
def unlabelled(store_at: tuple[str, Store]) -> Store:
    populated.whole_run(store_at[1], labelled=False)
    return store_at[1]


@pytest.mark.parametrize("page", ["runs", "run", "diagnosis", "samples", "compare", "annotate"])
def test_no_page_calls_unlabelled_samples_a_class(
    open_page: Opener, unlabelled: Store, page: str
) -> None:
    populated.add_project(unlabelled, labels=PEOPLE_S)
    app = open_page(page)
    assert not app.exception
    said = re.sub(r"<style>.*?</style>|class=\"[^\"]*\"", "", shown(app), flags=re.DOTALL)
    assert not re.search(r"\bclass\b|\bclass(es)? ?\d", said), said


def test_results_of_unlabelled_samples_need_no_classes(
    open_page: Opener, unlabelled: Store
) -> None:
    project = populated.add_project(unlabelled, labels=PEOPLE_S, order="stored")
    labels, user = unlabelled.labels(project), unlabelled.ensure_user("ann")
    for place, sample in enumerate(unlabelled.queue(project, user, 6)):
        unlabelled.annotate(
            Annotation(
                client_uuid=str(place),
                project_id=project,
                sample_id=sample.sample_id,
                user_id=user,
                label_id=labels[place % 3].label_id,
            )
        )
    app = open_page("results")
    assert not app.exception
    assert title_of(unlabelled.label_table(project)) == "Labels of unlabelled samples"
    table = class_table(unlabelled.label_table(project), labels, unlabelled.run("run-1"))
    assert table.rows == ["unlabelled"]
    assert table.counts[0][table.names.index("ring")] == 2


def test_people_make_the_label_set_of_unlabelled_samples(
    open_page: Opener, unlabelled: Store
) -> None:
    app = open_page("annotate")
    names = next(one for one in app.text_input if one.label == "Names of the labels")
    names.set_value("ring, star; cross").run()
    unknown = next(one for one in app.checkbox if "unknown" in one.label)
    unknown.uncheck().run()
    app.button[-1].click().run()
    assert not app.exception
    (project,) = unlabelled.projects()
    assert [(one.name, one.key, one.kind) for one in project.labels] == [
        ("ring", "i", "class"),  # r is a key of the page itself
        ("star", "s", "class"),
        ("cross", "o", "class"),
        ("artefact", "x", "artefact"),
    ]


def test_names_have_keys_of_their_own() -> None:
    labels = labels_of_names("cat, cab, cat-like\n", unknown=True, artefact=True)
    assert len({one.key for one in labels}) == 5
    assert [one.kind for one in labels] == ["class"] * 3 + ["unknown", "artefact"]
    assert not {"u", "c", "r"} & {one.key for one in labels}


@pytest.mark.parametrize(
    ("text", "said"),
    [("cat, cat", "twice"), (",".join(f"n{place}" for place in range(40)), "need a key")],
)
def test_names_that_cannot_be_labels_are_refused(text: str, said: str) -> None:
    with pytest.raises(StoreError, match=said):
        labels_of_names(text, unknown=True, artefact=True)
