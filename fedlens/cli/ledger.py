"""``fedlens ledger``: read, check and hand on what a run spent."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument, file_to_write
from fedlens.cli.output import print_json, say

if TYPE_CHECKING:
    from fedlens.accountant.events import Event
    from fedlens.accountant.ledger.ledger import Ledger
    from fedlens.server.run.directory import RunDirectory


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb, its actions and their flags."""
    parser = verbs.add_parser(
        "ledger",
        help=VERBS["ledger"],
        description="Read a run's ledger: one chained line for every release.",
        epilog="example: fedlens ledger verify runs/demo",
    )
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, about, run in (
        ("show", "list what was spent, entry by entry, and both accountants' sums", show_ledger),
        (
            "verify",
            "check the chain of hashes, and that checkpoint, store and population agree",
            verify_ledger,
        ),
        ("export", "all that an outside auditor needs to recompute the figures", export_ledger),
    ):
        action = actions.add_parser(
            name,
            help=about,
            description=about.capitalize() + ".",
            epilog=f"example: fedlens ledger {name} runs/demo",
        )
        add_run_argument(action)
        action.set_defaults(run=run)
        if run is export_ledger:
            _add_export_flags(action)
        else:
            add_json_flag(action)


def _add_export_flags(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--format", choices=("json", "csv"), default="json", help="one JSON object, or one table"
    )
    action.add_argument("--out", type=Path, help="file to write; standard output by default")


def show_ledger(args: argparse.Namespace) -> int:
    """Print every entry, then the sums."""
    from fedlens.accountant.statement import statement
    from fedlens.server.learning.builds_on import with_cost
    from fedlens.server.ledger.run_ledger import spending_of
    from fedlens.server.run.directory import RunDirectory

    directory = RunDirectory.open(args.run_dir)
    ledger = _checked(directory)
    config = directory.config()
    spending = spending_of(config, directory)
    for entry in ledger.entries:
        event = entry.event
        say(
            f"{entry.index:5d}  round {entry.round:5d}  {event.unit} level  {_in_short(event)}  "
            f"x{event.count}  {event.released}  {entry.hash[:12]}"
        )
    say(f"{len(ledger)} entries")
    say(with_cost(statement(spending, config.data.users), directory))
    if args.json:
        entries = [{"index": e.index, "round": e.round, "hash": e.hash} for e in ledger.entries]
        print_json({"entries": entries, "head": ledger.head})
    return 0


def _in_short(event: Event) -> str:
    from fedlens.accountant.events import SubsampledGaussian

    noise = f"z={event.noise_multiplier:g}"
    if isinstance(event, SubsampledGaussian):
        return f"q={event.sampling_rate:g}  {noise}  C={event.clipping_norm:g}"
    return f"once  {noise}  sensitivity={event.sensitivity:g}"


def verify_ledger(args: argparse.Namespace) -> int:
    """Check the chain against itself, the settings, the checkpoint, the store, the population."""
    from fedlens.server.ledger.run_ledger import population_of, spending_of
    from fedlens.server.run.directory import RunDirectory

    directory = RunDirectory.open(args.run_dir)
    ledger, config = _checked(directory), directory.config()
    spending_of(config, directory)
    population = population_of(config, ledger)
    agreed = [_check_mirror(ledger, directory, args.store)]
    if population is not None:
        agreed.append(f"all in population {population.terms.population}")
    say(f"the ledger holds: {len(ledger)} entries, head {ledger.head[:16]}, {', '.join(agreed)}")
    if args.json:
        print_json({"verified": True, "entries": len(ledger), "head": ledger.head})
    return 0


def export_ledger(args: argparse.Namespace) -> int:
    """Write the export, of a ledger that holds."""
    from fedlens.accountant.ledger.export import as_csv, export_of
    from fedlens.foundation.files import write_durably
    from fedlens.server.learning.builds_on import with_cost
    from fedlens.server.ledger.run_ledger import population_of, spending_of
    from fedlens.server.run.directory import RunDirectory

    out = None if args.out is None else file_to_write(args.out)
    directory = RunDirectory.open(args.run_dir)
    ledger, config = _checked(directory), directory.config()
    spending, population = spending_of(config, directory), population_of(config, ledger)
    record = export_of(ledger, spending, config.data.users, population)
    record["statement"] = with_cost(record["statement"], directory)
    whole = as_csv(record) if args.format == "csv" else json.dumps(record, allow_nan=False) + "\n"
    if out is None:
        say(whole.rstrip("\n"))
    else:
        write_durably(out, whole.encode())
        say(f"{len(ledger)} entries, head {ledger.head[:16]}, in {out}")
    return 0


def _checked(directory: RunDirectory) -> Ledger:
    """The ledger, verified with what the last checkpoint knows of it."""
    from fedlens.accountant.ledger.ledger import Ledger, LedgerError

    snapshot = directory.load_state()
    if not directory.ledger.exists():
        raise LedgerError(directory.ledger, 1, "there is no ledger")
    return Ledger.read(
        directory.ledger,
        expected_head=snapshot.facts["ledger_head"] if snapshot else None,
        expected_entries=snapshot.facts["ledger_entries"] if snapshot else None,
    )


def _check_mirror(ledger: Ledger, directory: RunDirectory, named: str) -> str:
    """Compare with the store's copy of the entries."""
    from fedlens.server.run.place import check_mirror
    from fedlens.store import open_store

    with open_store(directory.store_url(named)) as store:
        rows = store.ledger(str(ledger.header["run_id"]))
    check_mirror(ledger, rows)
    return f"{len(rows)} of them mirrored in the store"
