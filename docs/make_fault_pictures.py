"""Make the pictures of the faulty demo that the README and the tour show, from two runs.

make demo demo-fault
python docs/make_fault_pictures.py --clean runs/demo --faulty runs/demo-fault --out docs/images
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fedlens.cli import main as fedlens

ROWS = 6


def main() -> None:
    """Read the arguments and make both pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clean", type=Path, required=True, help="directory of the sound run")
    parser.add_argument("--faulty", type=Path, required=True, help="directory of the faulty run")
    parser.add_argument("--out", type=Path, default=Path("docs/images"), help="folder for the PNGs")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    sheet = ["--beside", str(given.clean), "--rows", str(ROWS)]
    fedlens(["samples", str(given.faulty), *sheet, "--png", str(given.out / "fault-beside.png")])
    fedlens(["diagnose", str(given.faulty)])
    diagnosis = given.faulty / "pictures" / "diagnosis.png"
    (given.out / "fault-diagnosis.png").write_bytes(diagnosis.read_bytes())


if __name__ == "__main__":
    main()
