"""Memory that a process no longer uses, given back to the system."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager

LARGE_PIECE = 2**22
"""Bytes of a piece that goes back as soon as it is freed."""
_MMAP_THRESHOLD = -3
"""What the C library calls that size in its header ``malloc.h``."""


def give_back_memory(*, cycles: bool = True) -> bool:
    """Have the C library return what was freed, and large pieces at once from now on.

    It keeps freed pieces between those in use. After a training these are hundreds of megabytes,
    which what comes next would be added to. By itself it soon keeps pieces of up to 32 MiB, the
    size that many tensors of large images have.

    Args:
        cycles: whether what only refers to itself is looked for first, through all objects: an
            eighth to a half of a second where many libraries are loaded, unless they are passed
            over (`pass_over_present_objects`).

    Returns:
        Whether it could be asked.
    """
    if cycles:
        gc.collect()
    try:
        library = ctypes.CDLL(None)
        trim, limit = library.malloc_trim, library.mallopt
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return False
    limit(_MMAP_THRESHOLD, LARGE_PIECE)
    trim(0)
    return True


@contextmanager
def pass_over_present_objects() -> Iterator[None]:
    """While this lasts, searches for what only refers to itself look at newer objects alone.

    Loaded libraries are hundreds of thousands of objects that nothing will ever free. What is freed
    by reference counts, as tensors are, is freed as ever; cycles among the objects that are there
    now are found once this has ended.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
