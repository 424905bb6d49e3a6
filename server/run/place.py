"""Whether a run's folder, its ledger and its store still belong together.

Two folders that spend under one run id would release twice what is booked once, and their noise
together averages out. So a run is bound to the place where its ledger lies, and goes on only where
folder, ledger and store agree. A folder whose files were put back in place keeps its path and its
ledger's number: `fedlens.accountant.ledger.high_water` knows how far it had been. What is not
found out: a copy on another machine, made with its own store, whose operator says that it is the
only one; and a folder of which nothing but the configuration is left, whose store is elsewhere.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fedlens.accountant.ledger.high_water import HighWaterMark
from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.server.config.schedule import total_rounds
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.store import LedgerRow, Store

OLDER = (
    "is missing, and the store mirrors it: this is an older copy, whose ledger lacks what was "
    "released since; go on in the folder that has all entries"
)


@dataclass(frozen=True)
class Binding:
    """Where a run's ledger lay when the run was bound to it.

    The number of the file system is left out: it may change when a machine starts again.
    """

    run_id: str
    path: str
    """Of the run's folder, without symbolic links."""
    inode: int
    """Of the ledger file: a copy has another, even under the same path."""
    entries: int
    """How many entries the ledger had then: the store need not have had them."""


def bind(directory: RunDirectory) -> None:
    """Bind a run to where its folder lies now: from here on it is the run's only one.

    Raises:
        RunDirectoryError: it has no ledger.
        LedgerError: the ledger cannot be trusted.
    """
    if not directory.ledger.exists():
        raise RunDirectoryError(f"{directory.path} has no ledger, so there is no run to go on with")
    directory.save_place(asdict(_here(directory, Ledger.open(directory.ledger))))


def check_place(directory: RunDirectory, store: Store) -> None:
    """Refuse to go on where folder, ledger and store do not belong together.

    Raises:
        RunDirectoryError: the folder is a copy or was moved, its ledger is gone, or the store lacks
            what the run had stored.
        LedgerError: the ledger cannot be trusted, or the store mirrors another.
    """
    if not directory.ledger.exists():
        _check_new(directory, store)
        return
    ledger, snapshot = Ledger.open(directory.ledger), directory.load_state()
    rows = store.ledger(str(ledger.header["run_id"]))
    done = 0 if snapshot is None else snapshot.round
    if done < total_rounds(directory.config()):  # a finished run draws no more: it may lie anywhere
        HighWaterMark(ledger).check(ledger)
        if directory.bound or ledger.entries or rows:
            _check_bound(directory, ledger)
    check_mirror(ledger, rows)
    _check_state(directory, len(rows), done)
    _check_store(directory, store, len(rows), done - 1)  # the last round may have been cut off


def _here(directory: RunDirectory, ledger: Ledger) -> Binding:
    return Binding(
        run_id=str(ledger.header["run_id"]),
        path=str(directory.path.resolve()),
        inode=directory.ledger.stat().st_ino,
        entries=len(ledger),
    )


def _load_binding(directory: RunDirectory) -> Binding | None:
    """The place that the run is bound to, where its folder says it."""
    try:
        return Binding(**directory.load_place() or {})
    except TypeError:
        return None


def _check_bound(directory: RunDirectory, ledger: Ledger) -> None:
    place, here = _load_binding(directory), _here(directory, ledger)
    if place is None:
        why = "does not say where it lay"
    elif (place.run_id, place.path) != (here.run_id, here.path):
        why = "was moved"
    elif place.inode != here.inode:
        why = "has its ledger from a copy"
    else:
        return
    raise RunDirectoryError(
        f"{directory.path} is a copy of a run's folder, or {why}: two folders must not draw noise "
        f"under one run id ({here.run_id}). If it is the only one that will go on, "
        f"{directory.resume_words(only_copy=True)} says so"
    )


def _check_new(directory: RunDirectory, store: Store) -> None:
    """Refuse to begin a run where one was: its ledger says what it spent, and is not there."""
    left, own = directory.traces(), store.place == str(directory.path / "store.db")
    spent = [run.run_id for run in store.runs() if own and store.ledger(run.run_id)]
    left += [f"run {run_id} in its store" for run_id in spent]
    if left:
        raise RunDirectoryError(
            f"{directory.path} has no ledger.jsonl, but a run began there ({', '.join(left)}), and "
            "what it spent is not known without: bring the ledger back from a backup, or begin a "
            "new run in another --out"
        )


def check_mirror(ledger: Ledger, rows: list[LedgerRow]) -> None:
    """Refuse a ledger that lacks an entry of which the store knows, or has another in its place.

    Raises:
        LedgerError: naming the line.
    """
    hashes = [entry.hash for entry in ledger.entries]
    for row in rows:
        if hashes[row.index : row.index + 1] != [row.entry_hash]:
            known = row.index < len(hashes)
            problem = "the store mirrors another entry" if known else OLDER
            raise LedgerError(ledger.path, row.index + 2, problem)


def _check_state(directory: RunDirectory, rows: int, done: int) -> None:
    """Refuse a state from before what the store has of the run: it is saved before that is stored.

    The rounds since would count as lost, though everybody has seen what they released.
    """
    if rows > done:
        raise RunDirectoryError(
            f"{directory.state_file} is {f'that of round {done}' if done else 'gone'}, and "
            f"{rows} rounds were stored since the run began: bring back the last one"
        )


def _check_store(directory: RunDirectory, store: Store, rows: int, stored: int) -> None:
    """Refuse a store that lacks rounds which the run had stored before its last state."""
    place = _load_binding(directory)
    if stored > max(rows, 0 if place is None else place.entries):
        raise RunDirectoryError(
            f"the store {store.place} has {rows} entries of this run, and {stored} were stored: "
            "name the run's own store by --store, or restore it. If it is lost, "
            f"{directory.resume_words(only_copy=True)} fills a new one"
        )
