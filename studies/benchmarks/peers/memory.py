"""Peak memory of one way's round of the large critic, in a process of its own."""

from __future__ import annotations

import resource
import subprocess
import sys

from studies.benchmarks.peers.apple import apple_round
from studies.benchmarks.peers.ours import ENGINES, our_round
from studies.benchmarks.peers.work import SIZES


def peak_megabytes(name: str, cohort: int) -> float:
    """Of a fresh process, Python and PyTorch (some 300 MB) included."""
    command = [sys.executable, "-m", "studies.benchmarks.peers.memory", name, str(cohort)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    return float(done.stdout.split()[-1])


def _alone(name: str, cohort: int) -> None:
    large = SIZES["large"]
    (our_round(name, large, cohort) if name in ENGINES else apple_round(large, cohort))()
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}\n")


if __name__ == "__main__":
    _alone(sys.argv[1], int(sys.argv[2]))
