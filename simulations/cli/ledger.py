"""``fedlens ledger``: read and check what a run spent."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from simulations.cli.output import add_json_flag, print_json, say

if TYPE_CHECKING:
    from accountant.ledger import Ledger
    from server.directory import RunDirectory


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "ledger",
        help="show or verify a run's privacy ledger",
        description="Read a run's ledger: one chained line for every release.",
        epilog="example: fedlens ledger verify runs/demo",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about in (
        ("show", "list what was spent, entry by entry, and both accountants' sums"),
        ("verify", "check the chain of hashes, and the checkpoint's and the store's agreement"),
    ):
        action = actions.add_parser(name, help=about, description=about.capitalize() + ".")
        action.add_argument("run_dir", type=Path, metavar="RUN_DIR")
        action.add_argument("--store", default="", help="URL of the store, if it is another one")
        add_json_flag(action)
        action.set_defaults(run=show if name == "show" else verify)


def show(args: argparse.Namespace) -> int:
    """Print every entry, then the sums."""
    from accountant.statement import statement
    from server.books import spending_of
    from server.directory import RunDirectory

    directory = RunDirectory.open(args.run_dir)
    ledger = _checked(directory)
    config = directory.config()
    spending = spending_of(config, directory)
    for entry in ledger.entries:
        event = entry.event
        say(
            f"{entry.index:5d}  round {entry.round:5d}  {event.unit} level  "
            f"q={event.sampling_rate:g}  z={event.noise_multiplier:g}  "
            f"C={event.clipping_norm:g}  x{event.count}  {event.released}  {entry.hash[:12]}"
        )
    say(f"{len(ledger.entries)} entries")
    say(statement(spending, config.data.users))
    if args.json:
        entries = [{"index": e.index, "round": e.round, "hash": e.hash} for e in ledger.entries]
        print_json({"entries": entries, "head": ledger.head})
    return 0


def verify(args: argparse.Namespace) -> int:
    """Check the chain against itself, the configuration, the checkpoint and the store's mirror."""
    from server.books import spending_of
    from server.directory import RunDirectory

    directory = RunDirectory.open(args.run_dir)
    ledger = _checked(directory)
    spending_of(directory.config(), directory)
    mirrored = _check_mirror(ledger, directory, args.store)
    say(f"the ledger holds: {len(ledger.entries)} entries, head {ledger.head[:16]}, {mirrored}")
    if args.json:
        print_json({"verified": True, "entries": len(ledger.entries), "head": ledger.head})
    return 0


def _checked(directory: RunDirectory) -> Ledger:
    """The ledger, verified with what the last checkpoint knows of it."""
    from accountant.ledger import Ledger, LedgerError

    snapshot = directory.load_state()
    if not directory.ledger.exists():
        raise LedgerError(directory.ledger, 1, "there is no ledger")
    Ledger.verify(
        directory.ledger,
        expected_head=snapshot.facts["ledger_head"] if snapshot else None,
        expected_entries=snapshot.facts["ledger_entries"] if snapshot else None,
    )
    return Ledger.open(directory.ledger)


def _check_mirror(ledger: Ledger, directory: RunDirectory, named: str) -> str:
    """Compare with the store's copy of the entries.

    Raises:
        LedgerError: an entry differs.
    """
    from accountant.ledger import LedgerError
    from server.store import open_store
    from simulations.reading import run_id_of, store_url_of

    with open_store(store_url_of(directory, named)) as store:
        rows = store.ledger(run_id_of(directory))
    for row in rows:
        if row.index >= len(ledger.entries) or ledger.entries[row.index].hash != row.entry_hash:
            raise LedgerError(directory.ledger, row.index + 2, "the store mirrors another entry")
    return f"{len(rows)} of them mirrored in the store"
