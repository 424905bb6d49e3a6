"""Install Debian's Chromium for the browser tests where that can be done; say so where it cannot.

Run before the tests (``make test`` does). Nothing is downloaded but Debian's own package, and from
npm, where that is, the rules of accessibility that pages are checked by, for tests alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

AXE = "axe-core@4.14.1"
AXE_FOLDER = Path(__file__).parents[1] / "build" / "axe"
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


def axe_script() -> str | None:
    """The script of axe-core, where it was fetched."""
    path = AXE_FOLDER / "package" / "axe.min.js"
    return path.read_text(encoding="utf-8") if path.exists() else None


def fetch_axe() -> str:
    """Fetch axe-core from npm if it is missing; what came of it, in words."""
    if axe_script() is not None:
        return f"{AXE} is there: pages' accessibility will be checked"
    if shutil.which("npm") is None:
        return f"{AXE} is missing and there is no npm: pages' accessibility will not be checked"
    AXE_FOLDER.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(
        ["npm", "pack", AXE, "--silent"], cwd=AXE_FOLDER, capture_output=True, text=True
    )
    for archive in AXE_FOLDER.glob("*.tgz"):
        shutil.unpack_archive(archive, AXE_FOLDER, filter="data")
        archive.unlink()
    if axe_script() is None:
        return f"{AXE} could not be fetched (status {packed.returncode}): it will not be checked"
    return f"fetched {AXE}: pages' accessibility will be checked"


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
    print(fetch_axe())
