"""Every task, the generator and the annotator compute where `fedlens.models.devices` says.

Without a GPU one is pretended: tensors that are said to be on it are told apart from the others,
and what a GPU would refuse is refused. All is computed on the processor, so results are equal bit
for bit. With a GPU the same runs train on it, and agree with the processor's up to rounding.
"""

from __future__ import annotations

import traceback

import numpy as np
import pytest
import torch
from pretended_gpu import OnTwoDevices, pretended_gpu
from run_tasks import ANNOTATED, RUNS
from thorough import some
from torch.nn import functional as F

from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.frozen import public_features
from fedlens.server.round.samples import BackgroundTraining
from fedlens.server.run.arrays import Arrays
from fedlens.server.run.directory import RunDirectory, load_generator

KINDS = (
    "wgan",
    "record wgan",
    "focused and annotator",
    "record focused",
    "privatizer, alpha",
    "privatizer, moments",
)
SCHEDULES = {
    **{name: RUNS[name] for name in KINDS},
    "wgan, columns, bfloat16": {
        **RUNS["wgan"],
        "tasks.critic.rounds": 1,
        "tasks.critic.engine": "columns",
        "tasks.critic.loss": "hinge",
        "tasks.critic.precision": "bfloat16",
        "generator.precision": "bfloat16",
    },
    "critic and card": {
        "schedule": "critic card",
        "tasks.critic.kind": "frozen",
        "tasks.critic.rounds": 1,
        "tasks.card.kind": "card",
    },
    "probe of an annotator": {
        **ANNOTATED,
        "schedule": "critic annotator probe",
        "tasks.critic.kind": "frozen",
        "tasks.annotator.kind": "annotator",
        "tasks.annotator.rounds": 1,
        "tasks.probe.kind": "probe",
        "tasks.probe.probe": "confidence",
        "tasks.probe.noise_multiplier": 0.5,
    },
}
TOLERANCE = 2e-2
"""Largest distance of an array that a GPU trained from the processor's, over the latter's norm."""


def trained(run_small, config, path, name: str) -> Arrays:
    """The last state, and the generator of faithful samples where there is one."""
    run_small(config, name)
    directory = RunDirectory(path / name)
    snapshot = directory.load_state()
    assert snapshot is not None
    faithful = directory.faithful_path(snapshot.round)
    own = load_generator(faithful) if faithful.exists() else {}
    return {**snapshot.arrays, **{f"faithful {key}": value for key, value in own.items()}}


@pytest.fixture
def on_the_device(monkeypatch):
    """How much of each kind of task's updates is computed on the pretended GPU."""
    seen: dict[str, int] = {}

    def watch(memory):
        for kind in CLIENT_TASKS:
            task = CLIENT_TASKS[kind]
            for way in ("updates", "record_rows"):
                monkeypatch.setattr(task, way, counted(getattr(task, way), kind, memory))

    def counted(work, kind, memory):
        def call(self, *arguments):
            before = memory.computed
            try:
                return work(self, *arguments)
            finally:
                seen[kind] = seen.get(kind, 0) + memory.computed - before

        return call

    return watch, seen


def shown(*_said: object) -> None:
    """Print what a node's handler failed of; its log says that it failed and no more."""
    traceback.print_exc()


@pytest.fixture
def beside(monkeypatch):
    """How much of what is made beside the rounds, in its own thread, is on the pretended GPU."""
    computed: list[int] = []
    work = BackgroundTraining._work

    def watch(memory):
        def held(self):
            with memory.pretended():
                work(self)
                computed.append(memory.computed)

        monkeypatch.setattr(BackgroundTraining, "_work", held)

    return watch, computed


@pytest.mark.parametrize("name", some(SCHEDULES, "wgan", "record wgan", "privatizer, moments"))
def test_a_run_with_a_pretended_gpu_trains_the_same_and_mixes_nothing(
    name, small_config, run_small, a_filter_in_no_time, few_images_for_the_frame, tmp_path,
    monkeypatch, on_the_device, beside,
):  # fmt: skip
    config = small_config(**{k.replace(".", "__"): v for k, v in SCHEDULES[name].items()})
    (watch, seen), (watch_beside, computed) = on_the_device, beside
    monkeypatch.setattr("fedlens.server.round.samples.has_spare_cores", lambda threads: True)
    monkeypatch.setattr("fedlens.client.app.logger.warning", shown)
    wanted = trained(run_small, config, tmp_path, "processor")
    public_features.cache_clear()  # what is kept there is on the device of another test
    with pretended_gpu(monkeypatch) as memory:
        watch(memory)
        watch_beside(memory)
        found = trained(run_small, config, tmp_path, "pretended")
    public_features.cache_clear()
    kinds = {task.kind for task in config.planned.values()}
    assert seen.keys() == kinds
    assert all(seen[kind] > 0 for kind in kinds), seen
    assert len(computed) == ("annotator" in kinds) and all(computed)
    assert found.keys() == wanted.keys()
    for key, value in wanted.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def test_every_kind_of_task_is_on_a_schedule(small_config):
    kinds = {
        task.kind
        for settings in SCHEDULES.values()
        for task in small_config(**settings).planned.values()
    }
    assert kinds == set(CLIENT_TASKS)


class MixingGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows):
        return rows * 2

    @staticmethod
    def backward(ctx, slope):
        return slope * torch.full((3,), 2.0)


def test_a_pretended_gpu_refuses_what_a_real_one_does(monkeypatch):
    with pretended_gpu(monkeypatch) as memory:
        from fedlens.models.devices import best_device

        here = torch.ones(3)
        there = here.to(best_device())
        assert (there + there).device == best_device() and memory.computed
        with pytest.raises(OnTwoDevices):
            here + there
        with pytest.raises(OnTwoDevices):
            there.numpy()
        assert (there * 2).cpu().numpy().tolist() == [2.0, 2.0, 2.0]
        assert (there + torch.tensor(1.0)).sum().item() == 6.0
        there.copy_(here)
        assert torch.tensor([4.0], device=best_device()).cpu().tolist() == [4.0]
        assert there[torch.tensor([0, 1])].device == best_device()
        with pytest.raises(OnTwoDevices):
            here[torch.tensor([0, 1]).to(best_device())]
        layer = torch.nn.Linear(3, 2).to(best_device())
        with pytest.raises(OnTwoDevices):
            layer(here)
        layer(there).sum().backward()
        mapped = torch.func.vmap(lambda row: row * torch.arange(3, device=row.device))
        assert mapped(there[None]).device == best_device()
        with pytest.raises(OnTwoDevices):
            torch.func.vmap(lambda row: row * torch.arange(3.0))(there[None])


def test_a_pretended_gpu_holds_gradients_that_are_written_out_and_empty_tensors(monkeypatch):
    with pretended_gpu(monkeypatch):
        from fedlens.models.devices import best_device

        there = torch.ones(3).to(best_device()).requires_grad_()
        with pytest.raises(OnTwoDevices):
            MixingGradient.apply(there).sum().backward()
        assert there[:0].device == torch.zeros(0, 3).to(best_device()).device == best_device()
        with pytest.raises(OnTwoDevices):
            torch.zeros(0, 3).to(best_device()) @ torch.ones(3, 2)
        with pytest.raises(OnTwoDevices):
            F.cross_entropy(there[None].detach(), torch.tensor([1]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_run_on_a_gpu_agrees_with_the_processors(
    name, small_config, run_small, a_filter_in_no_time, few_images_for_the_frame, tmp_path,
    monkeypatch,
):  # fmt: skip
    config = small_config(**{k.replace(".", "__"): v for k, v in SCHEDULES[name].items()})
    found = trained(run_small, config, tmp_path, "gpu")
    monkeypatch.setattr("fedlens.models.devices.best_device", lambda: torch.device("cpu"))
    wanted = trained(run_small, config, tmp_path, "processor")
    for key, value in wanted.items():
        if value.dtype.kind == "f":
            apart = float(np.linalg.norm(found[key] - value))
            assert apart <= TOLERANCE * max(1.0, float(np.linalg.norm(value))), key
