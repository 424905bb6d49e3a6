"""Hugging Face data sets on the disk: ``save_to_disk`` folders, Parquet files, flwr partitions.

Read with pyarrow alone, in a child process; neither ``datasets`` nor any code of a data set runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedlens.data.formats.records import (
    OVERSIZED,
    Found,
    OutsideError,
    Picture,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    inside,
    known_part,
    naming,
    reason,
)
from fedlens.data.isolated.process import IsolatedError, read_isolated
from fedlens.data.spec import DatasetSpec

_READERS = "fedlens.data.isolated.arrow"
PARTITION = "partition_"


def arrow_records(path: Path, columns: SourceColumns) -> Iterator[Found]:
    """Records of a data set that ``save_to_disk`` wrote, of Parquet files, or of flwr partitions.

    Splits are parts. A folder of ``partition_0``, ``partition_1``, ... (as ``flwr-datasets create``
    writes) is read whole, the value ``partition`` naming each. Values: columns of one text, number
    or truth value; a ``ClassLabel`` by its name.

    Raises:
        SourceError: there is no such file, one is damaged, or no column has pictures.
    """
    files = list(_files(path))
    if not files:
        raise SourceError(f"{path}: has no .arrow or .parquet files; write it with save_to_disk")
    for file in files:
        yield from _file(path if path.is_dir() else path.parent, file, columns)


def _files(path: Path) -> Iterator[Path]:
    """Files of a data set in order; those that its ``state.json`` names, where there is one."""
    if path.is_file():
        yield path
        return
    if (path / "state.json").is_file():
        yield from (inside(path, name, f"{path}/state.json") for name in _state_files(path))
        return
    here = [p for p in path.iterdir() if not p.name.startswith((".", "cache-"))]
    for one in sorted(here, key=_order):
        if one.is_dir():
            yield from _files(one)
        elif one.suffix in (".arrow", ".parquet"):
            yield one


def _state_files(folder: Path) -> list[str]:
    try:
        state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        indexed = bool(state.get("_indices_data_files"))
        files = [str(file["filename"]) for file in state["_data_files"]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{folder}/state.json: is none of a data set ({reason(error)})") from None
    if indexed:
        raise SourceError(f"{folder}: has an index over its rows; flatten_indices() it first")
    return files


def _order(path: Path) -> tuple[str, int, str]:
    """By name, partitions by number."""
    stem, _, number = path.name.rpartition("_")
    return (stem, int(number), "") if number.isdecimal() else (path.name, 0, "")


def _file(root: Path, file: Path, columns: SourceColumns) -> Iterator[Found]:
    name = str(file.relative_to(root))
    words = file.relative_to(root).parts
    partitions = [word.removeprefix(PARTITION) for word in words if word.startswith(PARTITION)]
    known = {"partition": partitions[0]} if partitions else {}
    part, row = _part(words), 0
    try:
        for said, content in read_isolated(f"{_READERS}:read_pictures", file, columns.image):
            if "image" in said:
                _check_image(file, said)
                continue
            start = 0
            for place, told in enumerate(said["pictures"]):
                where, end = f"{name} row {row}", start + _size(told)
                picture = _picture(root, where, told, content[start:end])
                start, row = end, row + 1
                if isinstance(picture, UnusableRecord):
                    yield picture
                    continue
                held = {key: column[place] for key, column in said["values"].items()}
                values = {key: value for key, value in held.items() if value is not None}
                yield SourceRecord(where, picture, {**values, **known}, part)
    except (IsolatedError, OSError) as error:
        raise SourceError(f"{file}: cannot be read on ({reason(error)}); write it anew") from None


def _check_image(file: Path, said: dict[str, Any]) -> None:
    if said["image"] is None:
        raise SourceError(
            f"{file}: which column has the pictures? {naming('image')}; there are "
            f"{', '.join(said['names'])}"
        )


def _size(told: Any) -> int:
    """Bytes of a picture that come beside."""
    return int(told[1]) if isinstance(told, list) and len(told) > 1 else 0


def _picture(root: Path, where: str, told: Any, content: bytes) -> Picture | UnusableRecord:
    """A picture's bytes, its file below the folder, or its pixels."""
    if told is None:
        return UnusableRecord(where, "no picture")
    if isinstance(told, str):
        try:
            return inside(root, told, where)
        except OutsideError:
            return UnusableRecord(where, "a path that leads out of the folder")
    if told == ["large"]:
        return UnusableRecord(where, OVERSIZED)
    shape, _ = told
    return content if shape is None else np.frombuffer(content, np.uint8).reshape(shape)


def _part(words: tuple[str, ...]) -> str:
    """The part that a folder's or file's name says; the last one counts."""
    return next(filter(None, map(known_part, reversed(words))), "")


def hub_folder(name: str) -> Path:
    """The folder in which ``datasets`` keeps a data set of the hub, fetched if need be.

    Raises:
        SourceError: ``datasets`` is not installed, or it cannot be had.
    """
    try:
        from datasets import load_dataset
    except ImportError:
        raise SourceError(
            f"hf:{name}: is no folder here, and to fetch it from the hub takes datasets: "
            "pip install 'fedlens[datasets]'"
        ) from None
    try:
        splits = load_dataset(name)
        files = [Path(file["filename"]) for one in splits.values() for file in one.cache_files]
    except Exception as error:  # the hub's, the network's or the data set's own
        raise SourceError(f"hf:{name}: cannot be had ({reason(error)})") from None
    if not files:
        raise SourceError(f"hf:{name}: is not kept on the disk; write it with save_to_disk")
    return files[0].parent


def _fits(path: Path) -> bool:
    if path.is_file():
        return path.suffix == ".arrow" or (path.suffix == ".parquet" and _has_pictures(path))
    names = ("dataset_dict.json", "state.json", "dataset_info.json")
    if any((path / name).is_file() for name in names):
        return True
    if any(p.name.startswith(PARTITION) and p.is_dir() for p in path.iterdir()):
        return True
    tables = [
        p for place in (path, path / "data") if place.is_dir() for p in place.glob("*.parquet")
    ]
    return bool(tables) and _has_pictures(tables[0])


def _has_pictures(table: Path) -> bool:
    """Whether a Parquet file has pictures itself, and not only their names."""
    try:
        return any(said["binary"] for said, _ in read_isolated(f"{_READERS}:read_columns", table))
    except (IsolatedError, OSError):
        return False


HUGGING_FACE = DatasetSpec(
    "Hugging Face data set",
    format=SourceFormat(
        _fits,
        arrow_records,
        labels=("label", "labels", "class", "character", "digit", "fine_label"),
        users=("user", "user_id", "client_id", "writer_id", "patient_id", "partition"),
        found=hub_folder,
    ),
)
