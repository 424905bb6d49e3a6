"""Freed memory goes back to the system."""

from __future__ import annotations

import gc
import platform
import subprocess
import sys
import weakref

from fedlens.foundation.memory import pass_over_present_objects

CHILD = """
import gc
from pathlib import Path
from fedlens.foundation.memory import give_back_memory

def resident():
    (line,) = (x for x in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in x)
    return int(line.split()[1]) // 1024

kept = [b"x" * 40_000 for _ in range(5000)]
last = b"y" * 40_000  # lies behind them, so that the C library keeps what they had
del kept
gc.collect()
before = resident()
print(give_back_memory(), before - resident())
"""


class Ring:
    """Refers to itself, so that no count of references frees it."""

    def __init__(self) -> None:
        self.itself = self


def test_newer_cycles_are_freed_while_present_objects_are_passed_over() -> None:
    gc.collect()
    old = Ring()
    was = weakref.ref(old)
    with pass_over_present_objects():
        looked_at = len(gc.get_objects())
        new = weakref.ref(Ring())
        del old
        gc.collect()
        assert new() is None
        assert was() is not None
    gc.collect()
    assert was() is None
    assert looked_at < len(gc.get_objects()) / 2
    assert gc.get_freeze_count() == 0


def test_what_was_freed_is_given_back() -> None:
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    asked, mebibytes = done.stdout.split()
    assert (asked == "True") == (platform.libc_ver()[0] == "glibc")
    if asked == "True":
        assert int(mebibytes) > 100
