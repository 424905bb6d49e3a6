"""Two rounds of simulated users with a record each; prints the process's peak in megabytes."""

from __future__ import annotations

import json
import resource
import sys
import tempfile
from pathlib import Path

import numpy as np

from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process


def main(users: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        source, path = np.random.default_rng(0), Path(folder) / "many.npz"
        np.savez(
            path,
            train_images=np.zeros((users, 28, 28), np.uint8),  # pages that nothing touches yet
            train_labels=np.arange(users) % 10,
            test_images=source.integers(0, 256, (20, 28, 28), dtype=np.uint8),
            test_labels=np.arange(20) % 10,
        )
        settings = {
            "data.name": f"npz:{path}", "data.users": users, "data.nodes": 2,
            "privacy.delta": 1e-7, "tasks.critic.kind": "wgan", "tasks.critic.rounds": 2,
            "tasks.critic.generator_steps": 1, "tasks.critic.sampling_rate": 20 / users,
            "generator.batch": 20, "generator.width": 4, "release.every": 100,
            "release.samples": 10,
        }  # fmt: skip
        config = Config().updated(settings)
        directory = RunDirectory.create(Path(folder) / "run", config)
        assert train_in_process(config, directory, directory.default_store, None).rounds == 2
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"megabytes": peak}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
