"""Train a small run, read what it guarantees, and save a sheet of its samples.

python examples/simulate_and_look.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import fedlens

# A few seconds instead of minutes: fewer users, one task, a small generator. Leave ``settings`` out
# for the whole preset, whose samples are worth looking at.
SMALL = {
    "schedule": "critic",
    "data.users": 200,
    "privacy.delta": 1e-4,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.critic.generator_steps": 20,
    "generator.width": 16,
    "release.samples": 80,
    "release.agreement": 0.0,
}

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
run = fedlens.simulate("demo", out=folder, settings=SMALL, student=False)
print(run.statement())

samples = run.samples()
rows = [np.concatenate(list(row), axis=-1)[0] for row in samples.images.reshape(8, 10, 1, 28, 28)]
sheet = folder / "sheet.png"
Image.fromarray(np.concatenate(rows)).save(sheet)
print(f"{len(samples)} samples of round {samples.provenance.round} in {sheet}")
print(samples.provenance.words)
