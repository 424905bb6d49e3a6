"""Runs that share a population's budget: who is stopped when, what a crash may not give back."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import shutil
import signal
import time
from collections import Counter

import pytest
from flwr.app import Context, RecordDict

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.accountant.ledger.population import (
    OutOfBudget,
    Population,
    PopulationError,
    PopulationTerms,
)
from fedlens.client.app import build_client_app
from fedlens.server.app import app
from fedlens.server.config.mechanism import round_event
from fedlens.server.config.schedule import task_at
from fedlens.server.config.tree import ConfigError
from fedlens.server.ledger.population import joined, population_folder
from fedlens.server.ledger.run_ledger import RunLedger
from fedlens.server.round.step import NoUsableReply, PrivateStep, SealedSum
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.store import open_store

SPENDING = {
    "privacy__fixed_seed": -1,
    "privacy__population": "clinic",
    "tasks__critic__generator_steps": 1,
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))


@pytest.fixture
def config(small_config):
    def make(**changes):
        return small_config(**{**SPENDING, **changes})

    return make


@pytest.fixture
def clinic(small_config):
    """Make the population, with a budget for ``rounds`` rounds of the small federation."""

    def make(rounds=5, **changes):
        config, account = small_config(), DifferentialAccountant()
        account.compose(round_event(config, config.tasks["critic"]), rounds)
        delta = config.privacy.delta
        bound = account.rdp(delta)
        budget = {"epsilon_budget": bound.epsilon * (1 + 1e-9), "order": bound.order}
        fields = {"unit": "user", "delta": delta, **budget, **changes}
        folder = population_folder("clinic")
        return Population.create(folder, PopulationTerms("clinic", **fields))

    return make


def check(tmp_path, *names):
    """No release without both entries; both chains hold; the population has every run's entries."""
    granted = Population.open(population_folder("clinic")).ledger.entries
    Ledger.verify(population_folder("clinic") / "ledger.jsonl")
    for name in names:
        ledger = Ledger.open(tmp_path / name / "ledger.jsonl")
        mine = Counter(e.round for e in granted if e.run == ledger.header["run_id"])
        own = Counter(e.round for e in Ledger.verify(ledger.path))
        assert not own - mine
        for release in (tmp_path / name / "checkpoint").glob("release-*.safetensors"):
            assert int(release.stem.split("-")[1]) in own
    return len(granted)


def told_spent(words):
    """The ε that a refusal says is spent."""
    return float(re.search(r"spent (?:so far: DP ε = )?([\d.]+)", words)[1])


def test_a_second_run_gets_what_the_first_left_and_ends_like_one_out_of_its_own_budget(
    config, clinic, run_small, tmp_path
):
    clinic(rounds=5)
    first, second = run_small(config(), "one"), run_small(config(), "two")
    assert (first.rounds, first.stopped) == (3, None)
    assert second.rounds == 2 and "population 'clinic'" in second.stopped
    with open_store(second.store) as store:
        assert store.run(second.run_id).status == "stopped-by-budget"
        assert "clinic" in store.run(second.run_id).stop_reason
    third = run_small(config(), "three")
    assert third.rounds == 0 and third.stopped
    assert told_spent(third.stopped) >= Population.read(population_folder("clinic")).spent().epsilon
    assert check(tmp_path, "one", "two", "three") == 5


def test_a_runs_own_budget_stops_it_too_and_says_so(config, clinic, run_small):
    clinic(rounds=3)
    outcome = run_small(config(privacy__epsilon_budget=0.01))
    assert outcome.rounds == 0
    assert "budget 0.01" in outcome.stopped and "population" not in outcome.stopped


def test_several_tasks_that_the_rest_cannot_pay_are_refused_before_anybody_is_asked(
    annotated, clinic, run_small, tmp_path
):
    """Else warm-up and critic would be paid for, and the annotator cut off."""

    def never(context):
        raise AssertionError("a node was asked")

    clinic(rounds=5)
    config = annotated(
        SPENDING, tasks__annotator__noise_multiplier=4.0
    )  # three rounds, each like the clinic's
    assert run_small(config, "one").stopped is None
    with pytest.raises(PopulationError, match="in its task 'annotator'") as refused:
        run_small(config, "two", app=build_client_app(never))
    spent = Population.read(population_folder("clinic")).spent().epsilon
    assert told_spent(str(refused.value)) >= spent
    assert not (tmp_path / "two" / "ledger.jsonl").exists()
    RunLedger(config, RunDirectory.open(tmp_path / "two"), "stopped")  # in its first round, unpaid
    with pytest.raises(PopulationError, match="in its task 'annotator'"):
        run_small(config, "two", app=build_client_app(never))
    assert run_small(config, "one").rounds == 3  # a finished run is no new one
    lean = annotated(SPENDING, tasks__annotator__noise_multiplier=4.0, tasks__annotator__rounds=1)
    assert run_small(lean, "lean").stopped is None
    assert check(tmp_path, "one", "lean") == 5


def test_through_flower_a_refusal_leaves_no_run_behind(annotated, clinic, tmp_path):
    """Else the fix that the message names would meet a run of another configuration."""
    clinic(rounds=1)
    poor = annotated(SPENDING, tasks__annotator__noise_multiplier=4.0)
    mean = annotated(privacy__epsilon_budget=0.01)
    for config, error in ((poor, PopulationError), (mean, ConfigError)):
        settings = {**config.flat(), "run.out": str(tmp_path / "run"), "run.store": ""}
        context = Context(1, 0, {}, RecordDict(), settings)
        with pytest.raises(error, match="in its task"):
            app(None, context)
        assert not (tmp_path / "run").exists()


def test_without_a_population_a_run_is_alone(small_config, run_small, clinic):
    clinic(rounds=1)
    assert run_small(small_config()).rounds == 3
    assert len(Population.open(population_folder("clinic")).ledger) == 0


def test_deleting_or_resuming_a_run_gives_nothing_back(config, clinic, run_small, tmp_path):
    clinic(rounds=5)
    run_small(config(), "one")
    run_small(config(), "one")
    assert check(tmp_path, "one") == 3
    shutil.rmtree(tmp_path / "one")
    assert run_small(config(), "one").rounds == 2
    RunDirectory.open(tmp_path / "one").set_aside()
    assert run_small(config(), "one").rounds == 0
    assert check(tmp_path, "one", "one.old-1") == 5


def put_back(run, home, lines):
    """As on a machine that wrote nothing of it: the run's ledger as it was, and nothing else."""
    ledger = (run / "ledger.jsonl").read_text().splitlines(keepends=True)
    (run / "ledger.jsonl").write_text("".join(ledger[:lines]))
    shutil.rmtree(run / "checkpoint")
    (run / "checkpoint").mkdir()
    (run / "store.db").unlink()
    shutil.rmtree(home / "heads")


@pytest.mark.law("2: a copy draws no noise")
def test_an_older_run_is_found_out_by_its_population(config, clinic, run_small, tmp_path):
    clinic(rounds=5)
    run_small(config(), "one")
    put_back(tmp_path / "one", tmp_path / "home", 2)
    with pytest.raises(
        PopulationError, match=r"round 3 of run .*ends with round 1: it is an older"
    ):
        run_small(config(), "one")
    assert len(Population.open(population_folder("clinic")).ledger) == 3


def test_a_run_that_lacks_one_round_pays_for_what_it_draws_anew(
    config, clinic, run_small, tmp_path
):
    """A crash between the two ledgers leaves it so. The round has the same number, other noise."""
    clinic(rounds=5)
    run_small(config(), "one")
    put_back(tmp_path / "one", tmp_path / "home", 3)
    assert run_small(config(), "one").rounds == 3
    assert check(tmp_path, "one") == 4


class PowerCut(BaseException):
    """What a test raises in place of the process's death."""


@pytest.mark.law("2: empty, failed and lost rounds are charged")
def test_a_crash_between_both_entries_overcounts(config, clinic, run_small, monkeypatch, tmp_path):
    clinic(rounds=5)
    append = Ledger.append

    def cut(self, *args, **keywords):
        if keywords.get("run") is None and keywords["round"] == 2:
            raise PowerCut
        return append(self, *args, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "append", cut)
        with pytest.raises(PowerCut):
            run_small(config())
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 1
    assert run_small(config()).rounds == 3
    assert check(tmp_path, "run") == 4


def test_a_budget_taken_by_another_while_nodes_work_releases_nothing(
    config, clinic, run_small, monkeypatch, tmp_path
):
    clinic(rounds=2)
    gather = PrivateStep.gather

    def slow(self, number, asked):
        if number == 2:
            other = Population.open(population_folder("clinic"))
            other.charge(round_event(config(), config().tasks["critic"]), run="other", number=1)
        return gather(self, number, asked)

    monkeypatch.setattr(PrivateStep, "gather", slow)
    monkeypatch.setattr(SealedSum, "_noise_sum", _counting(SealedSum._noise_sum, released := []))
    outcome = run_small(config())
    assert outcome.rounds == 1 and "clinic" in outcome.stopped
    assert released == [1] and check(tmp_path, "run") == 2
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 1


def _counting(noise_sum, calls):
    def counted(self):
        calls.append(self.number)
        return noise_sum(self)

    return counted


def test_a_population_harmed_while_nodes_work_releases_nothing(
    config, clinic, run_small, monkeypatch, tmp_path
):
    clinic()
    gather = PrivateStep.gather

    def harm(self, number, asked):
        if number == 2:
            path = population_folder("clinic") / "ledger.jsonl"
            path.write_bytes(path.read_bytes()[:-2])
        return gather(self, number, asked)

    monkeypatch.setattr(PrivateStep, "gather", harm)
    monkeypatch.setattr(SealedSum, "_noise_sum", _counting(SealedSum._noise_sum, released := []))
    with pytest.raises(LedgerError, match="cut"):
        run_small(config())
    assert released == [1]
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 1


def test_a_failed_round_is_charged_to_both(config, clinic, run_small, monkeypatch, tmp_path):
    clinic()

    def fail(self, number, asked):
        raise NoUsableReply("no node")

    monkeypatch.setattr(PrivateStep, "gather", fail)
    with pytest.raises(NoUsableReply):
        run_small(config())
    assert check(tmp_path, "run") == len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 1


@pytest.mark.parametrize(
    ("terms", "changes", "said"),
    [
        ({"unit": "record"}, {}, "privacy.unit"),
        ({"delta": 1e-4}, {}, "privacy.delta"),
        ({"users": 39}, {}, "data.users = 40"),
        ({}, {"privacy__fixed_seed": 3}, "fixed_seed"),
        ({}, {"privacy__population": "another"}, "no population"),
        ({}, {"privacy__population": "/nowhere"}, "no population in /nowhere"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_before_anything_is_asked(
    config, clinic, run_small, tmp_path, monkeypatch, terms, changes, said
):
    clinic(**terms)
    monkeypatch.setattr(PrivateStep, "gather", lambda *_: pytest.fail("nodes were asked"))
    with pytest.raises(PopulationError, match=said):
        run_small(config(**changes))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_missing_or_changed_population_stops_a_resumed_run(
    config, clinic, run_small, tmp_path, monkeypatch
):
    clinic()
    run_small(config())
    monkeypatch.setattr(PrivateStep, "gather", lambda *_: pytest.fail("nodes were asked"))
    folder, away = population_folder("clinic"), tmp_path / "away"
    folder.rename(away)
    with pytest.raises(PopulationError, match="no population"):
        run_small(config())
    clinic()
    with pytest.raises(LedgerError, match="another population"):
        run_small(config())
    shutil.rmtree(folder)
    shutil.copytree(away, folder)
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    (folder / "ledger.jsonl").write_text("".join(lines[:-1]))
    with pytest.raises(LedgerError, match=r"3 were written .* older copy"):
        run_small(config())
    (folder / "ledger.jsonl").write_text("".join([*lines[:2], *lines[3:]]))
    with pytest.raises(LedgerError, match="line 3"):
        run_small(config())


def test_a_run_cannot_leave_its_population_by_its_settings(config, clinic, run_small, tmp_path):
    clinic()
    run_small(config())
    left = config(privacy__population="")
    with pytest.raises(RunDirectoryError, match="another configuration"):
        run_small(left)
    (tmp_path / "run" / "config.toml").write_text(left.to_toml())  # by hand
    with pytest.raises(LedgerError, match="another configuration"):
        run_small(left)


@pytest.mark.parametrize("name", ["../x", "a/b", "a b", ".hidden", "x" * 65, "relative/", "a\n"])
def test_names_that_are_no_names_are_refused(config, name):
    with pytest.raises(ConfigError, match=r"privacy\.population"):
        config(privacy__population=name)


def test_an_absolute_folder_is_used_as_it_is(config, clinic, tmp_path):
    clinic()
    population_folder("clinic").rename(tmp_path / "elsewhere")
    population = joined(config(privacy__population=str(tmp_path / "elsewhere")))
    assert population.ledger.path == tmp_path / "elsewhere" / "ledger.jsonl"


def test_the_population_is_part_of_the_digest(small_config):
    alone = small_config(privacy__fixed_seed=-1)
    named = small_config(privacy__fixed_seed=-1, privacy__population="clinic")
    other = small_config(privacy__fixed_seed=-1, privacy__population="other")
    assert len({alone.digest(), named.digest(), other.digest()}) == 3


def test_two_runs_race_for_the_last_rounds(config, clinic, run_small, tmp_path):
    clinic(rounds=7)
    context = multiprocessing.get_context("fork")
    names = ["one", "two", "three"]
    racers = [
        context.Process(target=run_small, args=(config(tasks__critic__rounds=6), name))
        for name in names
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert [racer.exitcode for racer in racers] == [0, 0, 0]
    done = [len(Ledger.verify(tmp_path / name / "ledger.jsonl")) for name in names]
    assert sum(done) == check(tmp_path, *names) == 7


@pytest.mark.slow
def test_kills_at_random_moments_with_a_population(config, clinic, run_small, tmp_path):
    """Real SIGKILLs of two runs at once, each at a random moment; then both go on to their end."""
    rounds, kills = 24, 5
    clinic(rounds=10_000)
    chosen = config(tasks__critic__rounds=rounds)
    ledger = population_folder("clinic") / "ledger.jsonl"
    context, moments = multiprocessing.get_context("fork"), random.Random(1)
    for kill in range(kills):
        pair = [context.Process(target=run_small, args=(chosen, n)) for n in ("one", "two")]
        before = ledger.stat().st_size
        for child in pair:
            child.start()
        while kill % 3 and ledger.stat().st_size == before:  # every third, while it begins
            assert pair[0].is_alive() or pair[1].is_alive()
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.5))
        for child in pair:
            os.kill(child.pid, signal.SIGKILL)
        for child in pair:
            child.join()
        if all((tmp_path / n / "ledger.jsonl").exists() for n in ("one", "two")):
            check(tmp_path, "one", "two")
    begun = [len(Ledger.open(tmp_path / n / "ledger.jsonl")) for n in ("one", "two")]
    assert sum(begun) > 2 and max(begun) < rounds
    assert [run_small(chosen, n).rounds for n in ("one", "two")] == [rounds, rounds]
    granted = check(tmp_path, "one", "two")
    assert 2 * rounds <= granted <= 2 * rounds + 2 * kills


def test_a_run_ledger_charges_the_population_first(config, clinic, tmp_path, monkeypatch):
    clinic()
    directory = RunDirectory.create(tmp_path / "run", config())
    run_ledger, order, append = RunLedger(config(), directory, "abc"), [], Ledger.append

    def watch(self, *args, **keywords):
        order.append(self.path.parent.name)
        return append(self, *args, **keywords)

    monkeypatch.setattr(Ledger, "append", watch)
    run_ledger.prepare_charge(task_at(config(), 1), 1).pay()
    assert order == ["clinic", "run"]


def test_a_scheduled_probe_that_waits_is_refused_before_anybody_computes(config, clinic, tmp_path):
    """And once it is approved it is asked, and uses the approval up; training is never held up."""
    ward = clinic(rounds=50)
    asking = config(
        schedule="critic probe",
        tasks__probe={"kind": "probe", "probe": "intensity", "noise_multiplier": 8.0},
    )
    directory = RunDirectory.create(tmp_path / "run", asking)
    run_ledger = RunLedger(asking, directory, "abc")
    training, probe = task_at(asking, 1), task_at(asking, asking.tasks["critic"].rounds + 1)
    ward.set_officer_rule(0.0, 1.0, by="otto")
    run_ledger.prepare_charge(training, 1).pay()
    with pytest.raises(OutOfBudget, match="has not approved this one"):
        run_ledger.prepare_charge(probe, probe.last)
    (one,) = Population.open(ward.folder).waiting()
    assert (one.run, one.times, one.question) == ("abc", 1, "probe intensity")
    ward.decide(one, approved=True, by="otto")
    run_ledger.prepare_charge(probe, 2).pay()
    with pytest.raises(OutOfBudget, match="has not approved this one"):
        run_ledger.prepare_charge(probe, 3)
    run_ledger.prepare_charge(training, 3).pay()
