"""Memory that one way's round of the large critic takes, in a process of its own (Linux)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmarks.peers.apple import apple_round
from benchmarks.peers.ours import ENGINES, our_round
from benchmarks.peers.work import SIZES


def peak_megabytes(name: str, cohort: int) -> float:
    """By how much a fresh process that has read the data grows in its first round, at most."""
    command = [sys.executable, "-m", "benchmarks.peers.memory", name, str(cohort)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return float(done.stdout.split()[-1])


def _alone(name: str, cohort: int) -> None:
    large = SIZES["large"]
    one = our_round(name, large, cohort) if name in ENGINES else apple_round(large, cohort)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _status("VmRSS")
    one()
    sys.stdout.write(f"{(_status('VmHWM') - before) / 1024}\n")


def _status(key: str) -> int:
    """Kilobytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key))


if __name__ == "__main__":
    _alone(sys.argv[1], int(sys.argv[2]))
