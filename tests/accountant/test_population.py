"""One budget for all runs: granted in one step, never given back, refused where in doubt."""

import json
import multiprocessing
import os
import pwd
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from shutil import copytree
from threading import Barrier, BrokenBarrierError

import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.dp.moments import MomentsAccountant
from fedlens.accountant.events import GaussianRelease, SubsampledGaussian
from fedlens.accountant.ledger.high_water import HighWaterMark
from fedlens.accountant.ledger.ledger import Ledger, LedgerError
from fedlens.accountant.ledger.population import (
    OutOfBudget,
    Population,
    PopulationError,
    PopulationTerms,
)
from fedlens.accountant.ledger.terms import population_folder
from fedlens.foundation.errors import FedlensError

EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 2.0, 0.35)
TERMS = PopulationTerms("clinic", "user", 1e-5, 1.0, users=1000)


def most_rounds(terms, event=EVENT):
    """How many like rounds a budget allows, by the moments accountant of its order alone."""
    account, count = MomentsAccountant(orders=(terms.order,)), 0
    while not account.would_exceed(event, epsilon=terms.epsilon_budget, delta=terms.delta):
        account.compose(event)
        count += 1
    return count


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "populations" / "clinic"


@pytest.fixture
def population(folder):
    return Population.create(folder, TERMS)


def spend(population, run="r1", number=1, event=EVENT):
    return population.charge(event, run=run, number=number)


def test_what_runs_spend_together_is_what_one_run_would(population, folder):
    account = DifferentialAccountant()
    for number in range(1, 7):
        event = EVENT if number % 2 else replace(EVENT, noise_multiplier=3.0)
        spend(population, f"run{number % 3}", number, event)
        account.compose(event)
    assert population.spent() == account.epsilon(TERMS.delta)
    again = Population.open(folder)
    assert (again.spent(), again.terms, again.identity) == (
        population.spent(),
        TERMS,
        population.identity,
    )
    assert {s.run: s.rounds for s in again.shares()} == {"run0": 2, "run1": 2, "run2": 2}
    assert all(0 < s.alone.epsilon < again.spent().epsilon for s in again.shares())


def test_one_run_after_another_gets_what_is_left_and_not_a_budget_of_its_own(population, folder):
    most = most_rounds(TERMS)
    assert most > 4
    for number in range(1, most - 1):
        spend(population, "first", number)
    second = Population.open(folder)
    spend(second, "second", 1)
    spend(second, "second", 2)
    assert second.refusal(EVENT) is not None
    for opened in (second, population, Population.open(folder)):
        with pytest.raises(OutOfBudget, match=r"population 'clinic'.*budget 1 "):
            spend(opened, "third", 1)
    assert len(Ledger.verify(folder / "ledger.jsonl")) == most
    assert population.spent().epsilon <= TERMS.epsilon_budget


def test_a_smaller_release_may_fit_where_a_larger_one_does_not(population):
    large = replace(EVENT, count=most_rounds(TERMS) + 1)
    with pytest.raises(OutOfBudget):
        spend(population, event=large)
    spend(population)
    assert population.refusal(large) and population.refusal(EVENT) is None


def test_it_says_how_many_rounds_are_left(population):
    most = most_rounds(TERMS)
    assert population.rounds_left(EVENT) == most
    assert population.rounds_left(EVENT, most=3) == 3
    assert population.rounds_left(replace(EVENT, noise_multiplier=0)) == 0
    for number in range(1, most):
        spend(population, "r1", number)
        assert population.rounds_left(EVENT) == most - number
    spend(population, "r1", most)
    assert population.rounds_left(EVENT) == 0 and population.refusal(EVENT) is not None
    with pytest.raises(PopulationError, match="unit"):
        population.rounds_left(replace(EVENT, unit="record"))


def test_it_says_how_many_of_several_releases_fit_and_spends_nothing(population):
    most = most_rounds(TERMS)
    many = [EVENT] * (most + 3)
    assert population.affordable(many) == most
    assert population.affordable(many[:2]) == 2 and population.affordable([]) == 0
    spend(population, "r1", 1)
    assert population.affordable(many) == most - 1
    large = replace(EVENT, count=most)
    assert population.affordable([large, EVENT]) == 0  # in their order
    assert population.affordable([EVENT, large]) == 1
    assert len(population.ledger) == 1
    with pytest.raises(PopulationError, match="unit"):
        population.affordable([EVENT, replace(EVENT, unit="record")])


def test_a_refused_release_leaves_no_trace(population, folder):
    before = (folder / "ledger.jsonl").read_bytes()
    with pytest.raises(OutOfBudget):
        spend(population, event=replace(EVENT, noise_multiplier=0))
    assert (folder / "ledger.jsonl").read_bytes() == before


def test_releases_of_any_kind_draw_on_it(population):
    spend(population, event=GaussianRelease("user", "add-remove", 1.0, 20.0, 1, "class counts"))
    assert population.spent().epsilon > 0


def test_a_grant_is_never_used_twice(population):
    """A run's folder may have been copied: nobody knows whether noise was drawn for a round."""
    spend(population, "r1", 7)
    once = population.spent().epsilon
    spend(population, "r1", 7)
    assert population.spent().epsilon > once
    (share,) = population.shares()
    assert (share.grants, share.rounds) == (2, 1)


def test_levels_never_add_up(population):
    for ask in (population.refusal, lambda e: spend(population, event=e)):
        with pytest.raises(PopulationError, match="unit = 'record'"):
            ask(replace(EVENT, unit="record"))
    assert len(population.ledger) == 0


def test_an_event_of_another_level_in_its_ledger_is_named(population, folder):
    spend(population)
    foreign = Ledger.open(folder / "ledger.jsonl")
    foreign.append(
        replace(EVENT, unit="record"), round=1, purpose="", evidence_digest=None, run="r"
    )
    with pytest.raises(LedgerError, match="line 3: unit = 'record'"):
        spend(population)
    with pytest.raises(LedgerError, match="line 3: unit = 'record'"):
        Population.open(folder)


def rewrite(folder, change):
    path = folder / "ledger.jsonl"
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


HARMS = {
    "edited": (lambda x: [*x[:2], x[2].replace(b"2.0", b"9.0"), *x[3:]], "line 3: was changed"),
    "deleted": (lambda x: [*x[:2], *x[3:]], "line 3: .*missing"),
    "swapped": (lambda x: [*x[:2], x[3], x[2], *x[4:]], "line 3: .*missing"),
    "repeated": (lambda x: [*x[:3], x[2], *x[3:]], "line 4: .*repeated"),
    "budget": (lambda x: [x[0].replace(b":1.0", b":9.0"), *x[1:]], "line 1: was changed"),
    "emptied": (lambda x: [], "line 1: is missing"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_ledger_that_was_tampered_with_grants_nothing(population, folder, harm):
    for number in range(1, 5):
        spend(population, number=number)
    change, said = HARMS[harm]
    rewrite(folder, change)
    with pytest.raises(LedgerError, match=said):
        Population.open(folder)


def test_a_ledger_cut_or_replaced_while_open_grants_nothing(population, folder):
    spend(population)
    path, whole = folder / "ledger.jsonl", (folder / "ledger.jsonl").read_bytes()
    rewrite(folder, lambda lines: lines[:-1])
    with pytest.raises(LedgerError, match="cut"):
        spend(population)
    path.rename(folder / "old")
    path.write_bytes(whole)
    with pytest.raises(LedgerError, match="replaced"):
        spend(population)


def test_a_population_restored_from_an_older_copy_is_refused_by_a_run_it_forgot(
    population, folder, tmp_path, monkeypatch
):
    entries = [spend(population, "r1", number) for number in (1, 2, 3)]
    population.require_entries("r1", entries)
    population.require_entries("r1", entries[:2])
    with pytest.raises(PopulationError, match="round 1 of run r2"):
        population.require_entries("r2", entries)
    rewrite(folder, lambda lines: lines[:-1])
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "a machine that never charged it"))
    with pytest.raises(PopulationError, match=r"round 3 of run r1.*older copy"):
        Population.open(folder).require_entries("r1", entries)


@pytest.mark.law("2: a copy draws no noise")
def test_an_older_copy_of_a_population_is_refused_to_all_runs(population, folder):
    """A new run knows of no entry that is missing, and would spend what was spent already."""
    for number in range(1, 4):
        spend(population, number=number)
    whole = (folder / "ledger.jsonl").read_bytes()
    rewrite(folder, lambda lines: lines[:-2])
    with pytest.raises(LedgerError, match="1 entries, and 3 were written on this machine"):
        Population.open(folder)
    with pytest.raises(LedgerError, match="1 entries, and 3 were written on this machine"):
        Population.read(folder)  # which would show more left than there is
    (folder / "ledger.jsonl").write_bytes(whole)
    assert len(Population.open(folder).ledger) == 3
    rewrite(folder, lambda lines: lines[:-1])
    other = Ledger.open(folder / "ledger.jsonl")
    other.append(EVENT, round=7, purpose="", evidence_digest=None, run="r9")
    with pytest.raises(LedgerError, match="another entry 3 than was written"):
        Population.open(folder)


def test_without_a_place_to_note_it_a_population_is_charged_all_the_same(
    population, folder, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "file"))
    again = Population.open(folder)
    spend(again)
    assert len(Population.open(folder).ledger) == 1


@pytest.mark.law("2: a copy draws no noise")
def test_two_copies_of_a_population_do_not_both_grant(population, folder, tmp_path):
    """Both were opened while they were alike: each would grant what the other granted."""
    spend(population)
    copytree(folder, tmp_path / "copy")
    one, other = Population.open(folder), Population.open(tmp_path / "copy")
    spend(other, number=2)
    with pytest.raises(LedgerError, match="1 entries, and 2 were written"):
        spend(one, number=2)
    assert len(one.ledger) == 1


@pytest.mark.law("2: a copy draws no noise")
def test_two_copies_of_a_population_that_are_charged_at_the_same_moment_do_not_both_grant(
    population, folder, tmp_path, monkeypatch
):
    spend(population)
    copies = [population, Population.open(Path(copytree(folder, tmp_path / "copy")))]
    met, looked = Barrier(2), HighWaterMark.check

    def look(mark, ledger):
        looked(mark, ledger)
        with suppress(BrokenBarrierError):  # where the other one is kept from looking
            met.wait(1)

    monkeypatch.setattr(HighWaterMark, "check", look)

    def charge(copied):
        with suppress(LedgerError):
            return spend(copied, number=2)

    with ThreadPoolExecutor() as both:
        granted = list(both.map(charge, copies))
    assert sum(entry is not None for entry in granted) == 1


def test_one_who_looks_while_it_is_charged_finds_no_fault(population, folder, monkeypatch):
    """The mark may be of an entry that was written since the ledger was read."""
    spend(population)
    read, looks = Ledger.read.__func__, []

    def reading(kind, path, *more):
        found = read(kind, path, *more)
        looks.append(len(found))
        if len(looks) < 4:
            spend(population, number=len(looks) + 1)
        return found

    monkeypatch.setattr(Ledger, "read", classmethod(reading))
    assert len(Population.read(folder).ledger) == 4
    assert looks == [1, 2, 3, 4]


def test_where_there_is_no_home_a_ledger_is_kept_all_the_same(tmp_path, monkeypatch):
    """As in a container whose account is in no list of users."""

    def unknown(_):
        raise KeyError

    monkeypatch.delenv("FEDLENS_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    spend(Population.create(tmp_path / "clinic", TERMS))
    assert len(Population.open(tmp_path / "clinic").ledger) == 1
    with pytest.raises(FedlensError, match="FEDLENS_HOME"):
        population_folder("clinic")


def test_a_population_is_made_once(population, folder):
    with pytest.raises(PopulationError, match="already"):
        Population.create(folder, replace(TERMS, epsilon_budget=99.0, order=0.0))
    assert Population.open(folder).terms == TERMS


def test_making_one_syncs_every_folder_that_was_made(folder, monkeypatch):
    synced = []
    monkeypatch.setattr(
        os,
        "fsync",
        lambda descriptor: synced.append(Path(f"/proc/self/fd/{descriptor}").readlink()),
    )
    Population.create(folder, TERMS)
    assert {folder, folder.parent, folder.parent.parent} <= set(synced)


def test_two_populations_of_the_same_terms_are_told_apart(population, tmp_path):
    other = Population.create(tmp_path / "other", TERMS)
    assert other.identity != population.identity


def test_no_population_and_the_ledger_of_something_else_are_refused(tmp_path):
    with pytest.raises(PopulationError, match=r"no population in .*fedlens population create"):
        Population.open(tmp_path)
    Ledger.create(tmp_path / "ledger.jsonl", {"run_id": "abc"})
    with pytest.raises(PopulationError, match="something else"):
        Population.open(tmp_path)


@pytest.mark.parametrize("order", [None, 0.0])
def test_a_population_of_before_there_were_filters_is_refused(tmp_path, order):
    """Its budget was no bound where one run's settings were chosen by another one's releases."""
    header = {**asdict(TERMS), "id": "0" * 32, "order": order}
    if order is None:
        del header["order"]
    Ledger.create(tmp_path / "ledger.jsonl", header)
    said = r"ledger\.jsonl: is of a population without a filter.*make a new one"
    for opened in (Population.open, Population.read):
        with pytest.raises(PopulationError, match="something else" if order == 0 else said):
            opened(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("population", ""),
        ("unit", "household"),
        ("adjacency", "replace-one"),
        ("delta", 0.0),
        ("delta", 0.5),
        ("delta", float("nan")),
        ("delta", True),
        ("epsilon_budget", 0.0),
        ("epsilon_budget", float("inf")),
        ("epsilon_budget", "8"),
        ("users", -1),
        ("users", 1.5),
        ("order", 1.0),
        ("order", True),
        ("order", "8"),
    ],
)
def test_terms_that_cannot_be_meant_are_refused(field, value):
    with pytest.raises(PopulationError, match="epsilon" if "eps" in field else field):
        replace(TERMS, **{field: value})


def test_the_header_holds_the_terms_and_the_lines_the_run(population, folder):
    spend(population, "abc", 4)
    header, line = map(json.loads, (folder / "ledger.jsonl").read_text().splitlines())
    assert len(header["header"].pop("id")) == 32
    assert header["header"] == {
        "population": "clinic", "unit": "user", "delta": 1e-5, "epsilon_budget": 1.0,
        "adjacency": "add-remove", "users": 1000, "probe_epsilon": 0.0, "slices": "",
        "order": TERMS.order,
    }  # fmt: skip
    assert (line["run"], line["round"], line["evidence_digest"]) == ("abc", 4, None)


def race(folder, name, start, granted):
    population, count = Population.open(folder), 0
    append = Ledger.append

    def slow_append(*args, **keywords):
        time.sleep(0.002)  # between the check and the entry, where others must not come
        return append(*args, **keywords)

    Ledger.append = slow_append
    start.wait()
    try:
        while True:
            spend(population, name, count + 1)
            count += 1
    except OutOfBudget:
        granted.put((name, count))


@pytest.mark.parametrize("last", [1, 7, 40])
@pytest.mark.law("2: a budget stops a run in time")
def test_processes_that_race_for_the_last_rounds_get_exactly_these(folder, monkeypatch, last):
    most = most_rounds(replace(TERMS, epsilon_budget=2.0, order=0.0))
    population = Population.create(folder, replace(TERMS, epsilon_budget=2.0, order=0.0))
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        for number in range(1, most - last + 1):
            spend(population, "before", number)
    context = multiprocessing.get_context("fork")
    start, granted = context.Barrier(8), context.SimpleQueue()
    names = [f"p{i}" for i in range(8)]
    racers = [context.Process(target=race, args=(folder, n, start, granted)) for n in names]
    for racer in racers:
        racer.start()
    counts = dict(granted.get() for _ in racers)
    for racer in racers:
        racer.join()
    entries = Ledger.verify(folder / "ledger.jsonl")
    assert sum(counts.values()) == last and len(entries) == most
    for name in names:
        assert [e.round for e in entries if e.run == name] == list(range(1, counts[name] + 1))


def spend_on(folder, name, told):
    population = Population.open(folder)
    with told.open("a", buffering=1) as file:
        for number in range(1, 10**6):
            file.write(f"{spend(population, name, number).hash}\n")


def test_killed_processes_never_lose_a_grant_that_was_told(folder, tmp_path):
    """SIGKILL at random moments, others going on meanwhile."""
    Population.create(folder, replace(TERMS, epsilon_budget=1e9))
    context, told = multiprocessing.get_context("fork"), []
    for kill in range(6):
        told += [tmp_path / f"told-{kill}-{i}" for i in range(2)]
        pair = [
            context.Process(target=spend_on, args=(folder, path.name, path)) for path in told[-2:]
        ]
        for path in told[-2:]:
            path.touch()  # a process that is killed before it began told nothing
        for process in pair:
            process.start()
        time.sleep(0.15 + 0.05 * kill)
        for process in pair:
            os.kill(process.pid, signal.SIGKILL)
        for process in pair:
            process.join()
    population = Population.open(folder)
    hashes = {entry.hash for entry in population.ledger.entries}
    assert len(hashes) > 20
    for path in told:
        heard = path.read_text().split("\n")[:-1]
        assert set(heard) <= hashes
        mine = [e for e in population.ledger.entries if e.run == path.name]
        assert len(heard) <= len(mine) <= len(heard) + 1
