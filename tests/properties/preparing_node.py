"""Prepare a store of many records in a process of its own, and print how much memory that took."""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

import numpy as np
from heavy_node import kilobytes

from fedlens.client.contract import FederationContract
from fedlens.client.preparing.intake import Preparation
from fedlens.client.preparing.prepare import prepare
from fedlens.data.formats.formats import open_source


def main(folder: Path, records: int) -> None:
    """Memory of the process's own; pages of files that are mapped are the system's to drop."""
    np.savez(
        folder / "records.npz",
        images=np.zeros((records, 16, 16), np.uint8),
        labels=np.array(["a", "b"])[np.arange(records) % 2],
        users=np.arange(records).astype(np.str_),
    )
    before, peak = kilobytes("RssAnon"), [0]

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], kilobytes("RssAnon"))
            time.sleep(0.01)

    threading.Thread(target=watch, daemon=True).start()
    contract = FederationContract(name="w", classes=("a", "b"), image={"side": 16})
    wanted = Preparation(contract, b"k" * 32, owners_secret=b"s" * 32)
    report = prepare(open_source(folder / "records.npz"), wanted, folder / "store")
    found = {"users": report.users, "megabytes": (peak[0] - before) / 1024}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
