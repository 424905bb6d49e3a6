"""A power cut: what a process never flushed is gone.

Of each file stays what its last ``fsync`` covered, of each folder the names that were there at its
last one. What was renamed or made since is as it was before, or gone: the worst that a file system
may do that keeps its promises. SQLite's files are left as they are: they are flushed by SQLite
itself, at every commit (``synchronous`` is checked to be FULL).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from harness.faults.victim import SHADOW, SYNCED, Victim


def cut_power(victim: Victim) -> int:
    """Take away what was not flushed in a run's folder; how many files that changed."""
    lines = _notes(victim.folder / SYNCED)
    sizes = {line["inode"]: line["size"] for line in lines if "names" not in line}
    names = {line["path"]: line["names"] for line in lines if "names" in line}
    changed = 0
    if not victim.run.exists():
        return changed
    for folder in [victim.run, *(path for path in victim.run.rglob("*") if path.is_dir())]:
        kept = names.get(str(folder), {})
        for name in {path.name for path in folder.iterdir() if path.is_file()} | kept.keys():
            if not _of_sqlite(name):
                flushed = victim.folder / SHADOW / str(kept.get(name, "none"))
                changed += _after_cut(folder / name, flushed, sizes)
    return changed


def _after_cut(path: Path, flushed: Path, sizes: dict[int, int]) -> int:
    """Leave of a file what was flushed under its name, and say whether that is something else."""
    if path.is_dir():
        return 0
    if not flushed.exists():
        existed = path.exists()
        path.unlink(missing_ok=True)
        return int(existed)
    status, same = flushed.stat(), path.exists() and path.samefile(flushed)
    if not same:
        path.unlink(missing_ok=True)
        os.link(flushed, path)
    size = min(sizes.get(status.st_ino, 0), status.st_size)
    if size < status.st_size:
        os.truncate(path, size)
    return int(not same or size < status.st_size)


def _of_sqlite(name: str) -> bool:
    return name.startswith("store.db")


def _notes(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().splitlines() if line.endswith(b"}")]
