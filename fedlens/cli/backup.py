"""``fedlens backup`` and ``fedlens restore``: a run in one archive, and back from it, verified."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli import VERBS
from fedlens.cli.output import say


def add_restore_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "restore",
        help=VERBS["restore"],
        description="Check every file's hash, the ledger's chain and the store's mirror of it, and "
        "bring the run's folder back. It does not go on until you say that it is the only one. A "
        "store elsewhere must be named: what the archive says of it is not taken.",
        epilog="example: fedlens restore demo.tar --out runs/demo",
    )
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="what backup wrote")
    parser.add_argument("--out", type=Path, required=True, help="a new folder")
    parser.add_argument(
        "--store", default="", help="URL of the run's store, where it is not in the archive"
    )
    parser.set_defaults(run=run_restore)


def run_restore(args: argparse.Namespace) -> int:
    """Bring it back."""
    from fedlens.api.backups import restore
    from fedlens.server.run.directory import RunDirectory

    made = restore(args.archive, args.out, store=args.store)
    say(f"{made.path} is back; its ledger holds")
    if (made.path / "store.db").exists():
        say(
            "its accounts are as they were then, all signed out: `fedlens accounts list` shows them"
        )
    how = RunDirectory(made.path).resume_words(only_copy=True)
    say(f"to go on with it:  {how}")
    return 0


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
