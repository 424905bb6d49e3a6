"""One user with 300,000 records, on a node with 49 others: no more time, no more memory, no harm.

Such a user once exhausted the node's memory or outlasted the round, and with it all 50 users of the
node were missing from the sum.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from people import KINDS, MOST, person

HEAVY = 300_000
USERS = 50
MEGABYTES = 120
"""What the heavy file may take beyond the ordinary one; its images alone are 224."""


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, Path]:
    """A node's file with 4 records a user, and one in which the first user has 300,000."""
    folder, source = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    found = {}
    for name, heavy in (("plain", MOST), ("heavy", HEAVY)):
        owners = np.concatenate([np.zeros(heavy), np.repeat(np.arange(1, USERS), MOST)])
        pixels = source.integers(0, 256, (1000, 1, 28, 28), dtype=np.uint8)
        found[name] = folder / f"{name}.npz"
        np.savez(
            found[name],
            images=np.resize(pixels, (len(owners), 1, 28, 28)),
            labels=source.integers(0, 3, len(owners)),
            users=owners.astype(np.int64),
            classes=np.array(3),
            sensitive=source.integers(0, 2, len(owners)),
            sensitive_attribute=np.array("height"),
            sensitive_classes=np.array(2),
        )
    return found


ASKED = ("frozen", "annotator", "wgan")


@pytest.fixture(scope="module")
def answered(files) -> dict[str, dict[str, Any]]:
    """What requests of each kind took, by file and kind; a process a file."""
    return {name: measured(path, "user") for name, path in files.items()}


def measured(path: Path, unit: str, times: int = 4) -> dict[str, Any]:
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, str(here / "heavy_node.py"), str(path), ",".join(ASKED), unit, str(times)],
        check=True,
        capture_output=True,
        cwd=here.parents[1],
        env={"PYTHONPATH": f"{here.parents[1]}:{here}", "OMP_NUM_THREADS": "1", "PATH": "/usr/bin"},
        timeout=300,
    )
    lines = done.stdout.splitlines()
    return {kind: json.loads(line) for kind, line in zip(ASKED, lines, strict=True)}


@pytest.mark.parametrize("kind", ASKED)
@pytest.mark.law("6: everybody costs the same work")
def test_a_request_takes_no_longer_and_no_more_memory(answered, kind):
    plain, heavy = (answered[name][kind] for name in ("plain", "heavy"))
    # the first request reads the file's table, which is as long as the file
    best, worst = min(plain["seconds"][1:]), min(heavy["seconds"][1:])
    # 75,000 times the records; the rest is for a busy machine
    assert worst < 3 * best + 0.1
    assert heavy["megabytes"] < plain["megabytes"] + MEGABYTES


@pytest.mark.parametrize("kind", KINDS)
def test_the_sum_moves_by_the_clip_and_not_by_that_of_all_users_of_the_node(stage_of, kind):
    stage = stage_of(kind)
    others = [person(number, 2) for number in range(1, USERS)]
    second = [person(number, 2) for number in range(100, 100 + USERS)]
    with_heavy = stage.total([person(0, 20_000), *others], second)
    without = stage.total(others, second)
    assert 0 < np.linalg.norm(with_heavy.total - without.total) <= stage.clip * (1 + 1e-9)
