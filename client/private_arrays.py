"""Arrays that hold something of users, in the form in which they travel."""

from __future__ import annotations

import io
import os
from typing import Any

import numpy as np
from flwr.app import Array
from numpy.typing import NDArray

from fedlens.foundation.secure_sum.unguessable import turned, turned_back

SALT = "salt"
"""Field of fresh randomness beside what is private: see
`fedlens.foundation.secure_sum.unguessable`.
"""


def fresh_salt() -> bytes:
    """What stands in it."""
    return os.urandom(16)


def private_array(values: NDArray[Any]) -> Array:
    """An array whose bytes no one can guess, of a size that follows from ``values``' shape."""
    written = io.BytesIO()
    np.save(written, np.ascontiguousarray(values), allow_pickle=False)
    return Array(np.frombuffer(turned(written.getvalue()), dtype=np.uint8))


def read_private(array: Array) -> NDArray[Any]:
    """What `private_array` was given.

    Raises:
        Exception: of whichever kind NumPy and Flower raise on what is something else.
    """
    content = io.BytesIO(turned_back(array.numpy().tobytes()))
    # which gives an array or raises, where `np.load` gives an archive for an archive
    found: NDArray[Any] = np.lib.format.read_array(content, allow_pickle=False)
    return found
