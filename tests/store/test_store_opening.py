"""Opening: what is not a store is said in one message, and nothing is made unasked."""

from __future__ import annotations

import os
import socket
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError
from store_builders import a_run

from fedlens.store import StoreError, StoreVersionError, check, open_store, upgrade
from fedlens.store.engine import locate, make_engine


def test_the_three_ways_to_name_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    open_store("store.db", create=True).close()
    for name in (
        "store.db",
        Path("store.db"),
        "sqlite:///store.db",
        f"sqlite:///{tmp_path}/store.db",
    ):
        with open_store(name) as store:
            store.create_run(a_run())
            assert len(store.runs()) == 1


def test_odd_file_names_are_taken_literally(tmp_path: Path) -> None:
    path = tmp_path / "a b" / "50% ?x#y ü.db"
    with open_store(path, create=True) as store:
        store.create_run(a_run())
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    with open_store(path) as store:
        assert store.place == str(path)
        assert len(store.runs()) == 1


def test_opening_makes_no_file_and_no_folder(tmp_path: Path) -> None:
    for opening in (open_store, check):
        for path in (tmp_path / "absent.db", tmp_path / "folder" / "absent.db"):
            with pytest.raises(StoreError, match="no store at"):
                opening(path)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_vanishes_while_it_is_opened_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    engine = make_engine(locate(path))
    with pytest.raises(OperationalError):
        engine.connect()
    assert not path.exists()


def test_opening_an_empty_file_asks_for_an_upgrade_and_leaves_it_empty(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch()
    with pytest.raises(StoreVersionError, match=f"fedlens db upgrade --store {path}"):
        open_store(path)
    assert path.stat().st_size == 0
    assert upgrade(path).ok


def test_readers_leave_the_folder_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    open_store(path, create=True).close()
    before = path.read_bytes()
    with open_store(path) as store:
        assert store.runs() == []
    assert check(path).ok
    assert [entry.name for entry in tmp_path.iterdir()] == ["store.db"]
    assert path.read_bytes() == before


def test_sqlite_is_set_up_for_a_writer_beside_readers(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with open_store(path, create=True) as store, store._reading() as session:
        values = [
            session.connection().exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "foreign_keys", "busy_timeout")
        ]
    assert values == ["wal", 1, 10_000]


@pytest.mark.parametrize("create", [False, True])
def test_what_is_no_sqlite_database_is_left_alone(tmp_path: Path, create: bool) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database")
    with pytest.raises(StoreError, match="not a SQLite database"):
        open_store(path, create=create)
    assert path.read_text() == "not a database"
    with pytest.raises(StoreError, match="not a file"):
        open_store(tmp_path, create=create)


ANOTHER = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from fedlens.store import open_store
from store_builders import a_run
with open_store(sys.argv[1]) as store:
    for name in sys.argv[2:]:
        store.create_run(a_run(run_id=name))
    print(*sorted(run.run_id for run in store.runs()))
"""


def seen_by_another_process(path: Path, *made: str) -> list[str]:
    """The runs that a process sees which opens the store, makes some, reads and closes it."""
    command = [sys.executable, "-c", ANOTHER, str(path), *made]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_whoever_comes_and_goes_another_process_reads_what_was_written(tmp_path: Path) -> None:
    path, link = tmp_path / "store.db", tmp_path / "link.db"
    link.symlink_to(path)
    with open_store(path, create=True) as first, open_store(link) as second:
        for number, store in enumerate((first, second, first)):
            store.create_run(a_run(run_id=f"run-{number}"))
            assert check(path).ok
            assert len(seen_by_another_process(path, f"other-{number}")) == 2 * (number + 1)
            assert len(first.runs()) == len(second.runs()) == 2 * (number + 1)
            assert Path(f"{path}-wal").exists()


def test_a_store_that_is_opened_twice_has_one_engine(tmp_path: Path) -> None:
    path, link = tmp_path / "store.db", tmp_path / "link.db"
    link.symlink_to(path)
    with open_store(path, create=True) as first, open_store(link) as second:
        assert first._engine is second._engine


@pytest.mark.parametrize("name", ["store.db", "store.db-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_called_saved_that_went_into_files_which_were_taken_away(
    tmp_path: Path, name: str, replaced: bool
) -> None:
    path = tmp_path / "store.db"
    with open_store(path, create=True) as store:
        store.create_run(a_run(run_id="kept"))
        (tmp_path / name).rename(tmp_path / "elsewhere")
        if replaced:
            (tmp_path / name).write_bytes((tmp_path / "elsewhere").read_bytes())
        with pytest.raises(StoreError, match=r"moved, deleted or replaced|cannot be used"):
            store.create_run(a_run(run_id="lost"))


MOUNTED = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
30 22 0:9 / {folder}/shared\\040disk rw,noatime shared:7 - nfs4 server:/export rw
31 30 0:7 / {folder}/shared\\040disk/scratch rw - xfs /dev/sdb1 rw
"""


def test_a_network_s_file_system_gets_no_write_ahead_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts, shared = tmp_path / "mounts", tmp_path / "shared disk"
    mounts.write_text(MOUNTED.format(folder=tmp_path))
    moved, local = shared / "moved.db", shared / "scratch" / "store.db"
    upgrade(moved)
    monkeypatch.setattr("fedlens.store.engine.MOUNTS", mounts)
    for path, mode in ((shared / "store.db", "delete"), (local, "wal")):
        with open_store(path, create=True) as store, store._reading() as session:
            store.create_run(a_run())
            found = session.connection().exec_driver_sql("PRAGMA journal_mode").scalar_one()
        assert found == mode and seen_by_another_process(path) == ["run-1"]
    with pytest.raises(StoreError, match=r"network's file system \(nfs4\)"):
        open_store(moved)
    assert upgrade(moved).ok and open_store(moved).runs() == []


def test_a_damaged_database_is_one_message(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    with pytest.raises(StoreError, match=r"store\.db is not a SQLite database, or a damaged one"):
        open_store(path)


def test_paths_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match="cannot be opened"):
        open_store(file / "store.db", create=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_write_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be"):
        open_store(tmp_path / "store.db", create=True)


def test_another_program_s_sqlite_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE invoices (total INTEGER)")
    connection.close()
    with pytest.raises(StoreError, match="something else"):
        open_store(path, create=True)
    with pytest.raises(StoreVersionError):
        open_store(path)


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", ":memory:", "", "file:x?mode=rw"]
)
def test_stores_in_memory_are_refused(url: str) -> None:
    with pytest.raises(StoreError, match="not a file"):
        open_store(url, create=True)


def _unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize(
    "shape",
    [
        "postgresql://someone:s3cret@127.0.0.1:{port}/lens",
        "postgresql://127.0.0.1:{port}/lens?user=someone&password=s3cret",
        "postgresql://someone:s3cret@127.0.0.1:{port}/lens?sslmode=s3cret",
        "postgresql://someone:s3cret@127.0.0.1:port/lens",
        "postgresql://someone:s3cret@127.0.0.1:s3cret",
        "postgresql+psycopg2://someone:s3cret@127.0.0.1/lens",
        "mysql://someone:s3cret@127.0.0.1/lens",
    ],
)
def test_an_unusable_url_is_one_message_without_credentials(shape: str, create: bool) -> None:
    with pytest.raises(StoreError) as caught:
        open_store(shape.format(port=_unused_port()), create=create)
    message = str(caught.value)
    assert "postgresql://" in message
    assert "s3cret" not in message
    assert "someone" not in message
    assert "\n" not in message
    assert caught.value.__cause__ is None


def test_an_absent_postgres_database_is_named_without_its_user(postgres: str) -> None:
    with pytest.raises(StoreError, match='database "nowhere" does not exist') as caught:
        open_store(postgres.replace("/postgres?", "/nowhere?"))
    assert "postgres:@" not in str(caught.value)


def test_the_store_loads_no_training_framework() -> None:
    code = "import fedlens.store, sys; print(*({'torch', 'flwr', 'streamlit'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_new_store_is_for_its_owner_alone(tmp_path: Path) -> None:
    """Hashes of passwords are in it, and in what SQLite keeps beside it while it is open."""
    path = tmp_path / "store.db"
    before = os.umask(0o022)
    try:
        with open_store(str(path), create=True) as store:
            store.add_account("ann", "annotator", "correct horse", actor="test")
            made = sorted(tmp_path.iterdir())
            assert path in made
            assert {stat.S_IMODE(one.stat().st_mode) for one in made} == {0o600}
    finally:
        os.umask(before)


def test_a_store_that_was_moved_while_it_was_closed_is_opened_where_it_is(tmp_path: Path) -> None:
    """Though something still remembers the store of its old path."""
    (tmp_path / "old").mkdir()
    with open_store(str(tmp_path / "old" / "store.db"), create=True) as before:
        before.add_account("ann", "annotator", "correct horse", actor="test")
    (tmp_path / "old").rename(tmp_path / "new")
    with open_store(str(tmp_path / "new" / "store.db")) as after:
        assert [account.name for account in after.accounts()] == ["ann"]
    assert before.place != after.place
