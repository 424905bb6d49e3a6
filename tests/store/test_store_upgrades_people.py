"""Stores of earlier versions with labels in them: upgraded, killed half-way, still in use."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
import sqlalchemy as sa
from alembic import command
from store_builders import a_run
from test_store_upgrades import OLD, connected, migrate, table_names

from fedlens.store import SampleFilter, StoreVersionError, check, open_store, upgrade
from fedlens.store.upgrades import VERSION_TABLE

TEAMLESS = (
    "INSERT INTO projects VALUES (1, 'p', 'r', '', 'strip', 'stored', 1, '{}')",
    "INSERT INTO labels VALUES (1, 1, 'k', 'n', 'class')",
    "INSERT INTO labels VALUES (2, 1, 'l', 'm', 'class')",
    "INSERT INTO users VALUES (1, 'ann')",
    "INSERT INTO users VALUES (2, 'bob')",
)
SAID = "INSERT INTO annotations VALUES (:id, :uuid, 1, :sample, :user, :label, NULL, 9, NULL, '{}')"


def labelled_store(url: str, engine_name: str, revision: str) -> None:
    """A store of an earlier revision with four samples, three of them labelled, one by two."""
    moment = "2026-03-01 23:59:58.765432+00:00"
    migrate(url, "0001", command.upgrade)

    def own(statement: str) -> sa.TextClause:
        said = statement.replace("'{}')", f"'{moment}')") if "INTO runs" not in statement else ""
        said = said if "projects" in statement or "annotations" in statement else statement
        return sa.text(said if engine_name != "sqlite" else said.replace("+00:00", ""))

    with connected(url) as connection:
        for statement in (*OLD, *TEAMLESS):
            connection.execute(own(statement))
        for number in range(1, 5):
            sample = sa.text("INSERT INTO samples VALUES (:n, 1, :n, 3, :png, 's')")
            connection.execute(sample, {"n": number, "png": b"png"})
        answers = ((1, 1, 1, 1), (2, 2, 1, 1), (3, 3, 1, 1), (4, 1, 2, 2))
        for number, about, user, label in answers:
            values = {"id": number, "sample": about, "user": user, "label": label}
            connection.execute(own(SAID), values | {"uuid": f"u{number}"})
    if revision != "0001":
        migrate(url, revision, command.upgrade)


@pytest.mark.parametrize("revision", ["0001", "0002", "0003", "0004", "0005"])
def test_labels_of_an_older_store_are_kept_and_counted(
    empty_url: str, engine_name: str, revision: str
) -> None:
    labelled_store(empty_url, engine_name, revision)
    assert upgrade(empty_url).ok
    with open_store(empty_url) as store:
        assert [one.sample_id for one in store.annotations(1)] == [1, 2, 3, 1]
        progress = store.progress(1, 1)
        assert (progress.total, progress.done) == (4, 3)
        assert store.disputed(1) == [1]
        assert store.accounts() == []
        desk = store.serve(1, 1, "tab")
        assert [one.sample_id for one in desk.samples] == [4]
        # An earlier annotator gets an account, and the answers stay theirs.
        assert store.add_account("ann", "annotator", "long enough", actor="test").user_id == 1


def test_tags_of_an_older_store_stay_and_downgrading_takes_their_history_alone(
    empty_url: str, engine_name: str
) -> None:
    labelled_store(empty_url, engine_name, "0005")
    tagged = "INSERT INTO sample_tags VALUES (1, 'turned', 'r', 'ann')"
    with connected(empty_url) as connection:
        connection.execute(sa.text(tagged))
    assert upgrade(empty_url).ok
    with open_store(empty_url) as store:
        assert store.tags("r") == {"turned": 1} and store.tag_history("r") == []
        store.untag_samples([1], "turned", author="bob")
        store.tag_samples([2], "blurred", author="ann")
        assert len(store.tag_history("r")) == 2
        assert [one.sample_id for one in store.samples(SampleFilter(run_id="r", label_id=1))] == [
            1,
            2,
            3,
        ]
    migrate(empty_url, "0005")
    assert "tag_entries" not in table_names(empty_url)
    with connected(empty_url) as connection:
        names = {one["name"] for one in sa.inspect(connection).get_indexes("annotations")}
        assert {"ix_annotations_label_id"} <= names and "ix_annotations_label" not in names
        tags = connection.execute(sa.text("SELECT tag FROM sample_tags")).scalars().all()
    assert list(tags) == ["blurred"]
    assert upgrade(empty_url).ok


KILLED = """
import os, signal, sys
from fedlens.store import upgrade, upgrades

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

upgrades._status = die
upgrade(sys.argv[1])
"""


def test_an_upgrade_that_is_killed_leaves_the_older_store_whole(
    empty_url: str, engine_name: str
) -> None:
    """After all its statements, before the last one took hold."""
    labelled_store(empty_url, engine_name, "0002")
    ended = subprocess.run([sys.executable, "-c", KILLED, empty_url], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert check(empty_url).current == "0002"
    assert "accounts" not in table_names(empty_url)
    assert upgrade(empty_url).ok
    with open_store(empty_url) as store:
        assert len(store.annotations(1)) == 4


def test_an_older_program_writes_nothing_into_a_store_that_was_upgraded(url: str) -> None:
    """It had the store open; what it would write has no place for what is newer."""
    with open_store(url) as store:
        store.create_run(a_run())
        with connected(url) as connection:
            connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
        for write in (
            lambda: store.create_run(a_run(run_id="other")),
            lambda: store.undo(1, 1),
        ):
            with pytest.raises(StoreVersionError, match="9999 meanwhile"):
                write()
        assert [run.run_id for run in store.runs()] == ["run-1"]


def test_sessions_and_leases_outlive_an_upgrade(url: str) -> None:
    """An upgrade does nothing to a store that is at its revision, also while people work in it."""
    with open_store(url) as store:
        member = store.add_account("ann", "annotator", "long enough", actor="test")
        token = store.sign_in(member, 60)
        assert upgrade(url).ok
        assert store.signed_in(token) == member
