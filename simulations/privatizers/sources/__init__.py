"""The registry of sources of private data: one name, one loader, one line each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from simulations.privatizers.data import PrivateDataError, Split
from simulations.privatizers.sources import digits

Loader = Callable[[str, str, Path | None, int], Split]
"""From a source's name, what stands behind its colon, the folder of data files, and a seed."""


def _digits(make: digits.Make, data: str) -> Loader:
    return lambda name, _, data_dir, seed: digits.load_digits(name, make, data, data_dir, seed)


SOURCES: dict[str, Loader] = {
    "mnist-greater5": _digits(digits.greater_than_five, "mnist"),
    "amnist": _digits(digits.annotated, "mnist"),
    "mnist-thickness": _digits(digits.thickness, "mnist"),
    "embedded-mnist-greater5": _digits(digits.greater_than_five, "embedded"),
    "embedded-amnist": _digits(digits.annotated, "embedded"),
    "embedded-mnist-thickness": _digits(digits.thickness, "embedded"),
}


def load_private(name: str, data_dir: Path | str | None = None, seed: int = 0) -> Split:
    """The three parts of the source ``name`` (``kind`` or ``kind:argument``), dealt by ``seed``.

    Raises:
        PrivateDataError: there is no such source, or it has no secret to hide.
        DatasetError: its files are nowhere or damaged.
    """
    kind, _, argument = name.partition(":")
    if kind not in SOURCES:
        raise PrivateDataError(f"there is no source {name!r}; use one of {', '.join(SOURCES)}")
    return SOURCES[kind](name, argument, None if data_dir is None else Path(data_dir), seed)
