"""Hugging Face data sets on the disk: ``save_to_disk`` folders, Parquet files, flwr partitions.

Read with pyarrow alone, a batch at a time; neither ``datasets`` nor any code of a data set runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fedlens.data.formats.arrow_batches import batches
from fedlens.data.formats.records import (
    TEST,
    TRAIN,
    Found,
    Picture,
    SourceColumns,
    SourceError,
    SourceFormat,
    SourceRecord,
    UnusableRecord,
    naming,
    reason,
)
from fedlens.data.labelled.folder import inside
from fedlens.privatizers.private_data import PrivateDataError

IMAGE_COLUMNS = ("image", "img", "picture", "pixel_values")
PARTITION = "partition_"
_WORDS = re.compile(r"[-_.]")


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
    import pyarrow

    name = str(file.relative_to(root))
    words = file.relative_to(root).parts
    partitions = [word.removeprefix(PARTITION) for word in words if word.startswith(PARTITION)]
    known = {"partition": partitions[0]} if partitions else {}
    part = _part(words)
    try:
        row, schema = 0, None
        for batch in batches(file):
            if schema is None:
                schema = _Schema(file, batch.schema, columns)
            for values in batch.select(schema.columns).to_pylist():
                yield schema.record(root, f"{name} row {row}", values, known, part)
                row += 1
    except (
        pyarrow.ArrowException,
        OSError,
        MemoryError,
        UnicodeDecodeError,
        OverflowError,
    ) as error:
        raise SourceError(f"{file}: cannot be read on ({reason(error)}); write it anew") from None


def _part(words: tuple[str, ...]) -> str:
    """``train`` or ``test``, where a folder's or file's name has that word; the last one counts."""
    found = [part for word in words for part in _WORDS.split(word) if part in (TRAIN, TEST)]
    return found[-1] if found else ""


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


class _Schema:
    """Which column has the pictures, and names of classes."""

    def __init__(self, file: Path, schema: Any, columns: SourceColumns) -> None:
        names = list(schema.names)
        wanted = (columns.image,) if columns.image else IMAGE_COLUMNS
        found = [name for name in wanted if name in names]
        features = _features(schema)
        images = [n for n in names if isinstance(features.get(n), dict)
                  and features[n].get("_type") == "Image"]  # fmt: skip
        if not (found or images):
            raise SourceError(
                f"{file}: which column has the pictures? {naming('image')}; there are "
                f"{', '.join(names)}"
            )
        self._image = (found or images)[0]
        self.columns = _read_columns(file, schema, self._image)
        self._classes = {
            name: [str(one) for one in feature["names"]]
            for name, feature in features.items()
            if isinstance(feature, dict) and isinstance(feature.get("names"), list)
        }

    def record(
        self, root: Path, where: str, row: dict[str, Any], known: dict[str, str], part: str
    ) -> Found:
        values = {
            name: self._text(name, value)
            for name, value in row.items()
            if name != self._image and isinstance(value, str | int | float | bool)
        }
        try:
            picture = _picture(root, where, row[self._image])
        except PrivateDataError:
            return UnusableRecord(where, "a path that leads out of the folder")
        except (ValueError, TypeError, OverflowError):
            return UnusableRecord(where, "no picture")
        return SourceRecord(where, picture, {**values, **known}, part)

    def _text(self, name: str, value: str | int | float | bool) -> str:
        names = self._classes.get(name, [])
        if isinstance(value, int) and 0 <= value < len(names):
            return names[value]
        return str(value)


def _read_columns(file: Path, schema: Any, image: str) -> list[int]:
    """Places of the columns that are read: the picture's and those of plain values.

    Raises:
        SourceError: within one picture a part of it may stand any number of times.
    """
    for one in schema:
        if one.name == image and any(_may_repeat(part) for part in _parts(one.type)):
            raise SourceError(
                f"{file}: its column {image} is {one.type}, in which a part may stand for many; "
                "write plain bytes or lists of numbers"
            )
    return [at for at, one in enumerate(schema) if one.name == image or _is_plain(one.type)]


def _parts(kind: Any) -> Iterator[Any]:
    """The kinds within a kind, however deep."""
    from pyarrow import BaseExtensionType, types

    if isinstance(kind, BaseExtensionType):
        kind = kind.storage_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    for place in range(kind.num_fields):
        yield kind.field(place).type
        yield from _parts(kind.field(place).type)


def _may_repeat(kind: Any) -> bool:
    """Whether a value of this kind may lie once in a file for any number of its places."""
    from pyarrow import types

    tests = (
        types.is_dictionary, types.is_run_end_encoded, types.is_string_view, types.is_binary_view,
        types.is_list_view, types.is_large_list_view,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _is_plain(kind: Any) -> bool:
    """Whether values are texts, numbers or truth values."""
    from pyarrow import BaseExtensionType, types

    if isinstance(kind, BaseExtensionType):
        return _is_plain(kind.storage_type)
    if types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    tests = (
        types.is_string, types.is_large_string, types.is_string_view, types.is_integer,
        types.is_floating, types.is_boolean,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _picture(root: Path, where: str, value: Any) -> Picture:
    """A picture's bytes, its file below the folder, or its pixels."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        return bytes(value["bytes"])
    if isinstance(value, dict) and isinstance(value.get("path"), str) and value["path"]:
        return inside(root, value["path"], where)
    pixels = np.asarray(value)
    if pixels.dtype.kind not in "iu" or pixels.size == 0 or pixels.min() < 0 or pixels.max() > 255:
        raise ValueError("no picture")
    return pixels.astype(np.uint8)


def _features(schema: Any) -> dict[str, Any]:
    """What a file says of its columns; nothing where it does not."""
    try:
        said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = said.get("info", {}).get("features", {})
        return features if isinstance(features, dict) else {}
    except (ValueError, AttributeError, RecursionError):
        return {}


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
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        schema = parquet.read_schema(table)
    except (pyarrow.ArrowException, OSError):
        return False
    return any(
        pyarrow.types.is_struct(kind) or pyarrow.types.is_binary(kind) for kind in schema.types
    )


HUGGING_FACE = SourceFormat(
    "Hugging Face data set on the disk", _fits, arrow_records,
    labels=("label", "labels", "class", "character", "digit", "fine_label"),
    users=("user", "user_id", "client_id", "writer_id", "patient_id", "partition"),
)  # fmt: skip
