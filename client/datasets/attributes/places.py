"""Where files are looked for that are not shipped, for their licence or their size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from client.datasets.attributes.data import PrivateDataError
from client.datasets.download import cache_folder
from client.datasets.idx_sets import DATA_VARIABLE


def find_file(kind: str, name: str, data_dir: Path | None) -> Path:
    """``name`` in ``data_dir`` alone when given; else in FEDLENS_DATA, else in the cache.

    A sub-folder ``kind`` goes first in each. Nothing is downloaded.

    Raises:
        PrivateDataError: when it is in none of these places.
    """
    tried = [folder / name for folder in _folders(kind, data_dir)]
    for path in tried:
        if path.is_file():
            return path
    raise PrivateDataError(
        f"{kind} needs {name}, which is in none of "
        f"{', '.join(str(path.parent) for path in tried)}; put it there, or name its folder with "
        f"--data-dir or {DATA_VARIABLE}"
    )


def _folders(kind: str, data_dir: Path | None) -> Iterator[Path]:
    if data_dir is not None:
        yield from (data_dir / kind, data_dir)
        return
    if named := os.environ.get(DATA_VARIABLE):
        yield from (Path(named) / kind, Path(named))
    yield cache_folder(kind)
