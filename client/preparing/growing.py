"""An array in a ``.npy`` file that rows are added to; none of it is held."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


class GrowingArray:
    """Rows of one shape, written as they come; the header says how many when it is closed."""

    def __init__(self, path: Path, dtype: str, row: tuple[int, ...] = ()) -> None:
        """Begin an empty array.

        Args:
            path: of a new file.
            dtype: of its numbers, little-endian.
            row: shape of a row.
        """
        self._dtype, self._row, self._rows = np.dtype(dtype), row, 0
        self._file = path.open("xb")
        self._head()
        self._start = self._file.tell()

    def __enter__(self) -> GrowingArray:
        """The array."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def append(self, rows: NDArray[Any] | int) -> None:
        """Add one row, or several: an array [n, *row]."""
        block = np.asarray(rows, self._dtype)
        block = block.reshape(-1, *self._row)
        self._file.write(np.ascontiguousarray(block).tobytes())
        self._rows += len(block)

    def close(self) -> None:
        """Write the number of rows into the header, and close the file."""
        if self._file.closed:
            return
        self._file.seek(0)
        self._head()
        if self._file.tell() != self._start:
            raise ValueError("the header has grown")
        self._file.close()

    def _head(self) -> None:
        # numpy leaves room in the header for the first number to grow
        npy.write_array_header_1_0(
            self._file,
            {
                "descr": npy.dtype_to_descr(self._dtype),
                "fortran_order": False,
                "shape": (self._rows, *self._row),
            },
        )
