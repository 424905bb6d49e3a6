"""What a filter cost that another run trained on the same people is part of every figure."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population, PopulationError, PopulationTerms
from fedlens.accountant.ledger.prior import PriorReleases
from fedlens.api.simulations import chosen_config
from fedlens.cli import main
from fedlens.server.config.tree import ConfigError
from fedlens.server.learning.pretrained_filter import check_filter
from fedlens.server.ledger.plan import planned
from fedlens.server.ledger.population import population_folder
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.run.directory import RunDirectory
from fedlens.store import open_store

FILTER = {"privatizer__network": "dense", "privatizer__width": 4}
TRAINS = {
    **FILTER,
    "privatizer__kind": "trained",
    "privatizer__trained_by": "rounds",
    "tasks__privatizer__rounds": 2,
    "tasks__privatizer__adversary_width": 4,
    "tasks__privatizer__batch": 5,
    "tasks__privatizer__noise_multiplier": 0.5,
    "tasks__privatizer__sampling_rate": 0.5,
    "tasks__critic__rounds": 1,
}
SHORT = {"tasks__critic__kind": "frozen", "tasks__critic__noise_multiplier": 5.0}
DELTA = 1e-3


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))


@pytest.fixture
def trained(small_config, run_small, finished, tmp_path):
    """The folder of a run that spent much on a filter, with changes."""

    def make(**changes) -> Path:
        train = run_small if "privacy__population" in changes else finished
        train(small_config(**{**SHORT, **TRAINS, "privacy__fixed_seed": -1, **changes}), "one")
        return tmp_path / "one"

    return make


@pytest.fixture
def taking(small_config):
    """The configuration of a run that takes that filter, with changes."""

    def make(folder: Path, **changes):
        given = {"privatizer__kind": "pretrained", "privatizer__path": str(folder)}
        some = {**SHORT, **FILTER, "privacy__fixed_seed": -1, "tasks__critic__rounds": 2, **given}
        return small_config(**{**some, **changes})

    return make


@pytest.fixture
def clinic():
    def make(budget: float = 1000.0) -> None:
        terms = PopulationTerms("clinic", "user", DELTA, budget)
        Population.create(population_folder("clinic"), terms)

    return make


def together(*folders: Path) -> float:
    account = DifferentialAccountant()
    for folder in folders:
        for entry in Ledger.read(folder / "ledger.jsonl").entries:
            account.compose(entry.event)
    return account.epsilon(DELTA).epsilon


def booked() -> float:
    return Population.read(population_folder("clinic")).spent().epsilon


@pytest.mark.law("2: earlier runs are paid for")
def test_a_population_is_booked_what_a_filter_of_the_same_people_cost(
    trained, taking, run_small, clinic, tmp_path
):
    """The filter's run spent from no population, and cost far more than the run that takes it."""
    clinic()
    folder = trained()
    run_small(taking(folder, privacy__population="clinic"), "two")
    own = together(tmp_path / "two")
    assert booked() == together(folder, tmp_path / "two") > 5 * own
    entries = Population.read(population_folder("clinic")).ledger.entries
    mine = Ledger.read(folder / "ledger.jsonl")
    assert [e.round for e in entries if e.run == mine.header["run_id"]] == [1, 2, 3]


@pytest.mark.law("2: earlier runs are paid for")
def test_it_is_booked_once_however_many_runs_take_the_filter(
    trained, taking, run_small, clinic, tmp_path
):
    clinic()
    folder = trained()
    for name in ("two", "three", "three"):
        run_small(taking(folder, privacy__population="clinic"), name)
    assert booked() == together(folder, tmp_path / "two", tmp_path / "three")


def test_a_run_that_spent_from_the_population_itself_is_not_booked_again(
    trained, taking, run_small, clinic, tmp_path
):
    clinic()
    folder = trained(privacy__population="clinic")
    run_small(taking(folder, privacy__population="clinic"), "two")
    assert booked() == together(folder, tmp_path / "two")
    assert len(Population.read(population_folder("clinic")).ledger) == 5


def test_a_population_that_cannot_pay_for_the_filter_refuses_before_anything_is_spent(
    trained, taking, run_small, clinic, tmp_path
):
    folder = trained()
    clinic(budget=together(folder) * 0.9)
    config = taking(folder, privacy__population="clinic")
    with pytest.raises(
        PopulationError, match="the run that this one builds on cost the same people"
    ):
        check_filter(config)
    with pytest.raises(PopulationError):
        run_small(config, "two")
    assert len(Population.read(population_folder("clinic")).ledger) == 0
    assert not (tmp_path / "two" / "ledger.jsonl").exists()


@pytest.mark.law("2: earlier runs are paid for")
def test_alone_the_runs_own_figure_is_of_both_schedules_composed(
    trained, taking, run_small, tmp_path
):
    folder = trained()
    outcome = run_small(taking(folder), "two")
    both = together(folder, tmp_path / "two")
    assert outcome.spending.dp_epsilon == both
    assert both < together(folder) + together(tmp_path / "two"), "epsilons are not added up"
    directory = RunDirectory.open(tmp_path / "two")
    assert spending_of(directory.config(), directory).dp_epsilon == both
    with open_store(outcome.store) as store:
        assert store.rounds(outcome.run_id)[-1].dp_epsilon == both
        assert store.batches(outcome.run_id)[-1].dp_epsilon == both
    assert run_small(taking(folder), "two").spending.dp_epsilon == both


def test_a_runs_own_budget_covers_the_filter_too(trained, taking, run_small, tmp_path):
    folder = trained()
    run_small(taking(folder), "free")
    own = together(tmp_path / "free")
    config = taking(folder, privacy__epsilon_budget=2 * own)
    outcome = run_small(config, "two")
    assert outcome.rounds == 0 and "budget" in outcome.stopped


def test_of_several_tasks_the_filter_is_in_the_check_before_the_start(trained, annotated):
    folder = trained()
    given = {"privatizer__kind": "pretrained", "privatizer__path": str(folder), **FILTER}
    more = {"privacy__fixed_seed": -1, "privacy__epsilon_budget": together(folder)}
    quiet = {"tasks__critic__noise_multiplier": 50.0, "tasks__annotator__noise_multiplier": 50.0}
    with pytest.raises(ConfigError, match="beside what the filter cost"):
        check_filter(annotated(**given, **more, **quiet))


@pytest.mark.law("2: earlier runs are paid for")
def test_other_people_are_declared_on_record_and_cost_nothing(
    trained, taking, run_small, clinic, tmp_path
):
    clinic()
    folder = trained()
    declared = {"privatizer__other_people": True, "privacy__population": "clinic"}
    outcome = run_small(taking(folder, **declared), "two")
    assert booked() == outcome.spending.dp_epsilon == together(tmp_path / "two")
    header = Ledger.read(tmp_path / "two" / "ledger.jsonl").header
    assert header["builds_on"]["other_people"] is True
    with open_store(outcome.store) as store:
        assert "The operator declared that none of them is" in store.run(outcome.run_id).guarantee


@pytest.mark.parametrize("how", ["it spent from the population", "it was booked there"])
def test_other_people_cannot_be_said_of_a_run_of_the_same_population(
    trained, taking, run_small, clinic, how
):
    clinic()
    spent = how == "it spent from the population"
    folder = trained(**({"privacy__population": "clinic"} if spent else {}))
    config = taking(folder, privacy__population="clinic")
    if not spent:
        run_small(config, "two")
    with pytest.raises(ConfigError, match=r"privatizer\.other_people = true, but .* 'clinic'"):
        check_filter(config.updated({"privatizer.other_people": True}))


def test_two_ledgers_of_one_run_id_are_not_booked_as_one(
    trained, taking, run_small, clinic, tmp_path
):
    """Both copies of a folder went on from the same round, each with noise of its own."""
    clinic()
    folder = trained()
    shutil.copytree(folder, tmp_path / "copy")
    run_small(taking(folder, privacy__population="clinic"), "two")
    before = booked()
    went_on_alone(tmp_path / "copy" / "ledger.jsonl", since=1)
    config = taking(tmp_path / "copy", privacy__population="clinic")
    with pytest.raises(PopulationError, match="round 2 of another ledger with that run id"):
        check_filter(config)
    with pytest.raises(PopulationError, match="another ledger"):
        run_small(config, "three")
    assert booked() == before
    check_filter(taking(folder, privacy__population="clinic"))


def test_a_ledger_that_grew_since_it_was_booked_is_the_same_one(trained, clinic, tmp_path):
    clinic()
    whole, path = trained() / "ledger.jsonl", tmp_path / "earlier.jsonl"
    path.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:3]))
    earlier, later = (PriorReleases.of(Ledger.read(p), other_people=False) for p in (path, whole))
    population = Population.open(population_folder("clinic"))
    counts = [population.charge_prior(prior) for prior in (earlier, later, earlier, later)]
    assert counts == [2, 1, 0, 0]


def test_a_ledger_of_no_population_is_not_that_of_a_run_that_spent_from_it(trained, clinic):
    clinic()
    ledger = Ledger.read(trained() / "ledger.jsonl")
    population = Population.open(population_folder("clinic"))
    first = ledger.entries[0]
    population.charge(first.event, run=str(ledger.header["run_id"]), number=1)
    with pytest.raises(PopulationError, match="round 1 of another ledger"):
        population.charge_prior(PriorReleases.of(ledger, other_people=False))


def went_on_alone(path: Path, since: int) -> None:
    """A ledger with its first entries, and after them others of the same mechanisms."""
    entries = Ledger.read(path).entries
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[: since + 1]))
    ledger = Ledger.open(path)
    for entry in entries[since:]:
        ledger.append(
            entry.event, round=entry.round, purpose="went on elsewhere", evidence_digest=None
        )


def test_what_a_header_holds_of_it_comes_back(trained):
    ledger = Ledger.read(trained() / "ledger.jsonl")
    prior = PriorReleases.of(ledger, other_people=False)
    record = json.loads(json.dumps(prior.to_json()))
    assert PriorReleases.from_json(record) == prior
    assert [event.count for event in prior.in_bulk] == [2, 1]
    spent = [ledger.entries[1]] * 3  # granted as the run itself spent
    assert prior.missing_in(spent).releases == (prior.releases[0], prior.releases[2])
    booked = [replace(ledger.entries[0], source=prior.releases[0].entry)]
    assert prior.missing_in(booked).releases == prior.releases[1:]


def test_a_filter_taken_before_its_run_was_done_counts_the_whole_plan_of_that_run(
    trained, taking, clinic, tmp_path
):
    """The moment was chosen by who saw the rounds before, so they alone are no bound."""
    clinic()
    folder, cut = trained(), tmp_path / "earlier.jsonl"
    lines = (folder / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    cut.write_bytes(b"".join(lines[:3]))
    plan = planned(RunDirectory.open(folder).config()).schedule
    whole = PriorReleases.of(Ledger.read(folder / "ledger.jsonl"), other_people=False, plan=plan)
    early = PriorReleases.of(Ledger.read(cut), other_people=False, plan=plan)
    blind = PriorReleases.of(Ledger.read(cut), other_people=False)
    assert whole.unrun == () and len(early.unrun) == 1
    assert PriorReleases.from_json(json.loads(json.dumps(early.to_json()))) == early
    config = taking(folder)
    costs = [planned(config, prior).dp_epsilon for prior in (whole, early, blind)]
    assert costs[0] == costs[1] > costs[2]
    assert replace(early, other_people=True).counted == ()
    population = Population.open(population_folder("clinic"))
    assert population.charge_prior(early) == 2, "a population books releases, not plans"


def test_an_export_holds_the_filters_releases_and_says_so(trained, taking, run_small, tmp_path):
    """So that an outsider recomputes the figure that the run states."""
    folder = trained()
    run_small(taking(folder), "two")
    assert main(["ledger", "export", str(tmp_path / "two"), "--out", str(tmp_path / "e.json")]) == 0
    export = json.loads((tmp_path / "e.json").read_text())
    assert sum(group["count"] for group in export["mechanisms"]) == 3 + 2
    assert export["figures"]["dp_epsilon"] == together(folder, tmp_path / "two")
    assert "the figures include it" in export["statement"]


def test_a_guarantee_that_is_asked_for_includes_what_the_filter_cost(trained, taking):
    folder = trained()
    theirs = RunDirectory.open(folder).config()
    config, alone = taking(folder), spending_of(theirs, RunDirectory(folder))
    asked = 1.5 * alone.dp_epsilon
    chosen = chosen_config(config=config, epsilon=asked)
    ledger, plan = Ledger.read(folder / "ledger.jsonl"), planned(theirs).schedule
    prior = PriorReleases.of(ledger, other_people=False, plan=plan)
    spent = planned(chosen, prior).dp_epsilon
    assert 0.998 * asked <= spent <= asked
    with pytest.raises(ConfigError, match="builds on cost the same people"):
        chosen_config(config=config, epsilon=0.9 * alone.dp_epsilon)
    others = taking(folder, privatizer__other_people=True)
    assert planned(chosen_config(config=others, epsilon=asked)).dp_epsilon <= asked
