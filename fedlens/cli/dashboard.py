"""``fedlens dashboard``: look at runs, inspect samples, label them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fedlens.cli import VERBS
from fedlens.cli.flags import add_run_argument, select_flags
from fedlens.foundation.errors import WrongUse


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "dashboard",
        help=VERBS["dashboard"],
        description="Serve the dashboard on this machine; the printed link carries its token.",
        epilog="example: fedlens dashboard runs/demo",
    )
    add_run_argument(parser, optional=True)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=8501, help="port (default: 8501)")
    add(
        "--token-file",
        type=Path,
        help="file with the token of the link, for its owner alone (default: a fresh random token)",
    )
    add("--open", action="store_true", help="open it in a browser")
    add("--allow-remote", action="store_true", help="listen on an address that others can reach")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from fedlens.api.runs import open_run
    from fedlens.dashboard.serve import serve

    url = args.store or os.environ.get("FEDLENS_STORE", "")
    if args.run_dir is not None:
        url = open_run(args.run_dir, store=args.store).store
    if not url:
        raise WrongUse("name a RUN_DIR or a --store to look at")
    given = select_flags(args, "host", "port", "allow_remote")
    if args.token_file is not None:
        given["token"] = _read_token(args.token_file)
    serve(url, **given, open_browser=args.open)
    return 0


def _read_token(path: Path) -> str:
    """A token from a file: an argument would show in the list of processes.

    Raises:
        WrongUse: there is no such file, others can read it too, or it holds no text.
    """
    if not path.is_file():
        raise WrongUse(f"--token-file {path}: there is no such file")
    if path.stat().st_mode & 0o077:
        raise WrongUse(f"--token-file {path}: others can read it: chmod 600 {path}")
    try:
        return path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        raise WrongUse(f"--token-file {path}: holds no token: give ASCII characters") from None
