"""The schema: made by migrations alone, the same on both engines, with no place for real data."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from store_builders import a_run

from fedlens.store import StoreError, StoreVersionError, check, open_store, upgrade
from fedlens.store.engine import locate, make_engine
from fedlens.store.schema import Base
from fedlens.store.upgrades import VERSION_TABLE, migrations


@contextlib.contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    engine = make_engine(locate(url), create=True, foreign_keys=False)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def downgrade(url: str) -> None:
    with connected(url) as connection:
        config = migrations()
        config.attributes["connection"] = connection
        command.downgrade(config, "base")


def table_names(url: str) -> set[str]:
    with connected(url) as connection:
        return set(sa.inspect(connection).get_table_names())


def test_upgrading_an_empty_place_leaves_no_drift(empty_url: str) -> None:
    status = upgrade(empty_url)
    assert (status.current, status.drift) == (status.head, [])
    assert check(empty_url) == status
    assert table_names(empty_url) == {*Base.metadata.tables, VERSION_TABLE}


def test_upgrading_again_keeps_what_is_there(url: str) -> None:
    with open_store(url) as store:
        store.create_run(a_run())
    assert upgrade(url).ok
    with open_store(url, create=True) as store:
        assert store.runs() == [a_run()]


def test_down_and_up_again(url: str) -> None:
    downgrade(url)
    assert table_names(url) == {VERSION_TABLE}
    status = check(url)
    assert status.current is None
    assert "add_table samples" in status.drift
    assert not status.ok
    assert upgrade(url).ok


def test_drift_is_said_in_words(url: str) -> None:
    with connected(url) as connection:
        connection.execute(sa.text("ALTER TABLE runs ADD COLUMN extra INTEGER"))
        connection.execute(sa.text("DROP INDEX ix_samples_sha256"))
    status = check(url)
    assert status.current == status.head
    assert not status.ok
    assert len(status.drift) == 2
    assert any("remove_column" in item and "extra" in item for item in status.drift)
    assert any("add_index ix_samples_sha256" in item for item in status.drift)


def tables_in(url: str) -> dict[str, Any]:
    """Every table of the schema, as the engine describes it."""
    with connected(url) as connection:
        inspector = sa.inspect(connection)
        names = {*inspector.get_table_names()} - {VERSION_TABLE}
        return {
            name: {
                "columns": in_words(inspector.get_columns(name)),
                "key": in_words([inspector.get_pk_constraint(name)]),
                "unique": in_words(inspector.get_unique_constraints(name)),
                "foreign": in_words(inspector.get_foreign_keys(name)),
                "indexes": in_words(inspector.get_indexes(name)),
            }
            for name in names
        }


def in_words(parts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Parts of a table in an order of their own; conditions and types by their text."""
    return sorted(str([(k, text_of(v)) for k, v in sorted(part.items())]) for part in parts)


def text_of(value: Any) -> str:
    return str({k: str(v) for k, v in value.items()} if isinstance(value, dict) else value)


def test_migrations_make_the_very_tables_of_the_schema(empty_url: str) -> None:
    """With names and conditions of keys and indexes, which Alembic's own comparison leaves out."""
    with connected(empty_url) as connection:
        Base.metadata.create_all(connection)
    declared = tables_in(empty_url)
    with connected(empty_url) as connection:
        Base.metadata.drop_all(connection)
    assert upgrade(empty_url).ok
    assert tables_in(empty_url) == declared


def test_an_old_store_is_refused_with_the_command_to_run(url: str) -> None:
    downgrade(url)
    with pytest.raises(StoreVersionError, match=r"fedlens db upgrade --store \S+"):
        open_store(url)
    assert table_names(url) == {VERSION_TABLE}


def test_a_newer_store_is_refused_and_left_alone(url: str) -> None:
    with connected(url) as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    for opening in (lambda: open_store(url), lambda: open_store(url, create=True)):
        with pytest.raises(StoreVersionError, match="newer"):
            opening()
    assert check(url).current == "9999"


def test_a_database_of_something_else_is_left_alone(empty_url: str) -> None:
    with connected(empty_url) as connection:
        connection.execute(sa.text("CREATE TABLE users (mail VARCHAR)"))
    with pytest.raises(StoreError, match=r"something else \(users\)"):
        upgrade(empty_url)
    with pytest.raises(StoreVersionError):
        open_store(empty_url)
    assert table_names(empty_url) == {"users"}


def test_another_program_s_tables_may_stand_beside_on_postgres(
    empty_url: str, engine_name: str
) -> None:
    if engine_name == "sqlite":
        pytest.skip("a SQLite file is one program's")
    with connected(empty_url) as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR)"))
        connection.execute(sa.text("CREATE TABLE invoices (total INTEGER)"))
    assert upgrade(empty_url).ok
    downgrade(empty_url)
    assert table_names(empty_url) == {"alembic_version", "invoices", VERSION_TABLE}


def test_a_migration_that_fails_leaves_nothing_behind(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_pretrained: object) -> None:
        raise RuntimeError("died after the tables were made")

    with monkeypatch.context() as patch:
        patch.setattr("fedlens.store.upgrades._status", failing)
        with pytest.raises(RuntimeError):
            upgrade(empty_url)
    assert table_names(empty_url) == set()
    assert upgrade(empty_url).ok


@pytest.mark.law("3: the store has no place for a real record")
def test_the_only_binary_column_is_a_sample_s_png(url: str) -> None:
    declared = {
        f"{table.name}.{column.name}"
        for table in Base.metadata.sorted_tables
        for column in table.columns
        if isinstance(column.type, sa.LargeBinary)
    }
    with connected(url) as connection:
        inspector = sa.inspect(connection)
        real = {
            f"{table}.{column['name']}"
            for table in inspector.get_table_names()
            for column in inspector.get_columns(table)
            if isinstance(column["type"], sa.LargeBinary)
        }
    assert declared == real == {"samples.png"}


def test_samples_come_from_ledgered_batches_alone() -> None:
    samples, batches = (Base.metadata.tables[name] for name in ("samples", "batches"))
    assert not samples.c.batch_id.nullable
    assert {key.target_fullname for key in samples.c.batch_id.foreign_keys} == {"batches.batch_id"}
    assert not batches.c.ledger_index.nullable
    assert {key.target_fullname for key in batches.c.ledger_index.foreign_keys} == {
        "ledger.ledger_index"
    }


KILLED = """
import os, signal, sys
from fedlens.store import upgrade, upgrades

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

upgrades._status = die
upgrade(sys.argv[1])
"""


def test_an_upgrade_that_is_killed_leaves_nothing_behind(empty_url: str) -> None:
    """After all its statements, before the last one took hold."""
    ended = subprocess.run([sys.executable, "-c", KILLED, empty_url], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert table_names(empty_url) == set()
    assert upgrade(empty_url).ok


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
