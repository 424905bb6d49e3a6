"""Memory that a process no longer uses, given back to the system."""

from __future__ import annotations

import ctypes
import gc


def give_back_memory() -> bool:
    """Have the C library return what was freed; whether it could be asked.

    It keeps freed pieces between those in use. After a training these are hundreds of megabytes,
    which what comes next would be added to.
    """
    gc.collect()
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library than glibc
        return False
    trim(0)
    return True
