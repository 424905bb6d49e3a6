"""Networks are built without touching the global random state, and without a compiler."""

from __future__ import annotations

import subprocess
import sys

import torch
from torch import nn

from fedlens.models.weights import initialise, unset_weights

BUILT = """
import sys
from fedlens.models.generators import Generator
Generator((1, 28, 28), 10, 8, 4)
print(sorted({"sympy", "torch._dynamo"} & set(sys.modules)))
"""


class Small(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        with unset_weights():
            self.layers = nn.Sequential(
                nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 2)
            )
        initialise(self, torch.Generator().manual_seed(seed), "relu")


def test_nothing_is_drawn_and_the_generator_decides():
    before = torch.get_rng_state()
    first, same, other = (Small(seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["layers.0.weight"], other["layers.0.weight"])
    assert all(bool(value.isfinite().all()) for value in first.values())
    assert torch.equal(first["layers.1.weight"], torch.ones(3)), "a norm is one"


def test_layers_of_every_kind_draw_nothing_inside_and_again_outside():
    before = torch.get_rng_state()
    with unset_weights():
        nn.MultiheadAttention(4, 2), nn.LSTM(2, 2), nn.Embedding(3, 2), nn.ConvTranspose2d(1, 1, 2)
    assert torch.equal(torch.get_rng_state(), before)
    nn.Linear(2, 2)
    assert not torch.equal(torch.get_rng_state(), before)
    torch.set_rng_state(before)


def test_no_compiler_is_loaded_to_build_a_network():
    said = subprocess.run(
        [sys.executable, "-c", BUILT], capture_output=True, text=True, check=True, timeout=120
    )
    assert said.stdout.strip() == "[]", said.stdout
