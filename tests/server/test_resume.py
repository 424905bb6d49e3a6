"""Killed at any instant, a run goes on with nothing lost and nothing spent unaccounted."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time

import pytest
from power_cuts import interrupted

from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.ledger.run_ledger import RoundCharge
from fedlens.server.round.publication import Publication
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.run.history import RoundHistory
from fedlens.store import Store, open_store

POST_PROCESSING = [
    (GeneratorTrainer, "train", "before"),
    (GeneratorTrainer, "train", "after"),
    (RoundHistory, "append", "before"),
    (RoundHistory, "append", "after"),
    (RunDirectory, "save_state", "before"),
    (RunDirectory, "save_state", "after"),
    (Publication, "enter_rounds", "before"),
    (Publication, "samples", "before"),
    (Publication, "samples", "after"),
    (Store, "record_progress", "before"),
    (RunDirectory, "drop_release", "before"),
    (RunDirectory, "save_release", "after"),
    (RoundCharge, "pay", "before"),
]
LOSING = [(RoundCharge, "pay", "after"), (RunDirectory, "save_release", "before")]


@pytest.fixture(scope="module")
def whole_models():
    """Of runs that were not cut, by the kind of their critic."""
    return {}


@pytest.mark.parametrize("kind", ["frozen", "wgan"])
@pytest.mark.parametrize("point", POST_PROCESSING, ids=lambda p: f"{p[2]}-{p[1]}")
@pytest.mark.law("crashes: a killed run goes on")
def test_a_run_cut_outside_the_private_instant_ends_with_the_same_model(
    small_config, run_small, monkeypatch, tmp_path, whole_models, point, kind
):
    config = small_config(tasks__critic__kind=kind)
    if kind not in whole_models:
        whole_models[kind] = run_small(config, "whole").model_sha256
    resumed = interrupted(monkeypatch, run_small, config, point)
    assert resumed.model_sha256 == whole_models[kind]
    check_ledger(tmp_path / "run", resumed, lost=0)


@pytest.mark.parametrize("point", LOSING, ids=lambda p: f"{p[2]}-{p[1]}")
@pytest.mark.law("2: empty, failed and lost rounds are charged")
def test_a_release_lost_with_the_process_stays_paid_for_and_is_not_drawn_again(
    small_config, run_small, monkeypatch, tmp_path, point
):
    config = small_config()
    resumed = interrupted(monkeypatch, run_small, config, point)
    check_ledger(tmp_path / "run", resumed, lost=1)
    assert resumed.spending.rounds == 3


def check_ledger(path, outcome, lost=None, rounds=3):
    entries = Ledger.verify(path / "ledger.jsonl")
    assert [e.round for e in entries] == list(range(1, rounds + 1))
    with open_store(outcome.store) as store:
        releases = store.releases(outcome.run_id)
        assert len(releases) == len(entries) == len(store.ledger(outcome.run_id))
        assert [r.round for r in store.rounds(outcome.run_id)] == list(range(1, rounds + 1))
        assert store.run(outcome.run_id).status == "finished"
        assert len([b for b in store.batches(outcome.run_id) if b.purpose == "strip"]) == rounds
    if lost is not None:
        assert [r.status for r in releases].count("lost") == lost
    assert not list((path / "checkpoint").glob("release-*"))
    assert not list(path.rglob("*.part"))


def test_a_ledger_cut_behind_a_states_back_is_not_resumed(small_config, run_small, tmp_path):
    run_small(small_config(tasks__critic__rounds=3))
    ledger = tmp_path / "run" / "ledger.jsonl"
    ledger.write_text("".join(ledger.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(LedgerError):
        run_small(small_config())


def test_control_c_says_how_to_go_on(small_config, run_small, monkeypatch, tmp_path):
    def interrupt(self, *args, **kwargs):
        raise KeyboardInterrupt

    config = small_config(privacy__fixed_seed=-1)
    with monkeypatch.context() as patch:
        patch.setattr(GeneratorTrainer, "train", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run_small(config)
    with open_store(f"sqlite:///{tmp_path / 'run' / 'store.db'}") as store:
        (record,) = store.runs()
        assert record.status == "interrupted" and "resume" in record.stop_reason
        assert "ended after 1 of 3 releases" in record.guarantee
    assert run_small(config).rounds == 3


def size_of(path):
    return path.stat().st_size if path.exists() else 0


@pytest.mark.slow
@pytest.mark.law("crashes: a killed run goes on")
def test_nine_kills_at_random_moments(small_config, run_small, tmp_path):
    """Real SIGKILLs of a forked process, each at a random moment of a run of forty rounds.

    `python -m harness.faults` has hundreds of them, in every process and phase.
    """
    rounds = 40
    config = small_config(
        tasks__critic__rounds=rounds, privacy__fixed_seed=-1, tasks__critic__generator_steps=1
    )
    context = multiprocessing.get_context("fork")
    moments, kills, ledger = random.Random(0), 0, tmp_path / "run" / "ledger.jsonl"
    while kills < 9:
        child = context.Process(target=run_small, args=(config,))
        before = size_of(ledger)
        child.start()
        while kills % 3 and child.is_alive() and size_of(ledger) == before:
            time.sleep(0.01)  # every third is killed while it begins
        time.sleep(moments.uniform(0, 0.6))
        if not child.is_alive():
            break
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += 1
    begun = len(Ledger.open(ledger))
    outcome = run_small(config)
    assert kills == 9, f"the run was over after {kills} kills: make it longer"
    assert begun > 3, "every kill came before the rounds: wait longer before each"
    check_ledger(tmp_path / "run", outcome, rounds=rounds)


@pytest.mark.parametrize("part", [True, False])
def test_a_start_that_was_killed_at_once_is_no_obstacle(small_config, tmp_path, part):
    """Its folder has a checkpoint folder with nothing in it, and no configuration that counts."""
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    if part:
        (folder / "config.toml.part").write_text("[pri")
    assert RunDirectory.create(folder, small_config()).exists()


def test_two_processes_cannot_begin_in_one_folder(small_config, tmp_path):
    first = RunDirectory(tmp_path / "run")
    first.path.mkdir()
    with first.locked(), pytest.raises(RunDirectoryError, match="another process"):
        RunDirectory.create(first.path, small_config())
    assert not first.exists()
    assert RunDirectory.create(first.path, small_config()).exists(), "its lock file is no obstacle"


def test_what_another_process_began_meanwhile_is_left_alone(small_config, tmp_path, monkeypatch):
    theirs, locked = small_config(seed=7), RunDirectory.locked

    def late(directory):
        monkeypatch.setattr(RunDirectory, "locked", locked)
        RunDirectory.create(directory.path, theirs)
        return locked(directory)

    monkeypatch.setattr(RunDirectory, "locked", late)
    with pytest.raises(RunDirectoryError, match="holds a run already"):
        RunDirectory.create(tmp_path / "run", small_config(seed=8))
    assert RunDirectory.open(tmp_path / "run").config() == theirs


@pytest.mark.parametrize("name", ["notes.txt", "checkpoint/state.safetensors", "ledger.jsonl"])
def test_a_folder_with_anything_else_is_left_alone(small_config, tmp_path, name):
    folder = tmp_path / "run"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / name).write_text("mine")
    with pytest.raises(RunDirectoryError, match="holds other files"):
        RunDirectory.create(folder, small_config())
    assert (folder / name).read_text() == "mine" and not (folder / "config.toml").exists()
