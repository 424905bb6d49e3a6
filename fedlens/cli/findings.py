"""``fedlens findings``: what engineers found, listed, or one of them as a report to share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedlens.cli import VERBS
from fedlens.cli.flags import add_json_flag, add_run_argument, file_to_write
from fedlens.cli.output import print_json, print_table, say
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.store import Store, StoredFinding

STATUSES = ("open", "confirmed", "refuted", "mended")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "findings",
        help=VERBS["findings"],
        description="List the findings that were kept in the dashboard: those of a run, or with "
        "--store alone all of a store. --report writes one of them as a single HTML file with its "
        "pictures, both privacy statements and what could not have been seen.",
        epilog="example: fedlens findings runs/demo --finding 1 --report finding.html",
    )
    add_run_argument(parser, optional=True)
    add = parser.add_argument
    add("--status", choices=STATUSES, help="only findings of this status")
    add("--finding", type=int, metavar="N", help="only this one")
    add("--report", type=Path, metavar="FILE.html", help="file to write the finding's report to")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """List, or write a report."""
    from fedlens.api.runs import open_run
    from fedlens.store import open_store

    if args.run_dir is None and not args.store:
        raise WrongUse("fedlens findings: give RUN_DIR, or --store for all findings of a store")
    if args.report is not None and args.report.suffix.lower() not in (".html", ".htm"):
        raise WrongUse(f"--report {args.report}: name a file that ends in .html")
    kept = None if args.run_dir is None else open_run(args.run_dir, store=args.store)
    with open_store(args.store if kept is None else kept.store) as store:
        found = store.findings(run_id=None if kept is None else kept.id, status=args.status)
        if args.finding is not None:
            found = [one for one in found if one.finding_id == args.finding]
            if not found:
                raise WrongUse(f"--finding {args.finding}: there is no such finding here")
        if args.report is not None:
            printed = _report(store, found, args.report)
        else:
            _list(found)
            printed = {"findings": [_json(store, one) for one in found]}
    if args.json:
        print_json(printed)
    return 0


def _report(store: Store, found: list[StoredFinding], path: Path) -> dict[str, Any]:
    from fedlens.dashboard.faults.report import build_report
    from fedlens.foundation.files import write_durably

    if len(found) != 1:
        there = ", ".join(str(one.finding_id) for one in found) or "none"
        raise WrongUse(f"--report {path}: choose one by --finding; there are: {there}")
    file_to_write(path, "--report")
    number = found[0].finding_id
    write_durably(path, build_report(store, number).encode())
    say(f"finding {number} written to {path}")
    return {"finding": number, "report": str(path)}


def _list(found: list[StoredFinding]) -> None:
    if not found:
        say("no findings: keep one from a card of the dashboard's page Diagnosis")
        return
    print_table(
        ("no.", "status", "hypothesis", "run", "author", "last changed"),
        [
            (
                str(one.finding_id),
                one.status,
                one.hypothesis,
                one.run_id[:12],
                one.author,
                f"{one.changed_at:%Y-%m-%d}",
            )
            for one in found
        ],
    )


def _json(store: Store, one: StoredFinding) -> dict[str, Any]:
    """A finding with its history; of a diagnosis its pictures are left out."""
    return {
        "finding": one.finding_id,
        "run_id": one.run_id,
        "hypothesis": one.hypothesis,
        "fault": one.fault,
        "status": one.status,
        "author": one.author,
        "created_at": one.created_at.isoformat(),
        "changed_at": one.changed_at.isoformat(),
        "history": [
            {
                "at": entry.at.isoformat(),
                "author": entry.author,
                "kind": entry.kind,
                **{name: value for name, value in entry.content.items() if name != "looks"},
            }
            for entry in store.finding_history(one.finding_id)
        ],
    }
