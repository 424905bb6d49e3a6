"""What a child process reads of Arrow streams and Parquet files, piece by piece.

Sizes are not judged here: the child's memory is limited. Imports pyarrow and NumPy alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from pyarrow import BaseExtensionType, parquet, types

from fedlens.data.isolated.process import Piece

ROWS, TABLE_ROWS = 32, 1024
"""Rows of pictures, and of a table, at a time."""
BYTES = 1 << 25
"""Of pictures in a piece; one that is larger comes alone."""
MOST_PICTURE = 1 << 26
MOST_ROWS = 1 << 28
"""Of one batch or file: rows that take no bytes can be claimed without end."""
IMAGE_COLUMNS = ("image", "img", "picture", "pixel_values")


def read_columns(path: Path) -> Iterator[Piece]:
    """One piece with ``names``, and the ``binary`` ones: columns of bytes or of structures."""
    schema = parquet.read_schema(path)
    binary = [one.name for one in schema if types.is_struct(one.type) or types.is_binary(one.type)]
    yield {"names": schema.names, "binary": binary}, b""


def read_pictures(path: Path, image: str) -> Iterator[Piece]:
    """Rows of a Parquet file or an Arrow stream with pictures.

    The first piece has ``names``, and ``image``: the column of pictures, or None. Then ``values``
    by column (texts or None), and ``pictures``, one a row: bytes (``[None, size]``), a path (a
    text), pixels (``[shape, size]``), ``"large"`` in a list, or None; bytes and pixels lie in turn
    in what comes beside.
    """
    for number, batch in enumerate(_batches(path)):
        if number == 0:
            features = _features(batch.schema)
            chosen = _image_column(batch.schema.names, features, image)
            yield {"names": batch.schema.names, "image": chosen}, b""
            if chosen is None:
                return
            plain = [one.name for one in batch.schema if _is_plain(one.type)]
        values = {
            name: [_text(one, features.get(name)) for one in batch.column(name).to_pylist()]
            for name in plain
            if name != chosen
        }
        pictures: list[Any] = []
        content: list[bytes] = []
        for place, value in enumerate(batch.column(chosen).to_pylist()):
            told, raw = _picture(value)
            pictures.append(told)
            content.append(raw)
            if sum(map(len, content)) > BYTES or place == batch.num_rows - 1:
                start = place + 1 - len(pictures)
                some = {name: column[start : place + 1] for name, column in values.items()}
                yield {"values": some, "pictures": pictures}, b"".join(content)
                pictures, content = [], []


def read_texts(path: Path) -> Iterator[Piece]:
    """Rows of a Parquet file as texts; lists and structures are left out.

    The first piece has ``names``. Then ``columns``: of each the places in its ``words``, each text
    being told once a piece, None for none.
    """
    with parquet.ParquetFile(path) as file:
        plain = [one for one in file.schema_arrow if not types.is_nested(one.type)]
        names = [one.name for one in plain]
        deltas = _told_as_differences(file.metadata)
    words = [one.name for one in plain if _is_text(one.type) and one.name not in deltas]
    yield {"names": names}, b""
    with parquet.ParquetFile(path, read_dictionary=words, pre_buffer=False) as file:
        rows = _rows_at_once(file.metadata)
        for batch in file.iter_batches(batch_size=rows, columns=names, use_threads=False):
            batch.validate(full=True)  # places in a dictionary may lie outside it
            yield {"columns": [_words_and_places(column) for column in batch.columns]}, b""


def _batches(path: Path) -> Iterator[Any]:
    """Batches of few rows, sound in themselves: a place outside one would be followed."""
    if path.suffix == ".parquet":
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            _check_rows(file.metadata.num_rows)
            for batch in file.iter_batches(batch_size=ROWS, use_threads=False):
                batch.validate(full=True)
                yield batch
        return
    with (
        pyarrow.memory_map(str(path)) as source,
        pyarrow.ipc.open_stream(source) as stream,
    ):
        for batch in stream:
            _check_rows(batch.num_rows)
            batch.validate(full=True)
            for start in range(0, batch.num_rows, ROWS):
                yield batch.slice(start, ROWS)


def _check_rows(count: int) -> None:
    if not 0 <= count <= MOST_ROWS:
        raise ValueError(f"it says that it has {count} rows")


def _rows_at_once(metadata: Any) -> int:
    """Rows of a table to unpack at a time: one text may be as large as its column."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    largest = max((group.total_byte_size for group in groups), default=1)
    return max(1, min(TABLE_ROWS, 8 * BYTES // max(1, largest)))


def _told_as_differences(metadata: Any) -> set[str]:
    """Columns whose texts are stored as differences: pyarrow makes no dictionary of those."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    columns = (group.column(place) for group in groups for place in range(group.num_columns))
    return {one.path_in_schema for one in columns if any("DELTA" in way for way in one.encodings)}


def _image_column(names: list[str], features: dict[str, Any], asked: str) -> str | None:
    wanted = (asked,) if asked else IMAGE_COLUMNS
    found = [name for name in wanted if name in names]
    typed = [name for name in names if features.get(name, {}).get("_type") == "Image"]
    return next(iter([*found, *typed]), None)


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """What a Hugging Face file says of its columns; nothing where it does not."""
    try:
        said = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
        features = said.get("info", {}).get("features", {})
        return {name: one for name, one in features.items() if isinstance(one, dict)}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _is_plain(kind: Any) -> bool:
    """Whether values are texts, numbers or truth values."""
    if isinstance(kind, BaseExtensionType):
        return _is_plain(kind.storage_type)
    if types.is_dictionary(kind):
        return _is_plain(kind.value_type)
    tests = (
        types.is_string, types.is_large_string, types.is_string_view, types.is_integer,
        types.is_floating, types.is_boolean,
    )  # fmt: skip
    return any(test(kind) for test in tests)


def _is_text(kind: Any) -> bool:
    tests = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(test(kind) for test in tests)


def _text(value: Any, feature: dict[str, Any] | None) -> str | None:
    """A value as text, that of a class by its name."""
    names = (feature or {}).get("names")
    if isinstance(names, list) and isinstance(value, int) and value < len(names):
        return str(names[value]) if value >= 0 else None  # -1 stands for no label
    return str(value) if isinstance(value, str | int | float) else None


def _picture(value: Any) -> tuple[Any, bytes]:
    """What is told of a picture, and its bytes."""
    if isinstance(value, dict) and isinstance(value.get("bytes"), bytes):
        value = value["bytes"]
    if isinstance(value, dict):
        path = value.get("path")
        return (path if isinstance(path, str) and path else None), b""
    if not isinstance(value, bytes):
        return _pixels(value)
    return (["large"], b"") if len(value) > MOST_PICTURE else ([None, len(value)], value)


def _pixels(value: Any) -> tuple[Any, bytes]:
    try:
        pixels = np.asarray(value)
    except (ValueError, TypeError, OverflowError):
        return None, b""
    if pixels.dtype.kind not in "iu" or not pixels.size:
        return None, b""
    if pixels.size > MOST_PICTURE:
        return ["large"], b""
    if pixels.min() < 0 or pixels.max() > 255:
        return None, b""
    return [pixels.shape, pixels.size], pixels.astype(np.uint8).tobytes()


def _words_and_places(column: Any) -> dict[str, Any]:
    if types.is_dictionary(column.type):
        used = column.indices.drop_null().unique()
        numbers = {place: number for number, place in enumerate(used.to_pylist())}
        words = [_cell(value) for value in column.dictionary.take(used).to_pylist()]
        return {"words": words, "places": [numbers.get(one) for one in column.indices.to_pylist()]}
    texts = [_cell(value) for value in column.to_pylist()]
    known = {text: place for place, text in enumerate(dict.fromkeys(texts))}
    return {"words": list(known), "places": [known[text] for text in texts]}


def _cell(value: object) -> str:
    return "" if value is None or value != value else str(value).strip()
