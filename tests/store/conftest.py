"""A store on each engine: every test that takes ``url`` or ``store`` runs on both.

``url`` is a copy of a store that migrations made; who takes ``empty_url`` makes one anew.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_template import copy_template, stores_from_migrations

from fedlens.store import Store, open_store, upgrade

_numbers = itertools.count(1)


def _absent(what: str) -> None:
    """In CI a missing PostgreSQL is a failure, so that the tests cannot quietly become fewer."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI needs PostgreSQL: {what}")
    pytest.skip(f"no PostgreSQL: {what}")


@pytest.fixture(scope="module", autouse=True)
def real_stores() -> Iterator[None]:
    """Stores are what is tested here."""
    with stores_from_migrations():
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of a fresh server's own database.

    Not in pytest's folder: as root the server runs as another user, and every pytest that starts
    meanwhile closes that folder to others.
    """
    folder = Path(tempfile.mkdtemp(prefix="fedlens-"))
    # before pgserver's own: what is registered first comes last
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(folder))
        try:
            import pgserver
            import psycopg  # noqa: F401

            server = pgserver.get_server(folder / "data", cleanup_mode="stop")
        except Exception as error:
            _absent(f"{type(error).__name__}: {error}")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def postgres_template(postgres: str) -> str:
    """A database with the tables, to copy for each test."""
    upgrade(_make_database(postgres, "template"))
    return postgres


def _make_database(postgres: str, name: str, template: str = "template0") -> str:
    import psycopg

    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
    return postgres.replace("/postgres?", f"/{name}?")


@pytest.fixture(params=["sqlite", "postgres"])
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def empty_url(engine_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for a store where none is yet."""
    if engine_name == "sqlite":
        return f"sqlite:///{tmp_path / 'store.db'}"
    return _make_database(request.getfixturevalue("postgres"), f"t{next(_numbers)}")


@pytest.fixture
def url(engine_name: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store with tables and nothing in it."""
    if engine_name == "sqlite":
        copy_template(tmp_path / "store.db")
        return f"sqlite:///{tmp_path / 'store.db'}"
    server = request.getfixturevalue("postgres_template")
    return _make_database(server, f"t{next(_numbers)}", "template")


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened
