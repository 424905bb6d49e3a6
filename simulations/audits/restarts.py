"""Does the source of noise start anew in a new process, or from where it started last time?"""

from __future__ import annotations

import subprocess
import sys

import numpy as np

from fedlens.accountant.audit.noise import Values

DRAWS = 8
_PROGRAM = (
    "from fedlens.accountant.noise import gaussian, private_source; "
    f"print(gaussian({DRAWS}, noise_multiplier=1.0, sensitivity=1.0, "
    "source=private_source(-1, 1, 3)).tobytes().hex())"
)


def restarts_repeat(lives: int = 3) -> bool:
    """Whether two of ``lives`` fresh processes draw any noise alike for the same round."""
    drawn = [draw_once() for _ in range(lives)]
    return len(set().union(*drawn)) < lives * DRAWS


def draw_once() -> set[float]:
    """The first noise of a fresh process.

    Raises:
        OSError: the process could not be run.
    """
    done = subprocess.run(  # noqa: S603 - this interpreter, a constant program
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise OSError(f"a process to draw noise in ended with status {done.returncode}")
    return set(_floats(done.stdout.strip()).tolist())


def _floats(text: str) -> Values:
    return np.frombuffer(bytes.fromhex(text), dtype=np.float64)
