"""``fedlens backup``: a run's folder, ledger and store in one archive."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli import VERBS
from fedlens.cli.output import say


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "backup",
        help=VERBS["backup"],
        description="Write everything of a run into one archive, with a hash of each file. No "
        "process may train in the folder meanwhile. A PostgreSQL store is not in it: pg_dump it.",
        epilog="example: fedlens backup runs/demo --out demo.tar",
    )
    parser.add_argument("run_dir", type=Path, metavar="RUN_DIR", help="directory of a run")
    parser.add_argument("--out", type=Path, required=True, help="the archive, a new file")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the archive."""
    from fedlens.api.backups import backup

    say(f"{backup(args.run_dir, args.out)} holds {args.run_dir}; keep it as private as the run")
    if not (args.run_dir / "store.db").exists():
        say("its store is another database, which is not in the archive: pg_dump it too")
    return 0
