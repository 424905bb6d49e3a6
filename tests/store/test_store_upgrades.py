"""The schema: made by migrations alone, the same on both engines, with no place for real data."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from store_builders import a_run

from fedlens.store import StoreError, StoreVersionError, check, open_store, upgrade
from fedlens.store.engine import locate, make_engine
from fedlens.store.migrations.versions.v0002_dates import NOT_KEPT
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


def migrate(url: str, revision: str, towards: Any = command.downgrade) -> None:
    with connected(url) as connection:
        config = migrations()
        config.attributes["connection"] = connection
        towards(config, revision)


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
    migrate(url, "base")
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


def test_constraints_are_the_schema_s(url: str) -> None:
    """Alembic compares neither primary nor unique keys' names on SQLite: looked up here."""
    with connected(url) as connection:
        inspector = sa.inspect(connection)
        for table in Base.metadata.sorted_tables:
            unique = {item["name"] for item in inspector.get_unique_constraints(table.name)}
            foreign = {item["name"] for item in inspector.get_foreign_keys(table.name)}
            indexes = {item["name"] for item in inspector.get_indexes(table.name)}
            wanted = {type(c): set() for c in table.constraints}  # type: ignore[var-annotated]
            for constraint in table.constraints:
                wanted[type(constraint)].add(constraint.name)
            assert unique == wanted.get(sa.UniqueConstraint, set())
            assert foreign == wanted.get(sa.ForeignKeyConstraint, set())
            assert {index.name for index in table.indexes} == indexes - unique


def test_an_old_store_is_refused_with_the_command_to_run(url: str) -> None:
    migrate(url, "base")
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
    migrate(empty_url, "base")
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


OLD = (
    "INSERT INTO runs VALUES ('r', 'n', 'finished', NULL, '{}', 'c', 'd', 'user', 9, 1, 1, true, "
    "'g', '2026-03-01 23:59:58.765432+00:00')",
    "INSERT INTO ledger VALUES ('r', 0, 1, '{}', 'p', 'h', '2026-03-01 23:59:58.765432+00:00')",
    "INSERT INTO rounds VALUES ('r', 1, '{}', 1, 1e-5, 1, 1, 1, 1e-10, 'rdp', '{}', '{}', 61.25)",
    "INSERT INTO batches VALUES (1, 'r', 1, 0, 'strip', 'x', 1, 0, 1, 1e-5, 1, 1, 1, 1e-10, true, "
    "'p', '2026-03-01 23:59:58.765432+00:00')",
    "INSERT INTO audits VALUES (1, 'r', 'noise', '2026-03-01 23:59:58.765432+00:00', 1, 1e-5, "
    "NULL, NULL, NULL, 'nothing-found', 'w')",
)


def test_an_old_store_s_times_become_dates_and_its_seconds_are_gone(
    empty_url: str, engine_name: str
) -> None:
    """Not only from the tables: no page of an SQLite file keeps them."""
    url = empty_url
    migrate(url, "0001", command.upgrade)
    with connected(url) as connection:
        for statement in OLD:
            if engine_name == "sqlite":  # which keeps times as texts without a zone
                statement = statement.replace("+00:00", "")
            connection.execute(sa.text(statement))
    assert upgrade(url).ok
    with open_store(url) as store:
        dated = [store.run("r"), *store.ledger("r"), *store.batches("r")]
        assert {row.created_at for row in dated} == {date(2026, 3, 1)}
        assert [audit.at for audit in store.audits("r")] == [date(2026, 3, 1)]
    path = locate(url).path
    if path is not None:
        assert b"23:59:58" not in path.read_bytes()


PROMISE = "(2, 1e-05)-differential privacy for adding or removing one user with all of their data."
NOT_COVERED = "Not covered: settings tuned while looking at real data."
BAYESIAN = (
    "Bayesian differential privacy at δ = 1e-10: ε = 0.7654321 corrected, 0.7654321 sound, "
    "0.7654321 as published; as nodes report them. Note: user 0.7654321 stands out."
)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (f"{PROMISE} {BAYESIAN} {NOT_COVERED}", f"{PROMISE} {NOT_KEPT} {NOT_COVERED}"),
        (f"{PROMISE} {BAYESIAN}", f"{PROMISE} {NOT_KEPT}"),
        (f"{PROMISE} There is no Bayesian figure. {NOT_COVERED}", None),
        (PROMISE, None),
        ("Bayesian ε = 0.7654321, said otherwise.", NOT_KEPT),
    ],
)
def test_an_old_store_s_bayesian_figures_of_exact_norms_are_gone(
    empty_url: str, engine_name: str, said: str, kept: str | None
) -> None:
    """From every row, from the guarantee, and from the pages of an SQLite file."""
    migrate(empty_url, "0001", command.upgrade)
    with connected(empty_url) as connection:
        for statement in OLD:
            if engine_name == "sqlite":
                statement = statement.replace("+00:00", "")
            connection.execute(sa.text(statement))
        connection.execute(sa.text("UPDATE runs SET guarantee = :said"), {"said": said})
        for table in ("rounds", "batches"):
            figures = "bdp_as_published = 0.765432, bdp_corrected = 0.765432, bdp_sound = 0.765432"
            connection.execute(sa.text(f"UPDATE {table} SET {figures}"))
        curves = {"curve": '{"0.5": 0.7654321}'}
        both = "UPDATE rounds SET percentiles = :curve, percentiles_corrected = :curve"
        if engine_name == "postgresql":
            both = both.replace(":curve", "CAST(:curve AS JSON)")
        connection.execute(sa.text(both), curves)
    assert upgrade(empty_url).ok
    with open_store(empty_url) as store:
        rows = [*store.rounds("r"), *store.batches("r")]
        assert len(rows) == 2
        for row in rows:
            found = row.bdp_as_published, row.bdp_corrected, row.bdp_sound
            assert found == (math.inf,) * 3 and row.dp_epsilon == 1
        assert store.rounds("r")[0].percentiles == store.rounds("r")[0].percentiles_corrected == {}
        assert store.run("r").guarantee == (said if kept is None else kept)
    path = locate(empty_url).path
    if path is not None:
        assert b"0.7654321" not in path.read_bytes()


def test_an_old_store_s_releases_become_curated(empty_url: str, engine_name: str) -> None:
    """Of batches and of projects; and their samples have no agreement yet."""
    migrate(empty_url, "0001", command.upgrade)
    project = "INSERT INTO projects VALUES (1, 'p', 'r', '', 'release', 'stored', 1, '{}')"
    label = "INSERT INTO labels VALUES (1, 1, 'k', 'n', 'class')"
    sample = "INSERT INTO samples VALUES (1, 1, 0, 3, :png, 's')"
    with connected(empty_url) as connection:
        moment = "2026-03-01 23:59:58.765432+00:00"
        for statement in (*OLD, project.format(moment), label):
            if engine_name == "sqlite":
                statement = statement.replace("+00:00", "")
            connection.execute(sa.text(statement.replace("'strip'", "'release'")))
        connection.execute(sa.text(sample), {"png": b"png"})
    assert upgrade(empty_url).ok
    with open_store(empty_url) as store:
        assert [(b.purpose, b.rejected) for b in store.batches("r")] == [("curated", {})]
        assert [project.purpose for project in store.projects()] == ["curated"]
        assert store.sample(1).agreement is None
    migrate(empty_url, "0002")
    with connected(empty_url) as connection:
        found = connection.execute(sa.text("SELECT purpose FROM batches")).scalars().all()
    assert list(found) == ["release"]
