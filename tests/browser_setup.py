"""Install Debian's Chromium for the browser tests where that can be done; say so where it cannot.

Run before the tests (``make test`` does). Nothing is downloaded but Debian's own package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

CHROMIUM = Path("/usr/bin/chromium")
SKIPPED = "browser tests will be skipped (with CI=true: fail)"


def install() -> str:
    """Install the browser if it is missing; what came of it, in words."""
    if CHROMIUM.exists():
        return f"{CHROMIUM} is there: browser tests will run"
    if shutil.which("apt-get") is None:
        return f"{CHROMIUM} is missing and there is no apt-get: {SKIPPED}"
    if os.geteuid() != 0:
        return f"{CHROMIUM} is missing; run `apt-get install chromium` as root: {SKIPPED}"
    failed = _apt("update") or _apt("install", "--yes", "--no-install-recommends", "chromium")
    if failed:
        return f"{CHROMIUM} could not be installed ({failed}): {SKIPPED}"
    return f"installed {CHROMIUM}: browser tests will run"


def _apt(*arguments: str) -> str:
    """Run apt-get quietly; "" or the last line of its complaint."""
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", "-qq", *arguments], env=environment, capture_output=True, text=True
    )
    lines = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
    return lines[-1] if done.returncode else ""


if __name__ == "__main__":
    print(install())
