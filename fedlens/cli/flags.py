"""Arguments that several verbs share, and verbs that the package fedlens-research brings."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from fedlens.foundation.errors import WrongUse

GROUP = "fedlens.verbs"
MISSING = (
    "comes with the package fedlens-research, which is not installed: in a checkout of fedlens, "
    "`pip install ./research`"
)


def add_research_verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, about: str, *, entry: str
) -> None:
    """Add a verb that another package carries out.

    Args:
        verbs: where it is added.
        name: of the verb.
        about: its line of the help where the package is not installed.
        entry: name of the entry point in the group ``fedlens.verbs``: a function that adds the
            verb's parser to ``verbs``.
    """
    for point in entry_points(group=GROUP, name=entry):
        point.load()(verbs)
        return
    parser = verbs.add_parser(name, help=about, add_help=False)
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(run=_refuse, refused=name)


def _refuse(args: argparse.Namespace) -> int:
    raise WrongUse(f"{args.refused!r} {MISSING}")


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


def select_flags(args: argparse.Namespace, *names: str) -> dict[str, Any]:
    """The flags of these names as keyword arguments."""
    return {name: getattr(args, name) for name in names}


def given_settings(kind: type[Any], args: argparse.Namespace) -> dict[str, Any]:
    """The flags that are fields of a dataclass of settings, by name."""
    names = [one.name for one in fields(kind) if one.name in args]
    return select_flags(args, *names)


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
