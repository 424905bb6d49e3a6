"""A run whose nodes look through the filter of another run: taken once, checked, and kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import Context, RecordDict
from run_tasks import ANNOTATED, FOCUSED

from fedlens.accountant.wording import shown
from fedlens.cli import build_parser, main
from fedlens.cli.simulate import config_of
from fedlens.client.messages import Description
from fedlens.client.messages import TrainRequest as Request
from fedlens.client.users.protocol import LocalData
from fedlens.client.users.records import sound_records
from fedlens.client.users.views import FilteredUsers
from fedlens.models.weights import to_vector
from fedlens.server.app import app
from fedlens.server.config.schedule import planned_epsilon, scheduled
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.federation.contract_check import agree_schema, misfit
from fedlens.server.federation.enrolment import Federation
from fedlens.server.federation.roster import Roster
from fedlens.server.learning.learner import Learner
from fedlens.server.learning.pretrained_filter import check_filter, pretrained_filter
from fedlens.server.learning.privatizer import kept_filter_weights
from fedlens.server.ledger.run_ledger import RoundCharge, spending_of
from fedlens.server.round.publication import Publication
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.tasks.privatizer import PrivatizerTask
from fedlens.simulations.audits.stage import unhidden
from fedlens.simulations.engine import measure_student
from fedlens.simulations.federation.apps import node_users
from fedlens.simulations.run_artifacts import kept_leakage, kept_run_filter, kept_sampler
from fedlens.store import SampleFilter, open_store

DENSE = {
    "privatizer.network": "dense",
    "privatizer.width": 4,
}
TRAINS = {
    **DENSE,
    "privatizer.kind": "trained",
    "privatizer.trained_by": "rounds",
    "tasks.privatizer.rounds": 1,
    "tasks.privatizer.adversary_width": 4,
    "tasks.privatizer.batch": 5,
    "tasks.critic.kind": "frozen",
    "tasks.critic.rounds": 1,
}


@pytest.fixture
def first(small_config, run_small, finished, tmp_path):
    """The folder of a run that trained a filter, with changes; ``anew`` where it is patched."""

    def make(name: str = "first", *, anew: bool = False, **changes) -> str:
        train = run_small if anew else finished
        train(small_config(**{**_keys(TRAINS), **changes}), name)
        return str(tmp_path / name)

    return make


@pytest.fixture
def second(small_config):
    """The configuration of a run that takes a filter, with changes."""

    def make(folder: str, *more: dict[str, object], **changes) -> Config:
        given = {**DENSE, "privatizer.kind": "pretrained", "privatizer.path": folder}
        settings = {"tasks.critic.kind": "frozen", **given}
        for tables in more:
            settings |= tables
        return small_config(**{**_keys(settings), **changes})

    return make


def _keys(settings: dict[str, object]) -> dict[str, object]:
    return {key.replace(".", "__"): value for key, value in settings.items()}


def kept(folder) -> np.ndarray:
    directory = RunDirectory.open(Path(folder))
    vector = kept_filter_weights(directory.config(), directory.load_state().arrays)
    assert vector is not None
    return vector


def test_every_image_of_a_run_with_a_pretrained_filter_goes_through_it(
    first, second, run_small, monkeypatch, tmp_path
):
    shown, released = [], FilteredUsers._released
    monkeypatch.setattr(
        FilteredUsers, "_released", lambda s, *given: shown.append(s) or released(s, *given)
    )
    folder = first()
    shown.clear()
    config = second(folder)
    outcome = run_small(config)
    assert outcome.rounds == 3
    users = {(id(s.users), id(s)) for s in shown}
    # each user's images are filtered once, and on each node the filter is tried on none
    assert len(shown) == 40 + 2 and len(users) == 2
    assert all(np.array_equal(to_vector(s.network), kept(folder)) for s in shown)
    assert np.array_equal(kept(tmp_path / "run"), kept(folder))
    # it is paid for as a run without a filter is, and has no task of its own
    plain = config.updated({"privatizer.kind": "none"})
    assert [task.name for task in scheduled(config)] == ["critic"]
    assert planned_epsilon(config, 1e-3) == planned_epsilon(plain, 1e-3)


def test_what_comes_of_it_is_read_as_of_any_run(first, second, run_small, tmp_path):
    config = second(first())
    outcome = run_small(config)
    directory = RunDirectory.open(tmp_path / "run")
    network, shape = kept_run_filter(directory.path)
    assert shape == (1, 28, 28) and not network.training
    assert kept_leakage(directory) is None
    assert kept_sampler(directory).classes == 10
    assert 0 <= measure_student(config, directory, images=50, epochs=1).accuracy <= 1
    with open_store(outcome.store) as store:
        assert store.samples(SampleFilter(run_id=outcome.run_id, purpose="curated"))


def test_a_pretrained_filter_serves_all_tasks_and_pairs(
    first, second, run_small, few_images_for_the_frame, tmp_path
):
    config = second(first(), {**ANNOTATED, **FOCUSED}, privatizer__condition=True)
    assert run_small(config).rounds == 5
    assert kept_sampler(RunDirectory.open(tmp_path / "run")).classes == 20


def test_a_filter_that_is_told_who_consents_is_told_so_again(first, second, run_small, tmp_path):
    unet = {"privatizer__network": "unet", "privatizer__width": 2, "privatizer__consenting": 0.5}
    folder = first(**unet)
    with pytest.raises(ConfigError, match=r"privatizer\.consenting = 0\.0 .* is told who consents"):
        run_small(second(folder, **{**unet, "privatizer__consenting": 0.0}), "deaf")
    assert run_small(second(folder, **unet)).rounds == 3
    assert np.array_equal(kept(tmp_path / "run"), kept(folder))


@pytest.mark.parametrize("consenting", [0.0, 0.5])
def test_a_filter_of_samples_serves_another_run(
    small_config, second, run_small, tmp_path, a_filter_in_no_time, consenting
):
    code = {"privatizer__network": "code", "privatizer__width": 2}
    code["privatizer__consenting"] = consenting
    made = {
        "privatizer__kind": "trained",
        "privatizer__trained_by": "samples",
        "privatizer__steps": 2,
        **code,
    }
    run_small(small_config(tasks__critic__kind="frozen", tasks__critic__rounds=1, **made), "first")
    assert run_small(second(str(tmp_path / "first"), **code)).rounds == 3
    assert np.array_equal(kept(tmp_path / "run"), kept(tmp_path / "first"))


def test_a_run_goes_on_without_the_folder_that_its_filter_came_from(
    first, second, run_small, monkeypatch, tmp_path
):
    whole = run_small(second(first()), "whole").model_sha256
    folder = first("other")
    shutil.copytree(tmp_path / "first", folder, dirs_exist_ok=True)  # the same filter elsewhere
    config, save, cut = second(folder), RunDirectory.save_state, []

    def once(directory, snapshot):
        save(directory, snapshot)
        if not cut and directory.path.name == "run":
            cut.append(snapshot.round)
            raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "save_state", once)
    with pytest.raises(KeyboardInterrupt):
        run_small(config)
    shutil.rmtree(folder)
    assert run_small(config).model_sha256 == whole


def test_the_filter_is_kept_before_anything_is_spent(
    first, second, run_small, monkeypatch, tmp_path
):
    charge, kept_by_then = RoundCharge.pay, []

    def looked(paid, *arguments):
        kept_by_then.append((tmp_path / "run" / "checkpoint" / "filter.safetensors").exists())
        return charge(paid, *arguments)

    config = second(first())
    monkeypatch.setattr(RoundCharge, "pay", looked)
    run_small(config)
    assert kept_by_then == [True] * 3


@pytest.mark.parametrize("folder", ["gone", "changed"])
def test_what_the_other_run_does_later_changes_nothing(
    first, second, run_small, monkeypatch, tmp_path, folder
):
    config, save = second(first()), RunDirectory.save_state
    whole = run_small(config, "whole").model_sha256

    def killed(directory, snapshot):
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "save_state", killed)
    with pytest.raises(KeyboardInterrupt):
        run_small(config)
    monkeypatch.setattr(RunDirectory, "save_state", save)
    shutil.rmtree(tmp_path / "first")
    if folder == "changed":
        first(privacy__fixed_seed=9)
    assert run_small(config).model_sha256 == whole


def test_a_damaged_copy_of_the_filter_is_told(first, second, run_small, tmp_path):
    config = second(first())
    run_small(config)
    (tmp_path / "run" / "checkpoint" / "filter.safetensors").write_bytes(b"x")
    with pytest.raises(RunDirectoryError, match="is damaged; restore it from a backup"):
        run_small(config)


UNFIT = [
    ({"privatizer__width": 5}, r"privatizer\.width = 5 does not fit .* has 4"),
    ({"privatizer__network": "unet"}, r"privatizer\.network = 'unet' does not fit .*'dense'"),
    (
        {"privatizer__sensitive_attribute": "column"},
        r"privatizer\.sensitive_attribute = 'column' does not fit",
    ),
    ({"privacy__fixed_seed": -1}, "trained without noise or with repeatable noise"),
]


@pytest.mark.parametrize(("changes", "said"), UNFIT)
def test_another_kind_of_filter_is_refused_before_anything_is_spent(
    first, second, run_small, tmp_path, changes, said
):
    config = second(first(), **changes)
    with pytest.raises(ConfigError, match=said):
        check_filter(config)
    if "privatizer__sensitive_attribute" not in changes:  # which the nodes do not know
        with pytest.raises(ConfigError, match=said):
            run_small(config)
        assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_a_filter_without_noise_serves_runs_that_promise_nothing(first, second, run_small):
    folder = first(tasks__privatizer__noise_multiplier=0.0, privacy__fixed_seed=-1)
    with pytest.raises(ConfigError, match="without noise"):
        run_small(second(folder, privacy__fixed_seed=-1), "private")
    assert run_small(second(folder, tasks__critic__noise_multiplier=0.0)).rounds == 3


def test_folders_that_have_no_filter_are_told(first, second, small_config, run_small, tmp_path):
    for folder in (str(tmp_path / "nowhere"), "/no such run"):
        with pytest.raises(ConfigError, match=r"privatizer\.path = .* holds no run"):
            run_small(second(folder), f"of {Path(folder).name}")
        assert not (tmp_path / f"of {Path(folder).name}" / "ledger.jsonl").exists()
    run_small(small_config(tasks__critic__kind="frozen"), "plain")
    with pytest.raises(ConfigError, match="has no filter, or is not done"):
        check_filter(second(str(tmp_path / "plain")))
    directory = RunDirectory.create(tmp_path / "coloured", second(first()))
    with pytest.raises(ConfigError, match=r"is of images \[1, 28, 28\], not \(3, 32, 32\)"):
        pretrained_filter(directory.config(), (3, 32, 32), directory)


def test_the_command_says_it_in_one_line(first, tmp_path, capsys):
    out = ["--out", str(tmp_path / "new"), "--no-student"]
    settings = "privatizer.kind=pretrained", f"privatizer.path={tmp_path / 'no'}"
    given = [word for text in settings for word in ("--set", text)]
    assert main(["simulate", "--preset", "demo", *given, *out]) != 0
    said = capsys.readouterr().err.strip().splitlines()
    assert not (tmp_path / "new").exists(), "what is refused leaves no run behind"
    assert "holds no run" in said[-1] and not any("Traceback" in line for line in said)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "pretrained"}, r"privatizer\.path is missing: give it"),
        ({"kind": "pretrained", "path": ""}, r"privatizer\.path = ''"),
        ({"kind": "pretrained", "path": "x", "rounds": 1}, "unknown setting 'privatizer.rounds'"),
        ({"kind": "pretrained", "path": "x", "steps": 5}, "unknown setting 'privatizer.steps'"),
        (
            {"kind": "trained", "trained_by": "samples", "path": "x"},
            "unknown setting 'privatizer.path'",
        ),
        ({"path": "x"}, "unknown setting 'privatizer.path'"),
    ],
)
def test_settings_of_another_kind_are_refused(settings, said):
    with pytest.raises(ConfigError, match=said):
        Config().updated({f"privatizer.{key}": value for key, value in settings.items()})


def test_a_run_with_a_pretrained_filter_trains_none_of_its_own(second):
    with pytest.raises(ConfigError, match=r"\[tasks.privatizer\] and .* belong together"):
        second("/x", {"tasks.privatizer.rounds": 1})


def test_nodes_need_not_know_a_sensitive_attribute_that_is_hidden_already(second):
    config = second("/x", data__users=2, data__nodes=1)
    told = Description(partition=0, users=2, shape=(1, 28, 28), classes=10)
    assert agree_schema([told], config).sensitive_classes == 0
    assert misfit(told, agree_schema([told], config), config) is None
    conditioned = config.updated({"privatizer.condition": True})
    schema = agree_schema([told], conditioned)
    assert "does not know" in misfit(told, schema, conditioned)


def test_requests_carry_the_filter_and_not_where_it_lay(first, second, run_small, monkeypatch):
    folder, seen = first(), []
    read = Request.from_record.__func__
    monkeypatch.setattr(
        Request, "from_record", classmethod(lambda c, r: seen.append(read(c, r)) or seen[-1])
    )
    run_small(second(folder))
    told = [{**r.settings, **r.filter.model_dump()} for r in seen]
    assert seen and all(folder not in map(str, settings.values()) for settings in told)
    assert all("filter" in r.weights for r in seen)


def test_canaries_try_the_mechanism_of_such_a_run(second):
    assert not unhidden(second("/x")).privatizer.active


def test_a_run_is_not_begun_without_the_filter_that_it_is_to_have(second):
    federation = Federation(Roster((7,), (40,)), (1, 28, 28), 10)
    with pytest.raises(ValueError, match="without the pretrained filter"):
        Learner(second("/x"), federation)


def test_a_filter_that_is_not_done_learning_is_refused(first, second, run_small, monkeypatch):
    """Such a filter passes images nearly as they are."""
    save = RunDirectory.save_state

    def killed_after_one(directory, snapshot):
        save(directory, snapshot)
        raise KeyboardInterrupt

    monkeypatch.setattr(RunDirectory, "save_state", killed_after_one)
    with pytest.raises(KeyboardInterrupt):
        first("midway", anew=True, tasks__privatizer__rounds=3, tasks__privatizer__lead=1)
    monkeypatch.setattr(RunDirectory, "save_state", save)
    with pytest.raises(ConfigError, match="not done with it yet"):
        check_filter(second(_beside(first(), "midway")))


def test_a_filter_whose_rounds_were_lost_is_refused(first, second, monkeypatch):
    monkeypatch.setattr(PrivatizerTask, "ready", True)  # so that its run ends all the same
    monkeypatch.setattr(PrivatizerTask, "apply_release", lambda self, release: {})
    folder = first(anew=True)
    with pytest.raises(ConfigError, match="not done with it yet"):
        check_filter(second(folder))


def _beside(folder: str, name: str) -> str:
    return str(Path(folder).with_name(name))


def test_a_filter_is_taken_from_the_run_that_trained_it(first, second, run_small, tmp_path):
    run_small(second(first()), "second")
    with pytest.raises(ConfigError, match=r"took its filter from another .* name the one .*/first"):
        check_filter(second(str(tmp_path / "second")))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda vector: vector[:-1], "it does not fit its network: .*; train it again"),
        (lambda vector: vector * np.float32("inf"), "not finite; train it again"),
    ],
)
def test_a_filter_that_no_network_takes_is_refused_before_anything_is_spent(
    first, second, run_small, monkeypatch, tmp_path, change, said
):
    folder, load = first(), RunDirectory.load_state

    def other(directory):
        found = load(directory)
        if found is not None and directory.path.name == "first":
            found.arrays["tasks/privatizer/mean"] = change(found.arrays["tasks/privatizer/mean"])
        return found

    monkeypatch.setattr(RunDirectory, "load_state", other)
    with pytest.raises(ConfigError, match=said):
        run_small(second(folder))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


def test_what_the_filter_cost_is_said_wherever_the_guarantee_is(
    first, second, run_small, tmp_path, capsys
):
    folder = first(privacy__fixed_seed=-1)
    config = second(folder, privacy__fixed_seed=-1)
    outcome = run_small(config)
    trained = spending_of(RunDirectory.open(Path(folder)).config(), RunDirectory(Path(folder)))
    cost = f"whose training cost DP ε = {shown(trained.dp_epsilon)} at δ = 0.001 alone; the fig"
    with open_store(outcome.store) as store:
        assert cost in store.run(outcome.run_id).guarantee
    directory = RunDirectory.open(tmp_path / "run")
    before_its_end = f"sqlite:///{tmp_path / 'other.db'}"
    with open_store(before_its_end, create=True) as store:
        Publication(config, directory, store, "another", "run").enter_run()
        assert cost in store.run("another").guarantee
    assert main(["ledger", "show", str(tmp_path / "run")]) == 0
    assert cost in "".join(capsys.readouterr())


def test_a_relative_path_is_made_absolute_by_the_command_and_refused_by_the_server(
    second, tmp_path, monkeypatch
):
    with pytest.raises(ConfigError, match="give the absolute path"):
        check_filter(second("runs/first"))
    monkeypatch.chdir(tmp_path)
    given = ["--set", "privatizer.kind=pretrained", "--set", "privatizer.path=runs/first"]
    args = build_parser().parse_args(["simulate", *given])
    assert config_of(args).privatizer.path == str(tmp_path / "runs" / "first")


def test_through_flower_a_refusal_leaves_no_run_behind(second, tmp_path):
    settings = {**second("/nowhere").flat(), "run.out": str(tmp_path / "run"), "run.store": ""}
    with pytest.raises(ConfigError, match="holds no run"):
        app(None, Context(1, 0, {}, RecordDict(), settings))
    assert not (tmp_path / "run").exists()


def test_the_run_whose_filter_is_taken_is_not_set_aside(first, tmp_path, capsys):
    folder = first(privacy__fixed_seed=-1)
    given = [f"{key}={value}" for key, value in {**DENSE, "privatizer.kind": "pretrained"}.items()]
    given += [f"privatizer.path={folder}"]
    sets = [word for text in given for word in ("--set", text)]
    assert main(["simulate", *sets, "--out", folder, "--overwrite", "--no-student"]) == 2
    assert "name another --out" in capsys.readouterr().err
    assert RunDirectory(Path(folder)).exists()


def test_simulated_nodes_know_the_sensitive_attribute_where_they_must(second):
    assert node_users(second("/x"), 0).sensitive_attribute == ""
    users = node_users(second("/x", privatizer__condition=True), 0)
    assert users.sensitive_attribute == "thickness"


def test_who_consents_is_heeded_without_sensitive_values():
    images, labels = torch.zeros(3, 1, 28, 28), torch.tensor([1, 99, 2])
    data = LocalData(images, labels, None, torch.tensor([[0.0], [1.0], [1.0]]))

    class One:
        shape, classes, sensitive_classes, partition = (1, 28, 28), 10, 0, 0

        def user(self, position, rows=None):
            return data

    assert torch.equal(sound_records(One(), 0).hides, torch.tensor([[0.0], [1.0]]))
