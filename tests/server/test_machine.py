"""What the server makes of the machine: threads, cores and precision."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from fedlens.models.precision import has_fast_bfloat16
from fedlens.server.config.tree import Config
from fedlens.server.generation import compute

OPEN = Config().updated({"generator.threads": 0, "generator.precision": "auto"})


@pytest.fixture
def on(monkeypatch, tmp_path):
    """Pretend a machine: its cores, those this process may use, and what runs on it."""

    def pretend(cores: int, running: int | None, usable: int | None = None) -> None:
        usable = cores if usable is None else usable
        monkeypatch.setattr("os.cpu_count", lambda: cores)
        quota = tmp_path / "cpu.max"
        quota.write_text("max 100000\n" if usable == cores else f"{usable * 100_000} 100000\n")
        affinity = lambda pid: set(range(cores))  # noqa: E731
        monkeypatch.setattr("os.sched_getaffinity", affinity, raising=False)
        monkeypatch.setattr("fedlens.server.generation.compute.QUOTA", quota)
        said = tmp_path / "loadavg"
        if running is not None:
            said.write_text(f"9.00 9.00 9.00 {running}/200 4711\n")
        monkeypatch.setattr("fedlens.server.generation.compute.RUNNING", said)
        compute.idle_threads.cache_clear()

    yield pretend
    compute.idle_threads.cache_clear()


@pytest.mark.parametrize(
    ("cores", "running", "usable", "threads"),
    [
        (1, 1, 1, 1),
        (2, 1, 2, 2),
        (2, 2, 2, 1),
        (4, 0, 4, 4),
        (8, 1, 8, 4),
        (8, 6, 8, 3),
        (8, 99, 8, 1),
        (64, 1, 2, 2),
    ],
)
def test_threads_are_the_idle_cores(on, cores, running, usable, threads):
    on(cores, running, usable)
    assert compute.training_threads(OPEN) == threads


def test_the_answer_stays_for_the_process(on):
    on(8, 1)
    assert compute.training_threads(OPEN) == 4
    compute.RUNNING.write_text("9 9 9 99/200 1\n")
    assert compute.training_threads(OPEN) == 4


def test_a_system_without_that_file_is_judged_by_its_load(on, monkeypatch):
    on(8, None)
    monkeypatch.setattr("os.getloadavg", lambda: (5.6, 0.0, 0.0))
    assert compute.training_threads(OPEN) == 2


def test_what_is_set_is_taken_and_a_fixed_seed_has_one_thread(on, monkeypatch):
    on(8, 1)
    assert compute.training_threads(OPEN.updated({"generator.threads": 7})) == 7
    monkeypatch.setenv("FEDLENS_TEST_MODE", "1")
    fixed = OPEN.updated({"privacy.fixed_seed": 3})
    assert compute.training_threads(fixed) == compute.faithful_threads(fixed) == 1
    assert compute.generator_precision(fixed) == torch.float32
    assert compute.generator_way(fixed) == "float32, 1 thread"


@pytest.mark.parametrize("fast", [True, False])
def test_precision_left_open_is_the_faster_one(monkeypatch, fast):
    monkeypatch.setattr("fedlens.models.precision.has_fast_bfloat16", lambda: fast)
    assert compute.generator_precision(OPEN) == (torch.bfloat16 if fast else torch.float32)


@pytest.mark.parametrize("found", [{}, {"bf16": True}, {"avx512_bf16": True}])
def test_only_instructions_that_were_measured_count_as_fast(monkeypatch, found):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: found, raising=False)
    assert has_fast_bfloat16() == ("avx512_bf16" in found)


def test_a_torch_that_names_no_instructions_trains_in_float32(monkeypatch):
    monkeypatch.delattr("torch.cpu.get_capabilities", raising=False)
    assert compute.generator_precision(OPEN) == torch.float32


@pytest.mark.parametrize("text", ["", "words", "max 100000"])
def test_files_that_say_nothing_are_passed_over(on, text):
    on(8, 1)
    compute.QUOTA.write_text(text)
    compute.RUNNING.write_text(text)
    assert compute.usable_cores() == 8
    assert 1 <= compute.training_threads(OPEN) <= 4


def test_faithful_samples_leave_half_the_threads_to_the_rounds(on):
    on(8, 1)
    assert compute.faithful_threads(OPEN) == 2
    assert compute.faithful_threads(OPEN.updated({"generator.threads": 3})) == 3
    on(2, 1)
    assert compute.faithful_threads(OPEN) == 1 and compute.has_spare_cores(1)
    assert not compute.has_spare_cores(2)
    on(1, 1)
    assert not compute.has_spare_cores(1)


def test_a_moment_s_burst_is_not_what_runs(on, monkeypatch):
    on(8, 1)
    said = iter([7, 2, 2, 2, 9])
    looks = SimpleNamespace(read_text=lambda: f"0 0 0 {next(said)}/99 1\n")
    monkeypatch.setattr("fedlens.server.generation.compute.RUNNING", looks)
    assert compute._others_running() == 1
