"""Where files are looked for that are not shipped, for their licence or their size."""

from __future__ import annotations

from pathlib import Path

from fedlens.data.download import DATA_VARIABLE, search_folders
from fedlens.privatizers.private_data import PrivateDataError


def find_file(kind: str, name: str, data_dir: Path | None) -> Path:
    """The first ``name`` in `search_folders` of ``kind``; nothing is downloaded.

    Raises:
        PrivateDataError: when it is in none of these places.
    """
    tried = [folder / name for folder in search_folders(kind, data_dir)]
    for path in tried:
        if path.is_file():
            return path
    raise PrivateDataError(
        f"{kind} needs {name}, which is in none of "
        f"{', '.join(str(path.parent) for path in tried)}; put it there, or name its folder with "
        f"--data-dir or {DATA_VARIABLE}"
    )
