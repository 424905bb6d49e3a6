"""What is trained does not change unless somebody means it to: pinned models of every kind of task.

Names of arrays are no part of a pin, so that a state can be laid out anew; values are. They are
compared bit for bit on processors that compute as the one did where they were pinned, and by their
norms elsewhere.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from run_tasks import SUMS

from fedlens.server.run.directory import RunDirectory

PINS = Path(__file__).parent / "pinned_models.json"
CRITIC = {"schedule": "critic", "tasks.critic.kind": "frozen"}
WARMUP = {
    "schedule": "warmup critic",
    "tasks.warmup.kind": "frozen",
    "tasks.warmup.noise_multiplier": 4.0,
    "tasks.warmup.generator_steps": 4,
}
FOCUSED = {
    **WARMUP,
    "tasks.critic.kind": "focused",
    "tasks.critic.rounds": 2,
    "tasks.critic.generator_steps": 2,
}
ANNOTATOR = {
    "schedule": "warmup critic annotator",
    "tasks.annotator.kind": "annotator",
    "tasks.annotator.rounds": 3,
    "tasks.annotator.components": 20,
    "tasks.annotator.guided_steps": 3,
    "release.agreement": 0.5,
}
RECORD = {"privacy.unit": "record", "privacy.delta": 1e-5}
PRIVATIZER = {
    "schedule": "privatizer critic",
    "privatizer.kind": "trained",
    "privatizer.trained_by": "rounds",
    "tasks.privatizer.kind": "privatizer",
    "tasks.privatizer.rounds": 3,
    "tasks.privatizer.lead": 1,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
    "tasks.critic.generator_steps": 2,
}
FROZEN = {
    **CRITIC,
    "tasks.critic.rounds": 3,
    "tasks.critic.generator_steps": 2,
}
RUNS = {
    "frozen": {**FROZEN, "tasks.critic.sampling_rate": 0.5},
    "focused and annotator": {**FOCUSED, **ANNOTATOR, "tasks.critic.components": 30},
    "wgan": {**WARMUP, "tasks.warmup.generator_steps": 3, "tasks.critic.local_steps": 2},
    "wgan, hinge": {
        "tasks.critic.loss": "hinge",
        "tasks.critic.optimiser": "sgd",
        "tasks.critic.last_rate": 0.5,
    },
    "record wgan": {
        **RECORD,
        "data.records_per_node": 200,
        "tasks.critic.sampling_rate": 0.5,
        "tasks.critic.local_steps": 2,
    },
    "record focused": {
        **RECORD,
        **FOCUSED,
        **ANNOTATOR,
        "tasks.critic.components": 30,  # as many as the few images of a test's frame bear
        "data.records_per_node": 100,
        "tasks.annotator.sampling_rate": 0.5,
    },
    "privatizer, information": {**PRIVATIZER, "tasks.privatizer.method": "information"},
    "privatizer, alpha": {
        **PRIVATIZER,
        "tasks.privatizer.method": "alpha",
        "privatizer.network": "dense",
        "privatizer.condition": True,
    },
    "privatizer, moments": {
        **SUMS,
        "schedule": "frequencies moments critic",
        "tasks.frequencies.kind": "frequencies",
        "tasks.moments.kind": "moments",
        "tasks.critic.kind": "frozen",
        "tasks.critic.rounds": 1,
        "tasks.critic.generator_steps": 2,
    },
    "privatizer, synthetic": {
        **FROZEN,
        "privatizer.kind": "trained",
        "privatizer.trained_by": "samples",
        "privatizer.width": 2,
        "privatizer.steps": 3,
        "privatizer.output_noise_std": 0.25,
    },
}


@pytest.mark.parametrize("name", RUNS)
def test_a_run_trains_what_it_trained_when_it_was_pinned(
    name, small_config, run_small, a_filter_in_no_time, few_images_for_the_frame, tmp_path
):
    config = small_config(**{k.replace(".", "__"): v for k, v in RUNS[name].items()})
    run_small(config)
    snapshot = RunDirectory(tmp_path / "run").load_state()
    assert snapshot is not None
    assert_pinned(name, snapshot.arrays)


def test_a_run_with_another_runs_filter_trains_what_it_trained(
    small_config, run_small, a_filter_in_no_time, few_images_for_the_frame, tmp_path
):
    changes = {k.replace(".", "__"): v for k, v in RUNS["privatizer, synthetic"].items()}
    run_small(small_config(**changes), "first")
    changes = {
        **FROZEN,
        "privatizer.kind": "pretrained",
        "privatizer.network": "code",
        "privatizer.width": 2,
        "privatizer.output_noise_std": 0.25,
        "privatizer.path": str(tmp_path / "first"),
    }
    config = small_config(**{k.replace(".", "__"): v for k, v in changes.items()})
    run_small(config)
    snapshot = RunDirectory(tmp_path / "run").load_state()
    assert snapshot is not None
    assert_pinned("privatizer, pretrained", snapshot.arrays)


def assert_pinned(name: str, arrays: dict[str, np.ndarray]) -> None:
    """Compare floating-point arrays of a state with the pin of that name."""
    floats = [v for v in arrays.values() if v.dtype.kind == "f" and v.size > 1]
    norms = sorted(float(np.linalg.norm(v)) for v in floats)
    digests = sorted(hashlib.sha256(np.ascontiguousarray(v).tobytes()).hexdigest() for v in floats)
    found = {
        "processor": processor(),
        "sha256": hashlib.sha256("".join(digests).encode()).hexdigest(),
        "norms": norms,
    }
    pins = json.loads(PINS.read_text(encoding="utf-8"))
    pin = pins[name]
    if pin["processor"] == found["processor"]:
        assert found["sha256"] == pin["sha256"]
    assert norms == pytest.approx(pin["norms"], rel=0.05, abs=1e-3)


def processor() -> str:
    """How this processor rounds: a digest of a few products, convolutions and exponentials."""
    source = torch.Generator().manual_seed(0)
    images = torch.randn(32, 8, 28, 28, generator=source)
    kernels = torch.randn(16, 8, 3, 3, generator=source)
    rows = torch.randn(513, 300, generator=source)
    parts = (
        torch.conv2d(images, kernels),
        rows @ rows.mT,
        torch.linalg.eigh(rows.mT @ rows)[0],
        torch.softmax(rows, 1),
    )
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]
