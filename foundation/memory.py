"""Memory that a process no longer uses, given back to the system."""

from __future__ import annotations

import ctypes
import gc

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
            eighth of a second where many libraries are loaded.

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
