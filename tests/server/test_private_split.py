"""Runs on sides of a private split through real nodes: who counts, who pays, what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population, PopulationError, PopulationTerms
from fedlens.api.probes import probe_price
from fedlens.cli import main
from fedlens.client.app import build_client_app
from fedlens.client.messages import Description
from fedlens.client.node.policy import NodePolicy
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.mechanism import denominator, release_deviation
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.learning.builds_on import check_earlier
from fedlens.server.ledger.population import population_folder
from fedlens.server.ledger.private_split import FILE, kept_split
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.simulations.federation.apps import open_simulated_users
from fedlens.store import open_store

DELTA = 1e-3
SECRET = {"privacy__fixed_seed": -1}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))


@pytest.fixture
def first(annotated, run_small, finished, tmp_path):
    """The folder of a run about everyone with an annotator, with changes.

    A population has to know of the run itself: then it is trained anew.
    """

    def make(name: str = "first", **changes) -> str:
        if not (tmp_path / name).exists():
            train = run_small if "privacy__population" in changes else finished
            train(annotated(**changes), name)
        return str(tmp_path / name)

    return make


@pytest.fixture
def sided(small_config):
    """The configuration of a run on one side by that run's annotator, with changes."""

    def make(folder: str, side: str = "below", **changes) -> Config:
        short = {"tasks__critic__kind": "frozen", "tasks__critic__rounds": 1}
        return small_config(**short, split__side=side, split__model=folder, **changes)

    return make


@pytest.fixture
def clinic():
    def make(budget: float = 1000.0, order: float = 0.0) -> None:
        terms = PopulationTerms("clinic", "user", DELTA, budget, order=order)
        Population.create(population_folder("clinic"), terms)

    return make


def composed(*folders: Path) -> DifferentialAccountant:
    account = DifferentialAccountant()
    for folder in folders:
        for entry in Ledger.read(folder / "ledger.jsonl").entries:
            account.compose(entry.event)
    return account


def together(*folders: Path) -> float:
    return composed(*folders).epsilon(DELTA).epsilon


def booked() -> float:
    return Population.read(population_folder("clinic")).spent().epsilon


@pytest.mark.parametrize("given", [{"privacy__population": "clinic"}, {}])
@pytest.mark.law("2: only disjoint groups compose in parallel")
def test_two_sides_cost_the_model_and_one_of_them(
    first, sided, run_small, clinic, tmp_path, given, capsys
):
    """Also where the model's run spent from no population: then it is booked with the first."""
    clinic()
    folder = first(**SECRET, **given)
    paid = []
    for side in ("below", "from"):
        config = sided(folder, side, **SECRET, privacy__population="clinic")
        run_small(config, side)
        paid.append(booked())
    assert paid == [together(Path(folder), tmp_path / "below")] * 2
    assert main(["population", "show", "clinic"]) == 0
    assert "side 'from': 1 rounds; those that both sides had count once" in "".join(
        capsys.readouterr()
    )
    for side in ("below", "from"):  # alone, each counts its own and the model
        directory = RunDirectory.open(tmp_path / side)
        assert spending_of(directory.config(), directory).dp_epsilon == paid[0]


@pytest.mark.parametrize(
    "changes",
    [
        {"split__threshold": 0.6},
        {"split__records": 3},
        {"split__rule": "confidence"},
        {"model": "another"},
        {"split__side": "below"},
    ],
    ids=str,
)
def test_runs_that_are_not_the_two_sides_of_one_split_add_up(
    first, sided, run_small, clinic, tmp_path, changes
):
    clinic()
    folder = first(**SECRET)
    run_small(sided(folder, **SECRET, privacy__population="clinic"), "one")
    paid = [Path(folder), tmp_path / "one", tmp_path / "two"]
    changes = dict(changes)
    if changes.pop("model", ""):
        paid.append(Path(first("another", seed=5, **SECRET)))
    config = sided(str(paid[-1] if len(paid) > 3 else folder), "from", **SECRET)
    flat = {key.replace("__", "."): value for key, value in changes.items()}
    run_small(config.updated({**flat, "privacy.population": "clinic"}), "two")
    assert booked() == pytest.approx(together(*paid))


def test_a_population_that_cannot_pay_refuses_and_the_second_side_still_fits(
    first, sided, run_small, clinic, tmp_path
):
    folder = first(**SECRET)
    run_small(sided(folder, **SECRET), "measure")
    needed = composed(Path(folder), tmp_path / "measure").rdp(DELTA)
    clinic(needed.epsilon * (1 + 1e-9), needed.order)
    told = {**SECRET, "privacy__population": "clinic"}
    for side in ("below", "from"):
        assert run_small(sided(folder, side, **told), side).stopped is None
    more = sided(folder, split__threshold=0.5, **told)
    assert "budget" in str(run_small(more, "more").stopped)
    annotator = {"tasks.annotator.kind": "annotator", "schedule": "critic annotator"}
    with pytest.raises(PopulationError, match="too little left for this run"):
        check_earlier(more.updated(annotator))


def test_a_side_that_holds_everyone_learns_what_a_run_about_everyone_does(
    first, sided, run_small, small_config
):
    """And the other side nothing but noise. The same seed gives the same model again."""
    folder = first(tasks__annotator__rate=0.01)  # one that is sure of nothing
    plain = small_config(tasks__critic__kind="frozen", tasks__critic__rounds=1)
    whole = run_small(plain, "whole").model_sha256
    everyone = {"split__rule": "confidence", "split__threshold": 1e-12}
    assert run_small(sided(folder, "from", **everyone), "all").model_sha256 == whole
    assert run_small(sided(folder, "below", **everyone), "none").model_sha256 != whole
    sides = [run_small(sided(folder), name).model_sha256 for name in ("once", "again")]
    assert sides[0] == sides[1]


def test_a_run_goes_on_with_the_model_that_it_took(first, sided, run_small, monkeypatch, tmp_path):
    folder = first()
    config = sided(folder)
    whole = run_small(config, "whole").model_sha256
    save = RunDirectory.save_state

    def killed(directory, snapshot):
        save(directory, snapshot)
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "save_state", killed)
    with pytest.raises(KeyboardInterrupt):
        run_small(config)
    monkeypatch.setattr(RunDirectory, "save_state", save)
    shutil.rmtree(folder)
    first(seed=9)  # and another one lies there now
    assert run_small(config).model_sha256 == whole


def test_another_model_put_in_place_of_the_kept_one_is_told(first, sided, run_small, tmp_path):
    config = sided(first())
    run_small(config)
    run_small(sided(first("other", seed=9)), "elsewhere")
    shutil.copy(tmp_path / "elsewhere" / FILE, tmp_path / "run" / FILE)
    with pytest.raises(ValueError, match="another side of a split"):
        run_small(config)
    (tmp_path / "run" / FILE).write_bytes(b"x")
    with pytest.raises(RunDirectoryError, match="damaged"):
        run_small(config)


def test_whom_it_is_about_is_said_wherever_the_guarantee_is(
    first, sided, run_small, tmp_path, capsys
):
    outcome = run_small(sided(first(**SECRET), **SECRET))
    said = "Only users on one side of a private split count"
    with open_store(outcome.store) as store:
        run = store.run(outcome.run_id)
        assert said in run.guarantee and "below 0.7 (of up to 16 records)" in run.guarantee
        assert all(
            "USERS ON ONE SIDE OF A SPLIT" in b.provenance for b in store.batches(outcome.run_id)
        )
    assert main(["ledger", "show", str(tmp_path / "run")]) == 0
    assert said in "".join(capsys.readouterr())
    header = Ledger.read(tmp_path / "run" / "ledger.jsonl").header
    split = kept_split(RunDirectory.open(tmp_path / "run"))
    assert header["split"] == split.users == f"split:{split.split.identity}=below"


def test_a_node_may_forbid_it_and_nothing_is_spent(first, sided, run_small, tmp_path):
    forbids = NodePolicy(forbid_splits=True)
    app = build_client_app(open_simulated_users, lambda _: forbids)
    config = sided(first())
    with pytest.raises(EnrolmentError, match="forbid-splits"):
        run_small(config, app=app)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()
    assert not Description(partition=0, users=1, shape=(1, 8, 8), classes=2).splits  # older nodes
    assert NodePolicy.of({"forbid-splits": True}) == forbids


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"classes": 12}, "that run has 12 classes of images"),
        ({"shape": [1, 32, 32]}, r"images \(1, 32, 32\), this one 10 of \(1, 28, 28\)"),
    ],
)
def test_a_model_of_other_images_or_classes_is_refused_before_anything_is_spent(
    first, sided, run_small, monkeypatch, tmp_path, facts, said
):
    folder, load = first(), RunDirectory.load_state

    def other(directory):
        snapshot = load(directory)
        return snapshot and type(snapshot)(
            snapshot.round, snapshot.arrays, {**snapshot.facts, **facts}
        )

    monkeypatch.setattr(RunDirectory, "load_state", other)
    with pytest.raises(ConfigError, match=said):
        run_small(sided(folder))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_runs_that_no_split_can_be_made_of_are_told(
    first, sided, run_small, small_config, tmp_path
):
    folder = first()
    cases = [
        (sided("runs/first"), "give the absolute path"),
        (sided(str(tmp_path / "nowhere")), "holds no run"),
        (sided(folder, **SECRET), "without noise or with repeatable noise"),
    ]
    run_small(small_config(tasks__critic__kind="frozen", tasks__critic__rounds=1), "plain")
    cases.append((sided(str(tmp_path / "plain")), "has no annotator"))
    config = sided(folder)
    more = {"tasks.annotator.kind": "annotator", "schedule": "critic annotator"}
    small = {"tasks.annotator.components": 6, "tasks.annotator.features": "orientations"}
    short = {"tasks.annotator.rounds": 1, "tasks.annotator.guided_steps": 2}
    run_small(config.updated({**more, **small, **short}), "side")
    cases.append((sided(str(tmp_path / "side")), "itself on one side"))
    for config, said in cases:
        with pytest.raises(ConfigError, match=said):
            check_earlier(config)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"split.model": ""}, "split.side"),
        ({"split.threshold": 0.0}, "split.threshold"),
        ({"split.records": 0}, "split.records"),
        ({"split.share": 0.0}, "split.share"),
        ({"split.side": "above"}, "split.side"),
        ({"privacy.unit": "record", "privacy.delta": 1e-6}, "privacy.unit"),
        ({"data.slice": "app=1"}, "data.slice"),
        ({"privatizer.kind": "trained", "privatizer.trained_by": "samples"}, "privatizer.kind"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(sided, settings, said):
    with pytest.raises(ConfigError, match=said):
        sided("/any").updated(settings)


def test_the_declared_share_scales_the_fixed_denominator_and_the_noise_with_it(sided):
    whole, part = sided("/any"), sided("/any", split__share=0.25)
    task = whole.tasks["critic"]
    assert denominator(part, task) == denominator(whole, task) / 4
    assert release_deviation(part, task) == pytest.approx(4 * release_deviation(whole, task))
    unsplit = part.updated({"split.side": "none"})
    assert denominator(unsplit, task) == denominator(whole, task)


def test_what_a_guarantee_says_of_a_split_is_no_more_than_is_kept(
    first, sided, run_small, tmp_path
):
    """The server sees nodes' sums before the noise: no text may say that devices tell no one."""
    run_small(sided(first(**SECRET), **SECRET))
    kept = kept_split(RunDirectory.open(tmp_path / "run"))
    assert "No release says who they are" in kept.cost and "devices" not in kept.cost


def test_a_probe_asks_everyone(sided):
    with pytest.raises(WrongUse, match="probe the run that it is split by, /any"):
        probe_price(sided("/any"), "intensity", epsilon=0.1)


def test_the_run_that_it_builds_on_is_not_set_aside(first, capsys):
    folder = first(**SECRET)
    given = ("split.side=below", f"split.model={folder}", "data.users=40", "data.nodes=2")
    sets = [word for text in given for word in ("--set", text)]
    assert main(["simulate", *sets, "--out", folder, "--overwrite", "--no-student"]) == 2
    assert "split.model names" in capsys.readouterr().err
    assert RunDirectory(Path(folder)).exists()


@pytest.mark.law("2: nothing tells on which side a user is")
def test_nothing_in_the_store_or_the_ledger_tells_how_many_are_on_a_side(
    first, sided, run_small, tmp_path
):
    """Equal noise, equal releases: with a side that holds no one, lines have the same fields."""
    folder, seen = first(), []
    for threshold in (1e-12, 1.0):
        config = sided(folder, split__rule="confidence", split__threshold=threshold)
        run_small(config, f"run{threshold}")
        entries = Ledger.read(tmp_path / f"run{threshold}" / "ledger.jsonl").entries
        seen.append([(e.round, e.event, e.purpose, e.users) for e in entries])
    assert seen[0] == seen[1] and seen[0]
