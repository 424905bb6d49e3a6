"""A run goes on in one place, and only where its folder, its ledger and its store agree."""

from __future__ import annotations

import multiprocessing
import shutil
from contextlib import suppress
from threading import BrokenBarrierError

import pytest

from fedlens.accountant.ledger.high_water import HighWaterMark
from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.cli import main
from fedlens.server.config.tasks import TRAINING
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.ledger.run_ledger import RoundCharge, RunLedger
from fedlens.server.round.step import PrivateStep
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.run.place import bind, check_place
from fedlens.store import open_store

COPY = "two folders must not draw noise"


@pytest.fixture
def begun(small_config, run_small, monkeypatch, tmp_path):
    """A run of five rounds that was killed in its third, in ``tmp_path / "run"``."""

    def make(**more):
        train, calls = GeneratorTrainer.train, []

        def cut(trainer, *args, **kwargs):
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return train(trainer, *args, **kwargs)

        config = small_config(tasks__critic__rounds=5)
        with monkeypatch.context() as patch:
            patch.setattr(GeneratorTrainer, "train", cut)
            with pytest.raises(KeyboardInterrupt):
                run_small(config, **more)
        return config, tmp_path / "run"

    return make


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))


def entries(folder):
    return len(Ledger.read(folder / "ledger.jsonl"))


def refused(run, *arguments, match, error=RunDirectoryError, **more):
    """Refused, and before any node is asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PrivateStep, "gather", lambda *_: pytest.fail("nodes were asked"))
        with pytest.raises(error, match=match):
            run(*arguments, **more)


@pytest.mark.parametrize("how", [shutil.copytree, shutil.move])
@pytest.mark.law("2: a copy draws no noise")
def test_a_copied_or_moved_folder_draws_nothing_until_it_is_said_to_be_the_only_one(
    begun, run_small, tmp_path, how
):
    config, folder = begun()
    how(folder, tmp_path / "other")
    refused(run_small, config, "other", match=COPY)
    assert entries(tmp_path / "other") == 3
    bind(RunDirectory.open(tmp_path / "other"))
    assert run_small(config, "other").rounds == 5


def test_a_copy_from_before_the_first_entry_draws_nothing_either(
    small_config, run_small, monkeypatch, tmp_path
):
    """It has the run's id already, and its nodes may have been asked."""
    config = small_config()
    with monkeypatch.context() as patch:
        patch.setattr(PrivateStep, "gather", _killed)
        with pytest.raises(KeyboardInterrupt):
            run_small(config)
    shutil.copytree(tmp_path / "run", tmp_path / "other")
    assert entries(tmp_path / "other") == 0
    refused(run_small, config, "other", match=COPY)
    assert run_small(config).rounds == 3


def _killed(*_):
    raise KeyboardInterrupt


def test_the_folder_that_was_copied_goes_on(begun, run_small, tmp_path):
    config, folder = begun()
    shutil.copytree(folder, tmp_path / "copy")
    assert run_small(config).rounds == 5


def test_a_folder_that_was_restored_in_its_old_place_is_a_copy_too(begun, run_small, tmp_path):
    config, folder = begun()
    shutil.copytree(folder, tmp_path / "backup")
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    refused(run_small, config, match="its ledger from a copy|" + COPY)


def test_a_folder_that_does_not_say_where_it_lay_is_refused(begun, run_small):
    config, folder = begun()
    (folder / "place.json").unlink()
    refused(run_small, config, match="does not say where it lay")


def test_the_command_says_how_to_go_on_and_does(begun, tmp_path, capsys):
    _, folder = begun()
    moved = shutil.move(folder, tmp_path / "moved")
    assert main(["resume", str(moved), "--no-student"]) == 1
    assert f"fedlens resume {moved} --only-copy" in capsys.readouterr().err
    assert entries(moved) == 3
    assert main(["resume", str(moved), "--only-copy", "--no-student"]) == 0
    assert entries(moved) == 5


def test_a_deployed_run_is_never_told_to_go_on_by_resume(begun, tmp_path, capsys):
    """Not where it lies among a SuperLink's runs, and not where a backup of it was restored."""
    _, folder = begun()
    said = RunDirectory(folder).resume_words(only_copy=True)
    assert said == f"`fedlens resume {folder} --only-copy`"
    (tmp_path / "superlink" / "runs").mkdir(parents=True)
    (tmp_path / "superlink" / "deploy.toml").touch()
    deployed = folder.rename(tmp_path / "superlink" / "runs" / "mig")
    assert main(["resume", str(deployed), "--only-copy"]) == 1
    assert "`fedlens deploy run OPERATOR` with --name mig goes on" in capsys.readouterr().err
    run = RunDirectory.open(deployed)
    with open_store(run.default_store) as store, pytest.raises(RunDirectoryError) as refused_copy:
        check_place(run, store)
    assert "fedlens deploy run OPERATOR` with --name mig --only-copy" in str(refused_copy.value)
    assert main(["backup", str(deployed), "--out", str(tmp_path / "mig.tar")]) == 0
    place = tmp_path / "superlink" / "runs" / "back"
    assert main(["restore", str(tmp_path / "mig.tar"), "--out", str(place)]) == 0
    assert "deploy run OPERATOR` with --name back --only-copy" in capsys.readouterr().out


@pytest.mark.law("2: a copy draws no noise")
def test_an_older_copy_is_found_out_by_its_store_whatever_is_said(begun, run_small, tmp_path):
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    config, folder = begun(store_url=url)
    shutil.copytree(folder, tmp_path / "older")
    run_small(config, store_url=url)
    bind(RunDirectory.open(tmp_path / "older"))
    refused(run_small, config, "older", match="older copy", error=LedgerError, store_url=url)


def test_a_ledger_with_another_entry_than_the_store_mirrors_is_refused(
    begun, run_small, tmp_path, monkeypatch
):
    config, folder = begun()
    shutil.copytree(folder, tmp_path / "copy")
    run_small(config)
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "another machine's"))
    bind(RunDirectory.open(tmp_path / "copy"))
    run_small(config, "copy")  # the operator was wrong: it is not the only one
    for name in ("ledger.jsonl", "checkpoint/state.safetensors"):
        (tmp_path / "copy" / name).write_bytes((folder / name).read_bytes())
    bind(RunDirectory.open(tmp_path / "copy"))
    refused(run_small, config, "copy", match="the store mirrors another entry", error=LedgerError)


GONE = [
    ("ledger.jsonl",),
    ("ledger.jsonl", "checkpoint/state.safetensors"),
    ("ledger.jsonl", "checkpoint", "place.json", "evidence.jsonl"),
]


@pytest.mark.parametrize("names", GONE)
@pytest.mark.law("2: a copy draws no noise")
def test_a_run_without_its_ledger_does_not_start_over_beside_what_it_left(begun, run_small, names):
    config, folder = begun()
    for name in names:
        path = folder / name
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    (folder / "checkpoint").mkdir(exist_ok=True)
    refused(run_small, config, match=r"has no ledger\.jsonl, but a run began there")
    assert not (folder / "ledger.jsonl").exists()


def test_a_store_that_lacks_what_was_stored_is_refused_until_the_operator_says_so(
    begun, run_small, tmp_path
):
    config, folder = begun()
    (folder / "store.db").unlink()
    refused(run_small, config, match="name the run's own store by --store")
    other = f"sqlite:///{tmp_path / 'another.db'}"
    refused(run_small, config, match="0 entries of this run, and 1 were stored", store_url=other)
    bind(RunDirectory.open(folder))
    outcome = run_small(config)
    with open_store(outcome.store) as store:
        assert len(store.ledger(outcome.run_id)) == len(store.rounds(outcome.run_id)) == 5


def test_a_finished_run_may_lie_anywhere(small_config, run_small, tmp_path):
    config = small_config()
    whole = run_small(config).model_sha256
    shutil.move(tmp_path / "run", tmp_path / "archive")
    assert run_small(config, "archive").model_sha256 == whole


def test_there_is_nothing_to_bind_before_the_first_entry(small_config, tmp_path):
    directory = RunDirectory.create(tmp_path / "run", small_config())
    with pytest.raises(RunDirectoryError, match="has no ledger"):
        bind(directory)


def put_back(backup, folder):
    """As ``cp`` does: files keep their path and their number, and ``place.json`` comes along."""
    for file in backup.rglob("*"):
        if file.is_file():
            (folder / file.relative_to(backup)).write_bytes(file.read_bytes())


def test_an_older_copy_that_was_put_back_in_place_draws_nothing(begun, run_small, tmp_path):
    config, folder = begun()
    shutil.copytree(folder, tmp_path / "older")
    run_small(config)
    put_back(tmp_path / "older", folder)
    assert entries(folder) == 3
    refused(run_small, config, match="3 entries, and 5 were written", error=LedgerError)
    bind(RunDirectory.open(folder))  # whatever is said
    refused(run_small, config, match="older copy", error=LedgerError)


def test_a_copy_that_was_put_back_and_is_as_new_goes_on(begun, run_small, tmp_path):
    config, folder = begun()
    shutil.copytree(folder, tmp_path / "copy")
    put_back(tmp_path / "copy", folder)
    assert run_small(config).rounds == 5


def test_an_older_copy_from_before_the_first_entry_draws_nothing(
    small_config, run_small, monkeypatch, tmp_path
):
    """Not even where nothing in it says that it lay elsewhere."""
    config = small_config(tasks__critic__rounds=2)
    with monkeypatch.context() as patch:
        patch.setattr(PrivateStep, "gather", _killed)
        with pytest.raises(KeyboardInterrupt):
            run_small(config)
    shutil.copytree(tmp_path / "run", tmp_path / "older")
    (tmp_path / "older" / "place.json").unlink()
    run_small(config)
    refused(run_small, config, "older", match="0 entries, and 2 were written", error=LedgerError)


def test_two_copies_that_go_on_at_once_are_stopped_whatever_was_said(begun, tmp_path):
    """Each was the only one when it was asked, and neither looks at its place again."""
    config, folder = begun()
    shutil.copytree(folder, tmp_path / "other")
    bind(RunDirectory.open(tmp_path / "other"))
    one, other = (RunLedger(config, RunDirectory.open(f), "") for f in (folder, tmp_path / "other"))
    event = one.entries[0].event
    RoundCharge(other, event, 4, TRAINING).pay()
    with pytest.raises(LedgerError, match="3 entries, and 4 were written"):
        RoundCharge(one, event, 4, TRAINING).pay()
    assert entries(folder) == 3
    RoundCharge(other, event, 5, TRAINING).pay()


def _pay_at_once(config, folder, event, met, paid):
    """In a process of its own: pay a round just after the other copy has looked at the mark."""
    looked = HighWaterMark.check

    def look(mark, ledger):
        looked(mark, ledger)
        with suppress(BrokenBarrierError):  # where the other one is kept from looking
            met.wait(2)

    ledger = RunLedger(config, RunDirectory.open(folder), "")
    HighWaterMark.check = look
    try:
        paid.put((RoundCharge(ledger, event, 4, TRAINING).pay().hash, ""))
    except LedgerError as error:
        paid.put(("", error.problem))


@pytest.mark.law("2: a copy draws no noise")
def test_of_two_copies_that_pay_at_the_same_moment_one_alone_releases(begun, tmp_path):
    config, folder = begun()
    other = shutil.copytree(folder, tmp_path / "other")
    bind(RunDirectory.open(other))
    event = RunLedger(config, RunDirectory.open(folder), "").entries[0].event
    processes = multiprocessing.get_context("fork")
    met, paid = processes.Barrier(2), processes.Queue()
    payers = [
        processes.Process(target=_pay_at_once, args=(config, path, event, met, paid))
        for path in (folder, other)
    ]
    for payer in payers:
        payer.start()
    found = [paid.get(timeout=120) for _ in payers]
    for payer in payers:
        payer.join()
    (refused,) = [problem for entry, problem in found if not entry]
    assert "3 entries, and 4 were written" in refused
    assert sorted((entries(folder), entries(other))) == [3, 4]
