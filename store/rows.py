"""Between rows and records, which have the same field names; and inserts that may be repeated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar, cast

from sqlalchemy import ColumnElement, Table, inspect, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session
from sqlalchemy.sql.dml import ReturningInsert

from fedlens.store.errors import StoreError
from fedlens.store.schema import Base, RunTable

RecordT = TypeVar("RecordT")


def to_record(kind: type[RecordT], row: object, **given: object) -> RecordT:
    """The record of a row; ``given`` are the fields that the row itself has not got."""
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: given[name] if name in given else getattr(row, name) for name in names})


def to_values(record: object, *left_out: str) -> dict[str, Any]:
    """The fields of a record by name (not its nested records, unlike ``asdict``)."""
    names = [item.name for item in fields(record)]  # type: ignore[arg-type]
    return {name: getattr(record, name) for name in names if name not in left_out}


def insert_once(session: Session, table: type[Base], values: Mapping[str, Any]) -> bool:
    """Insert a row unless one with a key of it is there; say whether it was inserted."""
    statement = _insert_once(table, session.get_bind().dialect.name)
    return session.execute(statement, _by_column(table, values)).first() is not None


def insert_or_replace(session: Session, table: type[Base], values: Mapping[str, Any]) -> None:
    """Insert a row, in place of the one with its primary key; safe from several writers at once."""
    named = _by_column(table, values)
    statement = _insert_or_replace(table, session.get_bind().dialect.name, frozenset(named))
    session.execute(statement, named)


def _by_column(table: type[Base], values: Mapping[str, Any]) -> dict[str, Any]:
    columns = inspect(table).columns
    return {columns[name].key: value for name, value in values.items()}


# Statements are made once: to make one costs more than to carry it out.


@cache
def _insert_once(table: type[Base], dialect: str) -> ReturningInsert[Any]:
    statement = _insert(table, dialect).on_conflict_do_nothing()
    return statement.returning(inspect(table).primary_key[0])


@cache
def _insert_or_replace(
    table: type[Base], dialect: str, names: frozenset[str]
) -> sqlite.Insert | postgresql.Insert:
    statement, key = _insert(table, dialect), inspect(table).primary_key
    changes = {n: statement.excluded[n] for n in sorted(names - {c.name for c in key})}
    return statement.on_conflict_do_update(index_elements=key, set_=changes)


def _insert(table: type[Base], dialect: str) -> sqlite.Insert | postgresql.Insert:
    into = cast(Table, inspect(table).local_table)
    return sqlite.insert(into) if dialect == "sqlite" else postgresql.insert(into)


def require_run(session: Session, run_id: str) -> RunTable:
    """The run's row.

    Raises:
        StoreError: if there is none.
    """
    run = session.get(RunTable, run_id)
    if run is None:
        raise StoreError(f"run_id = {run_id!r}: the store has no such run")
    return run


def require_same(name: str, there: object, given: object, *parts: str) -> None:
    """Refuse to store another thing under a key that is taken.

    Raises:
        StoreError: naming the first of ``parts`` that differs.
    """
    for part in parts:
        if getattr(there, part) != getattr(given, part):
            raise StoreError(
                f"{name} is in the store already with {part} = {getattr(there, part)!r}, "
                f"not {getattr(given, part)!r}: what is stored does not change"
            )


def records_of_run(
    session: Session, kind: type[RecordT], table: type[Base], run_id: str, *order: Any
) -> list[RecordT]:
    """The records of a run's rows in a table that has a ``run_id``, in order."""
    rows = session.scalars(select(table).filter_by(run_id=run_id).order_by(*order))
    return [to_record(kind, row) for row in rows]


def exists_where(session: Session, *conditions: ColumnElement[bool]) -> bool:
    """Whether some row fulfils all conditions."""
    return session.execute(select(1).where(*conditions).limit(1)).first() is not None
