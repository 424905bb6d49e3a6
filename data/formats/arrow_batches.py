"""Batches of rows from Arrow streams and Parquet files, none of which unpacks to more than fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlens.data.formats.arrow_messages import declared_batches
from fedlens.data.formats.records import SourceError
from fedlens.data.labelled.parquet_pages import unpacked_groups

ROWS_AT_ONCE, BYTES_AT_ONCE = 64, 1 << 28
LARGEST_PART, MOST_VALUES = 1 << 30, 1 << 28
"""Bytes and values of a row group or a batch: a run of equal values takes next to no bytes."""


@dataclass(frozen=True)
class _Part:
    """What is unpacked at once of a file."""

    name: str
    unpacked: int
    """Bytes."""
    largest: int
    """Bytes of one column or buffer: no value is larger."""
    values: int
    """Of one column."""
    smaller: str
    """How smaller ones are written."""


def batches(file: Path) -> Iterator[Any]:
    """Batches of some rows each, sound in themselves.

    Raises:
        SourceError: a row group or a batch unpacks to too much, by the file's own account.
        pyarrow.ArrowException: the file is damaged.
        OSError: it cannot be read.
    """
    import pyarrow
    import pyarrow.parquet as parquet

    if file.suffix == ".parquet":
        with parquet.ParquetFile(file) as opened:
            rows = _rows_at_once(file, _of_parquet(file))
            for batch in opened.iter_batches(batch_size=rows):
                batch.validate(full=True)
                yield batch
        return
    with pyarrow.memory_map(str(file)) as source:
        rows = _rows_at_once(file, _of_arrow(source))
        source.seek(0)
        with pyarrow.ipc.open_stream(source) as stream:
            for batch in stream:
                # A place outside the batch would be followed: to a crash, or to other memory.
                batch.validate(full=True)
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)


def _of_parquet(file: Path) -> Iterator[_Part]:
    for number, columns in enumerate(unpacked_groups(file)):
        sizes = [column.size for column in columns]
        values = max((column.values for column in columns), default=0)
        yield _Part(
            f"row group {number}", sum(sizes), max(sizes, default=0), values, "row_group_size=1000"
        )


def _of_arrow(source: Any) -> Iterator[_Part]:
    for number, one in enumerate(declared_batches(source)):
        yield _Part(f"batch {number}", one.unpacked, one.largest, one.values, "max_chunksize=1000")


def _rows_at_once(file: Path, parts: Iterator[_Part]) -> int:
    """How many rows to read at a time, judged by the file's own account of its sizes.

    A value may be as large as its column in a row group, and be there once for all rows that have
    it (a dictionary), so a file of kilobytes may ask for gigabytes.
    """
    largest = 1
    for part in parts:
        much = (
            f"unpacks to {part.unpacked} bytes at once" * (part.unpacked > LARGEST_PART)
            or f"has {part.values} values" * (part.values > MOST_VALUES)
        )  # fmt: skip
        if much:
            raise SourceError(
                f"{file}: its {part.name} {much}: write the file anew with smaller ones "
                f"({part.smaller})"
            )
        largest = max(largest, part.largest)
    return max(1, min(ROWS_AT_ONCE, BYTES_AT_ONCE // largest))
