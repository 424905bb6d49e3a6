"""Train a classifier of your own on a run's samples, as on any torch data set.

python examples/train_on_samples.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader

import fedlens

SMALL = {
    "schedule": "critic",
    "data.users": 200,
    "privacy.delta": 1e-4,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.critic.generator_steps": 20,
    "generator.width": 16,
    "release.samples": 20,
    "release.agreement": 0.0,
}

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/example")
run = fedlens.simulate("demo", out=folder, settings=SMALL, student=False)

# Drawing more samples costs no privacy: it only uses what was released already.
samples = run.draw(500, seed=1)
model = nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))
optimiser = torch.optim.Adam(model.parameters())
for epoch in range(3):
    right = 0
    for images, labels in DataLoader(samples.torch(), batch_size=50, shuffle=True):
        answers = model(images)
        optimiser.zero_grad()
        nn.functional.cross_entropy(answers, labels).backward()
        optimiser.step()
        right += int((answers.argmax(1) == labels).sum())
    print(f"epoch {epoch}: {right / len(samples):.0%} of samples right")

file = folder / "classifier.pt"
torch.save({"state": model.state_dict(), "samples": samples.provenance.words}, file)
print(f"saved with the provenance of its training data in {file}")
