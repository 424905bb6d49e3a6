"""Backup of a run's folder, ledger and store in one archive, and bringing it back, verified."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sqlite3
import tarfile
import tempfile
from contextlib import closing
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedlens.api.runs import Run
from fedlens.foundation.dates import set_file_date, today
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.files import flush_folder, make_folder_durably
from fedlens.foundation.tars import DAMAGED, CautiousMember

MANIFEST, VERSION = "fedlens-backup.json", 1
STORE, PLACE, STORE_NOTE = "store.db", "place.json", "store-url"
NOT_KEPT = frozenset({"lock", PLACE, STORE, f"{STORE}-wal", f"{STORE}-shm"})
"""Where a run lay is left out: a file that is restored may come to have the number of the lost one,
and the run would go on unasked."""
CACHED = ".changes"
"""Ends the names of what is computed again where it is missing: see `StoredChanges`."""
MOST_FILES, LARGEST_MANIFEST = 100_000, 1 << 25
CHUNK, LONGEST_URL = 1 << 20, 200


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
    from fedlens.accountant.ledger.ledger import Ledger
    from fedlens.server.run.directory import RunDirectory

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


def restore(archive: Path | str, out: Path | str, *, store: str = "") -> Run:
    """Bring a run back from an archive, after every file's hash and the ledger's chain held.

    Nobody is signed in to what comes back. Accounts are as they were: one that was disabled since
    the backup is not.

    The run does not go on by itself: a copy's ledger may lack what was released since. `resume`
    with ``only_copy`` says that it is the only one.

    An archive's word for a database elsewhere is never taken: who made it may have named any that
    this machine can write to.

    Args:
        archive: what `backup` wrote.
        out: a new folder.
        store: URL or path of the run's store, where it is not in the archive; ``FEDLENS_STORE`` by
            default. It is not opened here.

    Raises:
        BackupError: the folder is there, the archive is damaged or none of ours, or its store is
            elsewhere and ``store`` does not name it.
        FedlensError: ledger and store in it do not belong together.
    """
    from fedlens.api.runs import open_run

    source, target = Path(archive), Path(out)
    if target.exists():
        raise BackupError(f"{target} is there already: name a new folder")
    make_folder_durably(target.parent)
    part = target.with_name(target.name + ".part")
    try:
        part.mkdir(mode=0o700)
    except FileExistsError:
        raise BackupError(f"{part} is there from an earlier try: remove it") from None
    try:
        _read_archive(source, part)
        (part / "checkpoint").mkdir(mode=0o700, exist_ok=True)  # an archive holds no empty folder
        _verify(part)
        _end_sessions(part / STORE)
        _settle_store(source, part, target, store)
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    flush_folder(target.parent)
    return open_run(target)


def _end_sessions(store: Path) -> None:
    """Sign everyone out: sessions that have ended since the backup would open again."""
    if not store.exists():
        return
    with closing(sqlite3.connect(store)) as database, database:
        if database.execute("SELECT 1 FROM sqlite_master WHERE name = 'sign_ins'").fetchone():
            database.execute("DELETE FROM sign_ins")


def _settle_store(source: Path, part: Path, target: Path, named: str) -> None:
    """Note the store that the operator names, in place of what the archive says."""
    from fedlens.server.run.directory import RunDirectory
    from fedlens.store.engine import locate

    note, said = part / STORE_NOTE, ""
    if note.exists():
        with note.open(encoding="utf-8", errors="replace") as file:
            said = file.read(LONGEST_URL)
        note.unlink()
    if said and not (named or os.environ.get("FEDLENS_STORE")):
        raise BackupError(
            f"{source} names {said!r} as the run's store: if that is so, name it yourself, "
            "--store URL; the archive's word is not taken"
        )
    if said or named:
        url = RunDirectory(target).store_url(named)
        locate(url)  # which refuses what is no store's URL
        if url != RunDirectory(target).default_store:
            RunDirectory(part).remember_store(url)


def _kept(file: Path, root: Path) -> bool:
    own = file.parent == root and file.name in NOT_KEPT
    return not own and not file.name.endswith((".part", CACHED))


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
        with tarfile.open(source, mode="r:", tarinfo=CautiousMember) as tar:
            hashes = _manifest(source, tar)
            for entry in iter(tar.next, None):
                _take(source, tar, entry, hashes, folder)
                setattr(tar, "members", [])  # noqa: B010  (it remembers each entry there was)
    except BackupError:
        raise
    except DAMAGED as error:
        raise BackupError(f"{source} cannot be read ({error}): take another copy") from None
    if hashes:
        raise BackupError(f"{source} lacks {sorted(hashes)[0]}: take another copy")


def _manifest(source: Path, tar: tarfile.TarFile) -> dict[str, str]:
    """Hash of each file by its name; all of it looked at before any file is written."""
    entry = tar.next()
    if entry is None or entry.name != MANIFEST:
        raise BackupError(f"{source} is no backup of a run: it lacks {MANIFEST}")
    if entry.size > LARGEST_MANIFEST:
        raise BackupError(f"{source} has a list of files of {entry.size} bytes: it is none of ours")
    try:
        tree = json.loads(_content(source, tar, entry).read())
        version, hashes = tree["version"], dict(tree["files"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise BackupError(f"{source} has a damaged list of files: take another copy") from None
    if version != VERSION:
        raise BackupError(f"{source} is of version {version!r:.40}; this fedlens reads {VERSION}")
    for name in hashes:
        if not isinstance(name, str) or not _may_come_back(name):
            raise BackupError(f"{source} lists {name!r:.200}, which no backup of a run holds")
    if len(hashes) > MOST_FILES:
        raise BackupError(f"{source} lists {len(hashes)} files: no run has over {MOST_FILES}")
    return hashes


def _may_come_back(name: str) -> bool:
    """Whether a backup may bring a file back: a plain name, and not what says where a run lay."""
    path = PurePosixPath(name)
    plain = str(path) == name and name.isprintable() and ".." not in path.parts
    named = plain and path.name != "" and not path.is_absolute()
    return named and (name == STORE or _kept(Path(name), Path()))


def _take(
    source: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo, hashes: dict[str, str], folder: Path
) -> None:
    """Write one file that the manifest lists, piece by piece; its hash is looked at last."""
    wanted = hashes.pop(entry.name, None)
    if wanted is None:
        raise BackupError(f"{source} holds {entry.name!r:.200}, which its list of files does not")
    content, path, digest = _content(source, tar, entry), folder / entry.name, hashlib.sha256()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while piece := content.read(CHUNK):
            digest.update(piece)
            file.write(piece)
        file.flush()
        set_file_date(file.fileno(), today())
        os.fsync(file.fileno())
    flush_folder(path.parent)
    if digest.hexdigest() != wanted:
        raise BackupError(f"{source}: {entry.name} is damaged; take another copy")


def _content(source: Path, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> IO[bytes]:
    """What an entry holds, which must lie in the archive as it is.

    A sparse file, of few bytes there and of terabytes on the disk, is refused like links, devices
    and folders.
    """
    plain = entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not entry.issparse()
    room = source.stat().st_size - entry.offset_data
    file = tar.extractfile(entry) if plain and 0 <= entry.size <= room else None
    if file is None:
        raise BackupError(f"{source}: {entry.name!r:.200} is no plain file that lies in it whole")
    return file


def _hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _verify(folder: Path) -> None:
    """The chain of the ledger, and that a store of the folder's own mirrors it."""
    from fedlens.accountant.ledger.ledger import Ledger
    from fedlens.server.run.directory import RunDirectory
    from fedlens.server.run.place import check_mirror
    from fedlens.store import open_store

    directory = RunDirectory.open(folder)
    if not directory.ledger.exists():
        return
    directory.save(PLACE, b"{}\n", private=True)  # it lay elsewhere, whatever it has spent
    Ledger.verify(directory.ledger)
    if (folder / STORE).exists():
        ledger = Ledger.open(directory.ledger)
        with open_store(directory.default_store) as store:
            check_mirror(ledger, store.ledger(str(ledger.header["run_id"])))
