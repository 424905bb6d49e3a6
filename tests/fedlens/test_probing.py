"""`fedlens.probe` and the command: price, answer, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from shutil import copytree

import pytest

import fedlens
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import OutOfBudget, Population
from fedlens.accountant.probing import probe_event
from fedlens.cli import main
from fedlens.foundation.errors import ExitStatus, FedlensError, WrongUse
from fedlens.server.ledger.population import population_folder

ASKED = ["--probe", "label_share:3", "--epsilon", "1"]


def last_line(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def clinic(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    terms = ["--epsilon", "3", "--delta", "1e-3", "--unit", "user", "--probe-epsilon", "1.2"]
    assert main(["population", "create", "clinic", *terms, "--slices", "app_version"]) == 0
    return Population.read(population_folder("clinic"))


def test_the_price_is_told_beforehand_and_nothing_is_spent(tiny_run, capsys):
    before = set(tiny_run.path.parent.iterdir())  # other tests ask the same run
    price = fedlens.probe_price(tiny_run, "label_share:3", epsilon=1.0)
    assert price.users == 30 and price.delta == 1e-3 and price.together > price.spent > 0
    assert main(["probe", str(tiny_run.path), *ASKED, "--price", "--json"]) == 0
    told = last_line(capsys)
    assert told["half_width"] == price.half_width and told["refusal"] is None
    assert set(tiny_run.path.parent.iterdir()) == before


def test_an_answer_has_its_interval_and_its_cost_and_lies_beside_the_run(tiny_run, capsys):
    price = fedlens.probe_price(tiny_run, "label_share:3", epsilon=1.0)
    assert main(["probe", str(tiny_run.path), *ASKED, "--json"]) == 0
    told = last_line(capsys)
    assert told["low"] <= told["value"] <= told["high"] and told["epsilon"] <= 1
    assert told["high"] - told["low"] <= 2 * price.half_width * (1 + 1e-9)
    asked = Path(told["run_dir"])
    assert asked.parent == tiny_run.path.parent and asked.name.startswith("run-probe-")
    assert json.loads((asked / "probe.json").read_text()) == told
    (entry,) = Ledger.verify(asked / "ledger.jsonl")
    assert entry.purpose == "probe"
    # the next one counts it
    again = fedlens.probe_price(tiny_run, "intensity", epsilon=1.0)
    assert again.spent == pytest.approx(told["together"])


def test_a_measure_comes_back_in_its_own_units(tiny_run, tmp_path):
    found = fedlens.probe(tiny_run, "tilt", epsilon=20.0, out=tmp_path / "tilt")
    assert -90 <= found.low < found.value < found.high <= 90
    assert "degrees" in found.says


def test_the_population_pays_and_refuses_what_its_owner_does_not_leave_to_probes(
    tiny, clinic, tmp_path, capsys
):
    from fedlens.api.simulations import chosen_config

    config = chosen_config(settings={**tiny, "privacy.population": "clinic"})
    found = fedlens.probe(config, "intensity", epsilon=1.0, out=tmp_path / "one")
    spent = Population.read(population_folder("clinic"))
    assert spent.spent_on_probes().epsilon == pytest.approx(found.epsilon)
    price = fedlens.probe_price(config, "intensity", epsilon=1.0)
    assert "owner leaves to probes" in price.refusal and price.budget == 3
    with pytest.raises(OutOfBudget, match="owner leaves to probes"):
        fedlens.probe(config, "intensity", epsilon=1.0, out=tmp_path / "two")
    assert not (tmp_path / "two").exists()
    assert len(Population.read(population_folder("clinic")).ledger) == 1
    named = tmp_path / "own.toml"
    named.write_text(config.to_toml())
    asked = ["probe", str(named), *ASKED, "--price"]
    assert main(asked) == ExitStatus.OUT_OF_BUDGET
    assert "REFUSED" in capsys.readouterr().out
    assert main(["population", "show", "clinic", "--json"]) == 0
    shown = last_line(capsys)
    assert shown["probe_epsilon"] == 1.2 and shown["slices"] == "app_version"


def test_a_probe_that_an_officer_has_to_approve_is_asked_once_it_is(tiny, clinic, tmp_path, capsys):
    """Once: neither the command nor Python asks it before or again, and no folder is left."""
    from fedlens.api.simulations import chosen_config

    config = chosen_config(settings={**tiny, "privacy.population": "clinic"})
    named, ward = tmp_path / "own.toml", Population.open(population_folder("clinic"))
    named.write_text(config.to_toml())
    ward.set_officer_rule(0.5, 1.0, by="otto")
    assert main(["probe", str(named), *ASKED, "--price"]) == ExitStatus.OUT_OF_BUDGET
    assert "WAITS: a privacy officer approves probes" in capsys.readouterr().out

    def ask(out):
        return fedlens.probe(config, "intensity", epsilon=0.6, out=tmp_path / out)

    with pytest.raises(OutOfBudget, match="page Privacy"):
        ask("one")
    price = fedlens.probe_price(config, "intensity", epsilon=0.6)
    assert [one.event.noise_multiplier for one in ward.waiting()] == [price.noise_multiplier]
    ward.approve(probe_event(price.noise_multiplier), question="probe label_share:1", by="otto")
    with pytest.raises(OutOfBudget, match="page Privacy"):
        ask("of another question")
    ward.approve(probe_event(price.noise_multiplier), question="probe intensity", by="otto")
    ask("approved")
    with pytest.raises(OutOfBudget, match="page Privacy"):
        ask("two")
    assert not (tmp_path / "one").exists() and not (tmp_path / "two").exists()
    assert len(Population.read(population_folder("clinic")).ledger) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--probe", "nothing", "--epsilon", "1"], "there is no probe 'nothing'"),
        (["--probe", "recognised", "--epsilon", "1"], "name a run with an annotator"),
        (["--price", "--probe", "recognised", "--epsilon", "1"], "name a run with an annotator"),
        (["--probe", "intensity", "--epsilon", "0"], "epsilon"),
        (["--probe", "intensity"], "--epsilon: nothing is given"),
        (["--price", "--epsilon", "1"], "--probe: nothing is given"),
        (["--probe", "label_share:77", "--epsilon", "1"], "there is no class 77"),
        (["--price", "--probe", "label_share:77", "--epsilon", "1"], "there is no class 77"),
        (["--price", "--probe", "unchanged:saturation", "--epsilon", "1"], "these images are grey"),
    ],
)
def test_what_cannot_be_asked_is_one_message_and_leaves_no_folder(
    tiny_run, arguments, said, capsys
):
    before = set(tiny_run.path.parent.iterdir())
    assert main(["probe", str(tiny_run.path), *arguments]) == ExitStatus.WRONG_USE
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1
    assert set(tiny_run.path.parent.iterdir()) == before


def test_every_epsilon_is_told_with_its_delta(tiny_run, capsys):
    asked = ["probe", str(tiny_run.path), *ASKED, "--delta", "1e-4"]
    assert main([*asked, "--price"]) == 0 and main(asked) == 0
    figures = [line for line in capsys.readouterr().out.splitlines() if "ε" in line]
    assert len(figures) == 5 and all("at δ = " in line for line in figures)


def test_a_run_of_records_or_with_a_privatizer_is_not_probed(tiny):
    from fedlens.api.simulations import chosen_config

    record = chosen_config(settings={**tiny, "privacy.unit": "record", "privacy.delta": 1e-6})
    with pytest.raises(WrongUse, match="asks users"):
        fedlens.probe_price(record, "intensity", epsilon=1.0)
    hidden = chosen_config(
        settings={
            **tiny,
            "privatizer.kind": "trained",
            "privatizer.trained_by": "samples",
            "privatizer.sensitive_attribute": "x",
        }
    )
    with pytest.raises(WrongUse, match="without a privatizer"):
        fedlens.probe_price(hidden, "intensity", epsilon=1.0)


def test_the_library_is_listed(capsys):
    assert main(["probe", "--list", "--json"]) == 0
    assert "better_after" in {one["name"] for one in last_line(capsys)["probes"]}


def test_a_task_of_the_same_name_changes_nothing_that_was_priced(tiny):
    from fedlens.api.probes import probe_config
    from fedlens.api.simulations import chosen_config

    own = {"kind": "probe", "rounds": 3, "sampling_rate": 0.5, "clipping_norm": 0.2}
    named = {"schedule": "probe", **{f"tasks.probe.{name}": value for name, value in own.items()}}
    asked = probe_config(chosen_config(settings=tiny).updated(named), "intensity", 5.0, "")
    (task,) = asked.planned.values()
    assert (task.rounds, task.sampling_rate, task.clipping_norm) == (1, 1.0, 1.0)


@pytest.mark.law("3: a probe is priced and charged like a task")
def test_of_a_run_that_ended_early_a_probe_counts_the_whole_plan(tiny_run, tmp_path):
    cut = tmp_path / "cut"
    copytree(tiny_run.path, cut)
    whole = fedlens.probe_price(cut, "intensity", epsilon=1.0).spent
    lines = (cut / "ledger.jsonl").read_text().splitlines(keepends=True)
    (cut / "ledger.jsonl").write_text("".join(lines[:-1]))
    spent = fedlens.probe_price(cut, "intensity", epsilon=1.0).spent
    assert len(lines) > 2 and spent == pytest.approx(whole)


@pytest.fixture
def looking(tiny):
    """Settings of a run with an annotator."""
    return {
        **tiny,
        "schedule": "look critic",
        "tasks.look.kind": "annotator",
        "tasks.look.rounds": 1,
        "tasks.look.noise_multiplier": 3.0,
    }


def test_together_counts_what_another_runs_network_cost_once(tiny_run, looking, tmp_path, capsys):
    """Users may be the same, and their answers then build on what that run released of them."""
    model = fedlens.simulate("demo", out=tmp_path / "model", settings=looking, student=False)

    def price(run, probe="recognised", **more):
        return fedlens.probe_price(run, probe, epsilon=0.5, **more)

    told = price(tiny_run, model=model)
    assert told.spent > max(price(tiny_run, "intensity").spent, price(model).spent)
    assert price(tiny_run, "intensity", model=model) == price(tiny_run, "intensity")
    assert price(model, model=model.path) == price(model)
    words = ["probe", str(tiny_run.path), "--probe", "recognised", "--epsilon", "0.5"]
    assert main([*words, "--model", str(model.path), "--price", "--json"]) == 0
    assert last_line(capsys)["together"] == told.together
    out = ["--out", str(tmp_path / "asked")]
    assert main([*words, "--model", str(model.path), *out, "--json"]) == 0
    assert last_line(capsys)["together"] == told.together


@pytest.mark.law("3: a probe is priced and charged like a task")
def test_a_network_without_noise_is_not_asked_under_a_guarantee(looking, tmp_path):
    """It may tell of single people, and so may what users answer about it."""
    noised = fedlens.simulate("demo", out=tmp_path / "noised", settings=looking, student=False)
    found = fedlens.probe(noised, "recognised", epsilon=0.5)
    told = fedlens.open_run(found.run_dir).statement()
    assert "annotator of run noised" in told and "leave it out" in told
    bare = {**looking, "tasks.look.noise_multiplier": 0.0, "tasks.critic.noise_multiplier": 0.0}
    plain = fedlens.simulate("demo", out=tmp_path / "plain", settings=bare, student=False)
    with pytest.raises(FedlensError, match=r"tasks.probe.model.*without noise"):
        fedlens.probe(plain, "recognised", epsilon=0.5)
    with pytest.raises(FedlensError, match=r"tasks.probe.model.*without noise"):
        fedlens.probe_price(plain, "recognised", epsilon=0.5)
    assert not (tmp_path / "plain-probe-1" / "ledger.jsonl").exists()
