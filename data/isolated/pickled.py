"""What a child process reads of CIFAR's Python version: pickles, of which nothing is carried out.

A pickle names functions to be called. Here it gets none but stand-ins of this file for the three
that arrays and bytes are written with; any other name ends the reading, and no code of NumPy's
sees what a pickle says. The array itself is made of its bytes, where it says that they are bytes.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedlens.data.isolated.process import Piece

ROWS = 1024
PIXELS = 3072


class _Kind:
    """What stands for an array's type: its name."""

    def __init__(self, name: object = "", *_: object) -> None:
        self.name = name.decode("ascii") if isinstance(name, bytes) else str(name)

    def __setstate__(self, state: object) -> None:
        """A type's byte order and fields say nothing of bytes."""


class _Array:
    """What stands for an array: its shape, type and bytes."""

    shape: tuple[int, ...] = ()
    content = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        sound = isinstance(kind, _Kind) and kind.name == "u1" and isinstance(content, bytes)
        if not sound or by_columns:
            raise ValueError("an array that is none of bytes by rows")
        self.shape, self.content = tuple(int(one) for one in shape), content


def _array(*_: object) -> _Array:
    return _Array()


def _encoded(text: str, name: str = "latin1") -> bytes:
    if name not in ("latin1", "latin-1"):
        raise ValueError("an encoding that is none of CIFAR's")
    return text.encode("latin-1")


_STAND_INS: dict[tuple[str, str], Any] = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _array for core in ("core", "_core")},
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _encoded,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """A stand-in; never what the names mean."""
        if (module, name) not in _STAND_INS:
            raise ValueError(f"it names {module}.{name}, which is not called")
        return _STAND_INS[module, name]

    def persistent_load(self, pid: object) -> Any:
        """Refused: CIFAR's files refer to nothing outside."""
        raise ValueError("it refers to something outside")


def read_names(path: Path) -> Iterator[Piece]:
    """One piece: ``names`` by the list's key, of a file of names."""
    said = _read(path)
    lists = {_text(key): value for key, value in said.items() if isinstance(value, list)}
    yield {"names": {key: [_text(one) for one in value] for key, value in lists.items()}}, b""


def read_batch(path: Path) -> Iterator[Piece]:
    """Pieces of ``labels`` (numbers by the list's key), and a row's planes after the other beside.

    Raises:
        ValueError: it is no batch of CIFAR, or its lists have another length than its array.
    """
    said = {_text(key): value for key, value in _read(path).items()}
    pixels = said.get("data")
    if not isinstance(pixels, _Array) or len(pixels.shape) != 2 or pixels.shape[1] != PIXELS:
        raise ValueError("it has no array data of 3,072 bytes a row")
    rows = pixels.shape[0]
    lists = {key: _numbers(value, rows) for key, value in said.items() if key.endswith("labels")}
    if rows * PIXELS != len(pixels.content) or not lists:
        raise ValueError("its array and its labels have other lengths than they say")
    planes = np.frombuffer(pixels.content, np.uint8).reshape(rows, PIXELS)
    for start in range(0, rows, ROWS):
        some = {key: found[start : start + ROWS] for key, found in lists.items()}
        yield {"labels": some}, planes[start : start + ROWS].tobytes()


def _read(path: Path) -> dict[Any, Any]:
    with path.open("rb") as file:
        said = _Reader(file, encoding="bytes").load()
    if not isinstance(said, dict):
        raise TypeError("it holds no table of CIFAR's")
    return said


def _numbers(value: object, rows: int) -> list[int]:
    if not isinstance(value, list) or len(value) != rows:
        raise ValueError("a list of labels of another length than its array")
    if not all(type(one) is int and one >= 0 for one in value):
        raise ValueError("a label that is no number from 0")
    return value


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
