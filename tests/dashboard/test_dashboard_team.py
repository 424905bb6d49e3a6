"""Each role on each page, and what people on a team may and may not do."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace

import populated
import pytest
from streamlit.testing.v1 import AppTest

from fedlens.dashboard.labelling.agreement_tables import class_table
from fedlens.store import Annotation, Role, Store

Opener = Callable[..., AppTest]
LOOK = {"runs", "run", "samples", "results", "privacy", "privatizers"}
SEEN: dict[Role, set[str]] = {
    "viewer": LOOK,
    "annotator": {"annotate"},
    "reviewer": LOOK | {"annotate", "review"},
    "engineer": LOOK | {"annotate", "review"},
    "officer": LOOK,
    "admin": LOOK | {"annotate", "review", "team"},
}
TITLES = {
    "runs": "Runs",
    "samples": "Samples",
    "privacy": "Privacy",
    "results": "Results",
    "annotate": "Annotate",
    "review": "Review",
    "team": "Team",
}


def words(app: AppTest) -> str:
    parts = [*app.markdown, *app.caption, *app.info, *app.error, *app.warning, *app.success]
    metrics = [f"{metric.label} {metric.value}" for metric in app.metric]
    return "\n".join([*(str(part.value) for part in parts), *metrics])


@pytest.fixture
def team(store_at: tuple[str, Store]) -> tuple[Store, int]:
    """A project that two people have answered, differing on one sample of five."""
    store = store_at[1]
    populated.whole_run(store, count=20)
    project = populated.add_project(store, overlap=2, name="<b>digits</b>")
    labels = [label.label_id for label in store.labels(project)]
    for name, said in (("ann", (0, 1, 2, 3, 11)), ("bob *", (0, 1, 2, 4, 11))):
        user = store.ensure_user(name)
        for sample, label in zip(store.queue(project, user, 5), said, strict=True):
            store.annotate(
                Annotation(
                    client_uuid=str(uuid.uuid4()),
                    project_id=project,
                    sample_id=sample.sample_id,
                    user_id=user,
                    label_id=labels[label],
                    lead_ms=800,
                    note="<script>alert(1)</script>" if label == 4 else None,
                )
            )
    return store, project


def as_role(store: Store, role: Role) -> None:
    store.add_account("tester", role, actor="test")


@pytest.mark.parametrize("role", list(SEEN))
@pytest.mark.parametrize("page", list(TITLES))
@pytest.mark.law("access: rights are checked at every action")
def test_a_role_has_its_pages_and_no_others(
    open_page: Opener, team: tuple[Store, int], role: Role, page: str
) -> None:
    as_role(team[0], role)
    app = open_page(page)
    assert not app.exception
    shown = {title.value for title in app.title}
    assert (TITLES[page] in shown) == (page in SEEN[role])


@pytest.mark.parametrize("page", ["review", "results", "team", "annotate"])
def test_pages_explain_an_empty_store(open_page: Opener, page: str) -> None:
    app = open_page(page)
    assert not app.exception
    assert page == "team" or "yet" in words(app)


def test_a_disabled_account_sees_nothing(open_page: Opener, team: tuple[Store, int]) -> None:
    as_role(team[0], "admin")
    team[0].add_account("other", "admin", actor="test")
    team[0].set_disabled("tester", True, actor="test")
    app = open_page("runs")
    assert not app.exception
    assert not app.title


def test_only_engineers_make_projects(open_page: Opener, team: tuple[Store, int]) -> None:
    as_role(team[0], "reviewer")
    made = [b.label for b in open_page("annotate").button]
    assert "Create project" not in made
    team[0].set_role("tester", "engineer", actor="test")
    assert "Create project" in [b.label for b in open_page("annotate").button]


def test_a_reviewer_sees_agreement(open_page: Opener, team: tuple[Store, int]) -> None:
    store, project = team
    as_role(store, "reviewer")
    text = words(open_page("review", project=str(project)))
    assert "Agreement (alpha) 0.7" in text
    assert "Differing, undecided 1" in text
    assert "The project is blind" in text


def test_results_count_labels_by_requested_class(
    open_page: Opener, team: tuple[Store, int]
) -> None:
    store, project = team
    as_role(store, "viewer")
    app = open_page("results", project=str(project))
    assert not app.exception
    text = words(app)
    assert "Samples answered 5" in text
    assert "Artefacts 25.0%" in text  # 1 of 4 that have a label
    run = store.run("run-1")
    table = class_table(store.label_table(project), store.labels(project), run)
    assert table.counts[table.rows.index("1")][table.names.index("class 1")] == 1
    assert table.counts[table.rows.index("3")][table.names.index("no label")] == 1
    assert table.expected[table.rows.index("3")] == 3
    labels = store.labels(project)
    kinds = replace(run, class_names=tuple(f"kind {one}" for one in range(10)))
    renamed = [replace(one, name=one.name.replace("class", "kind")) for one in labels]
    for said in (labels, renamed):  # both stand for the classes
        other = class_table(store.label_table(project), said, kinds)
        assert other.rows == list(kinds.class_names[: len(other.rows)])
        assert other.expected == table.expected
    odd = replace(run, class_names=("artefact",))
    assert class_table(store.label_table(project), labels, odd).expected[0] == 0
    cell = f"{table.rows.index('3')}-{table.names.index('no label')}"
    named = words(open_page("results", project=str(project), cell=cell))
    assert "1 samples of class 3 that count as no label" in named
    for odd in ("99-0", "0-99", "x", "9" * 30):
        assert not open_page("results", project=str(project), cell=odd).exception
    assert "Reviewers, engineers and admins export labels" in text


def test_a_reviewer_may_export(open_page: Opener, team: tuple[Store, int]) -> None:
    as_role(team[0], "reviewer")
    app = open_page("results", project=str(team[1]))
    assert not app.exception
    assert len(app.get("download_button")) == 6


def test_an_admin_keeps_accounts(open_page: Opener, team: tuple[Store, int]) -> None:
    store = team[0]
    as_role(store, "admin")
    app = open_page("team")
    app.text_input[0].set_value("cy@example.org")
    app.text_input[1].set_value("long enough")
    next(b for b in app.button if b.label == "Add account").click().run()
    assert not app.exception
    accounts = {one.name: one for one in store.accounts()}
    assert accounts["cy@example.org"].role == "annotator"
    number = accounts["cy@example.org"].user_id
    app.selectbox(key=f"role-{number}-annotator").set_value("reviewer").run()
    app.button(key=f"disable-{number}").click().run()
    changed = {one.name: one for one in store.accounts()}["cy@example.org"]
    assert (changed.role, changed.disabled) == ("reviewer", True)
    said = [(one.actor, one.action) for one in store.log_entries(3)]
    assert said == [
        ("tester", "account disabled"),
        ("tester", "role changed"),
        ("tester", "account added"),
    ]
    assert app.button(key=f"disable-{accounts['tester'].user_id}").disabled


@pytest.mark.parametrize(
    ("name", "password", "words_"),
    [
        ("<b>x</b>", "long enough", "name = "),
        ("dee", "short", "password of 5"),
        ("tester", "long enough", "already"),
    ],
)
def test_accounts_that_cannot_be_are_refused(
    open_page: Opener, team: tuple[Store, int], name: str, password: str, words_: str
) -> None:
    as_role(team[0], "admin")
    app = open_page("team")
    app.text_input[0].set_value(name)
    app.text_input[1].set_value(password)
    next(b for b in app.button if b.label == "Add account").click().run()
    assert not app.exception
    assert words_ in app.error[0].value
    assert [one.name for one in team[0].accounts()] == ["tester"]
