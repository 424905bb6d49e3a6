"""``fedlens dashboard``: look at runs, inspect samples, label them."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from fedlens.cli import VERBS
from fedlens.cli.flags import select_flags
from fedlens.foundation.errors import WrongUse

THREADS = "OPENBLAS_NUM_THREADS"


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "dashboard",
        help=VERBS["dashboard"],
        description="Serve the dashboard on this machine; the printed link carries its token.",
        epilog="example: fedlens dashboard runs, for all runs below that folder",
    )
    parser.add_argument(
        "run_dir",
        type=Path,
        metavar="FOLDER",
        nargs="?",
        help="a run's directory, or a folder: all runs in it are shown, up to five levels below",
    )
    parser.add_argument("--store", default="", help="URL of the store, where it is another one")
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
    add(
        "--oidc",
        type=Path,
        metavar="FILE",
        help="TOML file, for its owner alone, with the identity provider by which people sign in",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    _load_numpy_for_one_thread()
    from fedlens.api.runs import open_run
    from fedlens.dashboard.serve import serve

    url = args.store or os.environ.get("FEDLENS_STORE", "")
    folder = _workspace(args.run_dir)
    if folder is not None:
        url = url or _own_store(folder)
    elif args.run_dir is not None:
        url = open_run(args.run_dir, store=args.store).store
    if not url:
        raise WrongUse("name a run's directory, a FOLDER of runs or a --store to look at")
    given = select_flags(args, "host", "port", "allow_remote")
    if args.token_file is not None:
        given["token"] = _read_token(args.token_file)
    serve(url, **given, folder=folder, provider=args.oidc, open_browser=args.open)
    return 0


def _load_numpy_for_one_thread() -> None:
    """Have NumPy compute each product in one thread; a variable that is set already holds.

    Threads of one product wait for each other: where a run trains on the same two cores, the order
    of 20,000 samples took 12 seconds with two of them, and takes one with one. What the pages start
    is a process of its own and keeps its threads.
    """
    if THREADS in os.environ:
        return
    os.environ[THREADS] = "1"  # read once, when it is loaded
    import numpy  # noqa: F401

    del os.environ[THREADS]


def _workspace(path: Path | None) -> Path | None:
    """The folder, where it is one of runs and no run's own."""
    from fedlens.server.run.directory import RunDirectory

    if path is None or not path.is_dir():
        return None
    return None if RunDirectory(path).settings_file.is_file() else path


def _own_store(folder: Path) -> str:
    """The store of a folder of runs, made where there is none: it holds accounts and sessions."""
    from fedlens.dashboard.access.workspace import STORE_FILE
    from fedlens.store import open_store

    path = folder / STORE_FILE
    if not path.exists():
        open_store(path, create=True).close()
    return str(path)


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
