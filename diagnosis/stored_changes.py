"""What changes of images change in expected sums, stored between diagnoses of the same run.

Whoever has an idea asks again: with a fault of their own, with two that come together. What the
library changes is then known already. Nothing in it is about users: it follows from the reference
and from what the run has released. It may be deleted at any time.

A change is found again by its content: a digest of the images under it, within a digest of all
else that goes into the sums. What is damaged, or of another reference, run or version, is not used.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fedlens.diagnosis.expected import Matrix
from fedlens.foundation.files import write_durably

FORMAT = "fedlens-changes-1"
MOST_BYTES = 128 * 2**20
"""Of a file; what is beyond is computed each time."""
MOST_HEADER = 2**20


class StoredChanges:
    """Changes [2, P] of the halves' means by the digest of the images under them."""

    def __init__(self, path: Path | None, key: str) -> None:
        """Take up what a file holds, if it is of this key; none is read or written for None."""
        self._path, self._key = path, key
        self._known = {} if path is None else _read(path, key)
        self._fresh = False

    def find(self, digest: str) -> Matrix | None:
        """The change, if it is known."""
        found = self._known.get(digest)
        return None if found is None else _opened(found)

    def keep(self, digest: str, change: Matrix) -> Matrix:
        """Take a change up; returned as it will be found again, so that both answers are one."""
        packed = _packed(change)
        if (len(self._known) + 1) * packed.nbytes <= MOST_BYTES and self._path is not None:
            self._known[digest], self._fresh = packed, True
        return _opened(packed)

    def save(self) -> None:
        """Write what was taken up, whole or not at all; nothing where that cannot be written."""
        if self._path is None or not self._fresh:
            return
        body = b"".join(one.tobytes() for one in self._known.values())
        header = {
            "format": FORMAT,
            "key": self._key,
            "digest": hashlib.sha256(body).hexdigest(),
            "changes": list(self._known),
        }
        try:
            self._path.parent.mkdir(exist_ok=True)
            write_durably(self._path, json.dumps(header).encode() + b"\n" + body)
        except OSError:
            return


def _packed(change: Matrix) -> NDArray[np.uint8]:
    """Its largest value, float32, and all values over that one, float16."""
    most = np.float32(max(float(change.max()), -float(change.min()), 1e-30))
    values = torch.from_numpy(change / most).half().numpy()  # many times faster than NumPy's own
    return np.frombuffer(most.tobytes() + values.astype("<f2", copy=False).tobytes(), np.uint8)


def _opened(packed: NDArray[np.uint8]) -> Matrix:
    most, values = packed[:4].view("<f4"), packed[4:].view("<f2").astype(np.float16)
    found: Matrix = torch.from_numpy(values).float().mul_(float(most[0])).numpy().reshape(2, -1)
    return found


def _read(path: Path, key: str) -> dict[str, NDArray[np.uint8]]:
    """What a file holds; nothing where it is absent, damaged, too large or of another key."""
    try:
        if path.stat().st_size > MOST_BYTES + MOST_HEADER:
            return {}
        with path.open("rb") as file:
            header = json.loads(file.readline(MOST_HEADER))
            if (header["format"], header["key"]) != (FORMAT, key):
                return {}
            body, names = file.read(), [str(name) for name in header["changes"]]
        if hashlib.sha256(body).hexdigest() != header["digest"] or len(body) % max(1, len(names)):
            return {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    rows = np.frombuffer(body, np.uint8).reshape(len(names), -1) if names else np.empty((0, 0))
    return dict(zip(names, rows, strict=True))
