"""Killed at any instant, a run goes on with nothing lost and nothing spent unaccounted."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from datetime import UTC, date, datetime

import pytest
from power_cuts import interrupted

from fedlens.accountant.ledger import ledger
from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.store import open_store


def test_a_ledger_whose_entries_say_times_goes_on(run_small, small_config, monkeypatch):
    """As the first versions wrote them."""
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "today", lambda: datetime(2026, 1, 31, 9, 25, 50, tzinfo=UTC))
        outcome = run_small(small_config())
    with open_store(outcome.store) as store:
        assert store.ledger(outcome.run_id)[0].created_at == date(2026, 1, 31)


@pytest.mark.law("crashes: a killed run goes on")
def test_a_cut_run_that_trains_networks_ends_with_the_same_model(
    small_config, run_small, monkeypatch, tmp_path
):
    """`test_crashes` cuts at every instant, in runs that learn next to nothing."""
    config = small_config(tasks__critic__kind="wgan")
    whole = run_small(config, "whole").model_sha256
    resumed = interrupted(monkeypatch, run_small, config, (GeneratorTrainer, "train", "after"))
    assert resumed.model_sha256 == whole
    check_ledger(tmp_path / "run", resumed, lost=0)


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


def test_a_ledger_cut_behind_a_states_back_is_not_resumed(
    small_config, run_small, finished, tmp_path
):
    finished(small_config())
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
def test_kills_at_random_moments(small_config, run_small, tmp_path):
    """Real SIGKILLs of a forked process, each at a random moment of a run of forty rounds.

    The fault suite has hundreds of them, in every process and phase.
    """
    rounds, wanted = 40, 5
    config = small_config(
        tasks__critic__rounds=rounds,
        tasks__critic__generator_steps=1,
        privacy__fixed_seed=-1,
        generator__width=1,
    )
    context = multiprocessing.get_context("fork")
    moments, kills, ledger = random.Random(0), 0, tmp_path / "run" / "ledger.jsonl"
    while kills < wanted:
        child = context.Process(target=run_small, args=(config,))
        before = size_of(ledger)
        child.start()
        while kills % 3 and child.is_alive() and size_of(ledger) == before:
            time.sleep(0.01)  # every third is killed while it begins
        time.sleep(moments.uniform(0, 0.4))
        if not child.is_alive():
            break
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        kills += 1
    begun = len(Ledger.open(ledger))
    outcome = run_small(config)
    assert kills == wanted, f"the run was over after {kills} kills: make it longer"
    assert begun > 1, "every kill came before the rounds: wait longer before each"
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
