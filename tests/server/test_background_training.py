"""Work beside the rounds: its result, its errors, its end, and that it changes nothing."""

import threading

import pytest

from fedlens.server.round import samples
from fedlens.server.round.samples import BackgroundTraining
from fedlens.server.run.directory import RunDirectory


def ignore(step, steps):
    pass


def test_what_is_made_is_handed_over_and_steps_are_told():
    told = threading.Event()

    def make(on_step):
        on_step(1, 2)
        assert told.wait(60)  # the caller has been told of the first step
        on_step(2, 2)
        return "made"

    seen = []

    def tell(step, steps):
        seen.append((step, steps))
        if step == 1:
            told.set()

    training = BackgroundTraining(make)
    assert training.result(tell) == "made"
    assert training.result(ignore) == "made"
    assert (1, 2) in seen and seen == sorted(seen)


def test_an_error_is_raised_where_the_result_is_asked_for():
    def make(on_step):
        raise ValueError("no")

    training = BackgroundTraining(make)
    with pytest.raises(ValueError, match="no"):
        training.result(ignore)


def test_it_ends_after_its_present_step():
    begun = threading.Event()

    def make(on_step):
        while True:
            begun.set()
            on_step(1, 2)

    training = BackgroundTraining(make)
    begun.wait()
    training.stop()
    assert not training._thread.is_alive()
    with pytest.raises(RuntimeError, match="stopped"):
        training.result(ignore)


GUIDED = {
    "schedule": "warmup critic annotator",
    "tasks__warmup__kind": "frozen",
    "tasks__warmup__generator_steps": 2,
    "tasks__critic__kind": "focused",
    "tasks__critic__components": 30,
    "tasks__critic__rounds": 1,
    "tasks__critic__generator_steps": 2,
    "tasks__critic__faithful_steps": 3,
    "tasks__annotator__kind": "annotator",
    "tasks__annotator__rounds": 2,
    "tasks__annotator__components": 20,
    "tasks__annotator__guided_steps": 3,
}


def test_a_core_to_spare_changes_no_bit(
    small_config, run_small, few_images_for_the_frame, monkeypatch, tmp_path
):
    found = []
    for spare in (True, False):
        begun = []

        class Counted(BackgroundTraining):
            def __init__(self, make, begun=begun):
                begun.append(1)
                super().__init__(make)

        with monkeypatch.context() as patch:
            patch.setattr(samples, "BackgroundTraining", Counted)
            patch.setattr(samples, "has_spare_cores", lambda threads, spare=spare: spare)
            outcome = run_small(small_config(**GUIDED), f"spare-{spare}")
        assert len(begun) == spare
        faithful = RunDirectory(tmp_path / f"spare-{spare}").faithful_path(4).read_bytes()
        found.append((outcome.model_sha256, faithful))
    assert found[0] == found[1]


def test_a_run_that_fails_leaves_no_thread(
    small_config, run_small, few_images_for_the_frame, monkeypatch
):
    monkeypatch.setattr(samples, "has_spare_cores", lambda threads: True)

    def fail(*args):
        raise OSError("full")

    monkeypatch.setattr(RunDirectory, "save_faithful", fail)
    with pytest.raises(OSError, match="full"):
        run_small(small_config(**GUIDED))
    assert not [t for t in threading.enumerate() if t.name == "fedlens-background"]


def test_a_critic_after_the_annotator_is_waited_for(
    small_config, run_small, few_images_for_the_frame, monkeypatch
):
    monkeypatch.setattr(samples, "has_spare_cores", lambda threads: True)
    monkeypatch.setattr(samples, "BackgroundTraining", None)  # to begin is an error
    run_small(small_config(**{**GUIDED, "schedule": "warmup annotator critic"}))
