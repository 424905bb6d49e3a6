"""Backup of a run's folder, ledger and store in one archive, and bringing it back, verified."""

from __future__ import annotations

import hashlib
import io
import json
import os
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from fedlens.runs import Run
from foundation.errors import FedlensError
from foundation.files import flush_folder, make_folder_durably, write_durably

MANIFEST, VERSION = "fedlens-backup.json", 1
STORE, PLACE = "store.db", "place.json"
NOT_KEPT = frozenset({"lock", PLACE, STORE, f"{STORE}-wal", f"{STORE}-shm"})
"""Where a run lay is left out: a file that is restored may come to have the number of the lost one,
and the run would go on unasked."""
LARGEST = 1 << 34


class BackupError(FedlensError, ValueError):
    """A backup that cannot be made or brought back; the message says why and what to do."""


def backup(path: Path | str, out: Path | str) -> Path:
    """Write a run's folder and its SQLite store into one archive, for its owner alone (0600).

    No process may train in the folder meanwhile; a dashboard may have the store open. The archive
    holds evidence of the Bayesian accountant, which is private bookkeeping: keep it like the run.

    Args:
        path: the run's folder.
        out: the archive, which must not be there yet.

    Returns:
        The archive.

    Raises:
        BackupError: the archive is there already or cannot be written.
        FedlensError: there is no run, a process trains in it, or its ledger cannot be trusted.
    """
    from accountant.ledger.ledger import Ledger
    from server.run_directory import RunDirectory

    directory, target = RunDirectory.open(Path(path)), Path(out)
    if target.exists():
        raise BackupError(f"{target} is there already: name a new file")
    with directory.locked(), tempfile.TemporaryDirectory(prefix="fedlens-") as made:
        if directory.ledger.exists():
            Ledger.verify(directory.ledger)
        files = {
            str(file.relative_to(directory.path)): file
            for file in sorted(directory.path.rglob("*"))
            if file.is_file() and not file.is_symlink() and _kept(file, directory.path)
        }
        if (directory.path / STORE).exists():
            files[STORE] = _copy_of_store(directory.path / STORE, Path(made))
        _write_archive(target, files)
    return target


def restore(archive: Path | str, out: Path | str) -> Run:
    """Bring a run back from an archive, after every file's hash and the ledger's chain held.

    The run does not go on by itself: a copy's ledger may lack what was released since. `resume`
    with ``only_copy`` says that it is the only one.

    Args:
        archive: what `backup` wrote.
        out: a new folder.

    Raises:
        BackupError: the folder is there, or the archive is damaged or none of ours.
        FedlensError: ledger and store in it do not belong together.
    """
    from fedlens.runs import open_run

    source, target = Path(archive), Path(out)
    if target.exists():
        raise BackupError(f"{target} is there already: name a new folder")
    make_folder_durably(target.parent)
    part = target.with_name(target.name + ".part")
    try:
        part.mkdir(mode=0o700)
    except FileExistsError:
        raise BackupError(f"{part} is there from an earlier try: remove it") from None
    _read_archive(source, part)
    _verify(part)
    part.rename(target)
    flush_folder(target.parent)
    return open_run(target)


def _kept(file: Path, root: Path) -> bool:
    own = file.parent == root and file.name in NOT_KEPT
    return not own and not file.name.endswith(".part")


def _copy_of_store(path: Path, folder: Path) -> Path:
    """A consistent copy of a SQLite file, whatever others write meanwhile."""
    copy = folder / STORE
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as made:
        source.backup(made)
    return copy


def _write_archive(target: Path, files: dict[str, Path]) -> None:
    hashes = {name: _hash_of(file) for name, file in files.items()}
    manifest = json.dumps({"version": VERSION, "files": hashes}, indent=1).encode()
    part = target.with_name(target.name + ".part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
            _add(tar, MANIFEST, io.BytesIO(manifest), len(manifest))
            for name, path in files.items():
                with path.open("rb") as content:
                    _add(tar, name, content, path.stat().st_size)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        part.unlink(missing_ok=True)
        raise BackupError(f"{target} cannot be written: {error.strerror}") from None
    part.replace(target)
    flush_folder(target.parent)


def _add(tar: tarfile.TarFile, name: str, content: Any, size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    tar.addfile(entry, content)


def _read_archive(source: Path, folder: Path) -> None:
    try:
        with tarfile.open(source, mode="r:") as tar:
            first = tar.next()
            if first is None or first.name != MANIFEST:
                raise BackupError(f"{source} is no backup of a run: it lacks {MANIFEST}")
            hashes = _manifest(source, _content(tar, first))
            for entry in iter(tar.next, None):
                _take(source, tar, entry, hashes, folder)
    except (OSError, tarfile.TarError) as error:
        raise BackupError(f"{source} cannot be read ({error}): take another copy") from None
    if hashes:
        raise BackupError(f"{source} lacks {sorted(hashes)[0]}: take another copy")


def _manifest(source: Path, content: bytes) -> dict[str, str]:
    try:
        tree = json.loads(content)
        version, hashes = tree["version"], dict(tree["files"])
    except (ValueError, KeyError, TypeError):
        raise BackupError(f"{source} has a damaged list of files: take another copy") from None
    if version != VERSION:
        raise BackupError(f"{source} is of version {version}; this fedlens reads {VERSION}")
    return hashes


def _take(
    source: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo, hashes: dict[str, str], folder: Path
) -> None:
    """Write one file that the manifest lists, once its hash is right."""
    wanted = hashes.pop(entry.name, None)
    parts = Path(entry.name).parts
    if wanted is None or not entry.isreg() or entry.name.startswith("/") or ".." in parts:
        raise BackupError(f"{source} holds {entry.name!r}, which its list of files does not")
    content = _content(tar, entry)
    if hashlib.sha256(content).hexdigest() != wanted:
        raise BackupError(f"{source}: {entry.name} is damaged; take another copy")
    path = folder / entry.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(path, content, private=True)


def _content(tar: tarfile.TarFile, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry) if entry.isreg() and entry.size <= LARGEST else None
    if file is None:
        raise BackupError(f"{entry.name!r} in the archive is no file of a run")
    return file.read()


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verify(folder: Path) -> None:
    """The chain of the ledger, and that a store of the folder's own mirrors it."""
    from accountant.ledger.ledger import Ledger
    from server.run_directory import RunDirectory
    from server.run_place import check_mirror
    from server.store import open_store

    directory = RunDirectory.open(folder)
    if not directory.ledger.exists():
        return
    Ledger.verify(directory.ledger)
    if (folder / STORE).exists():
        ledger = Ledger.open(directory.ledger)
        with open_store(directory.default_store) as store:
            check_mirror(ledger, store.ledger(str(ledger.header["run_id"])))
