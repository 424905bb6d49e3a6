"""Arguments that several verbs share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedlens.foundation.errors import WrongUse

MOST_SEED = 1_000_000
SEEDS, QUICK_SEEDS = (0, 1, 2), (0,)


def add_json_flag(parser: argparse.ArgumentParser) -> None:
    """The flag of every verb that computes."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object as the last line"
    )


def add_run_argument(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    """The run that a verb is about, and where its store is."""
    parser.add_argument(
        "run_dir",
        type=Path,
        metavar="RUN_DIR",
        nargs="?" if optional else None,
        help="directory of a run",
    )
    parser.add_argument("--store", default="", help="URL of the store, where it is another one")


def add_seeds_flag(parser: argparse.ArgumentParser) -> None:
    """The flag of every verb that repeats what it measures."""
    parser.add_argument(
        "--seeds", nargs="+", default=[], metavar="SEED", help="seeds (default: 0 1 2; quick: 0)"
    )


def chosen(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The flags of these names as keyword arguments."""
    return {name: getattr(args, name) for name in names}


def parse_seeds(texts: Sequence[str], *, quick: bool) -> tuple[int, ...]:
    """The seeds that were named, each once, or the default ones.

    Raises:
        WrongUse: one is no whole number from 0, below a million.
    """
    if not texts:
        return QUICK_SEEDS if quick else SEEDS
    for text in texts:
        if not text.isdecimal() or int(text) >= MOST_SEED:
            raise WrongUse(f"--seeds {text!r}: give whole numbers from 0, below a million")
    return tuple(dict.fromkeys(int(text) for text in texts))


def make_out_folder(out: Path) -> Path:
    """The folder of ``--out``, which is there from now on.

    Raises:
        WrongUse: it cannot be made.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongUse(f"--out {out}: cannot be written to: {error.strerror}") from None
    return out


def file_to_write(path: Path, flag: str = "--out") -> Path:
    """The file that a flag names, in a folder that is there.

    Raises:
        WrongUse: there is no such folder, or the path is a folder itself.
    """
    if path.is_dir():
        raise WrongUse(f"{flag} {path}: is a folder; name a file in it")
    if not path.parent.is_dir():
        raise WrongUse(f"{flag} {path}: there is no folder {path.parent}; make it, or name another")
    return path
