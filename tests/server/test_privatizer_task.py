"""The task in which a federation trains its filter: charged, resumed, and then seen through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from power_cuts import interrupted
from run_tasks import FOCUSED, context_of, planned

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client.app import build_client_app
from fedlens.client.messages import TrainReply
from fedlens.client.messages import TrainRequest as Request
from fedlens.client.tasks.frozen import FrozenLocalTask
from fedlens.data.dataset import DatasetError
from fedlens.models.weights import to_vector
from fedlens.server.config.schedule import (
    check_affordable,
    costs,
    planned_epsilon,
    scaled,
    scheduled,
)
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.federation.contract_check import EnrolmentError
from fedlens.server.generation.sampler import restored_filter
from fedlens.server.learning.learner import Learner
from fedlens.server.learning.privatizer import NothingLearned, kept_filter_weights
from fedlens.server.round.step import NoUsableReply, PrivateStep
from fedlens.server.run.directory import RunDirectory, load_generator
from fedlens.server.tasks.privatizer import PrivatizerTask
from fedlens.simulations import engine
from fedlens.simulations.engine import measure_student, train_in_process
from fedlens.simulations.federation.apps import (
    hiding_users,
    node_users,
    simulated_federation,
    simulated_sensitive,
)
from fedlens.simulations.run_artifacts import as_devices_send, kept_run_filter
from fedlens.store import open_store

FILTERED = {
    "privatizer.kind": "trained",
    "privatizer.trained_by": "rounds",
    "tasks.privatizer.rounds": 2,
    "privatizer.network": "dense",
    "privatizer.width": 4,
    "tasks.privatizer.adversary_width": 4,
    "tasks.privatizer.batch": 5,
    "tasks.annotator.rounds": 1,
}


@pytest.fixture
def config(annotated):
    """Two rounds of a tiny privatizer before a critic and an annotator, with changes."""

    def make(*more, **changes) -> Config:
        return annotated(FILTERED, *more, **changes)

    return make


@pytest.fixture
def plain(small_config):
    """Two rounds of a tiny privatizer before a critic alone, with changes."""

    def make(*more, **changes) -> Config:
        settings = {"tasks.critic.kind": "frozen", "tasks.critic.rounds": 1, **FILTERED}
        settings = {k: v for k, v in settings.items() if not k.startswith("tasks.annotator")}
        for tables in more:
            settings |= tables
        return small_config(**{k.replace(".", "__"): v for k, v in settings.items()}, **changes)

    return make


def untrained(config: Config) -> PrivatizerTask:
    """The task of a run, before its first round."""
    return PrivatizerTask(context_of(config, "privatizer", sensitive_classes=2))


def trainer(rounds=8, **changes) -> PrivatizerTask:
    settings = {**FILTERED, "tasks.critic.rounds": 1, "tasks.privatizer.rounds": rounds}
    settings |= {f"tasks.privatizer.{k}": v for k, v in changes.items()}
    return untrained(Config().updated(planned(settings)))


# The task


def test_a_release_steps_every_network_and_the_filter_rests_in_the_lead():
    made = trainer(lead=1)
    before = {name: to_vector(net) for name, net in made._design.networks.items()}
    release = np.random.default_rng(0).normal(size=made.size) * 1e-3
    made.apply_release(release)
    moved = {n: not np.array_equal(before[n], to_vector(net)) for n, net in
             made._design.networks.items()}  # fmt: skip
    assert moved == {"filter": False, "raw_utility": True, "utility": True, "adversary": True}
    assert not made.ready
    made.apply_release(release)
    assert not np.array_equal(before["filter"], to_vector(made._design.networks["filter"]))
    assert made.ready


def test_plain_steps_go_along_the_update_whatever_the_clip():
    found = []
    for clip in (0.1, 5.0):
        made = trainer(clipping_norm=clip, optimiser="sgd", rate=0.5)
        before = torch.from_numpy(to_vector(made._design.networks["filter"]))
        update = np.linspace(-1, 1, made.size) * clip
        made.apply_release(update)
        found.append(torch.from_numpy(to_vector(made._design.networks["filter"])) - before)
    assert torch.allclose(*found, atol=1e-6)
    bound = next(b.bound for b in made._design.blocks if b.name == "filter")
    expected = 0.5 * np.linspace(-1, 1, made.size)[: len(before)] / bound
    assert np.allclose(found[0].numpy(), expected, atol=1e-5)


def test_scalars_and_shares_come_back_as_they_were_sent():
    made = trainer(smoothing=0.0)
    bounds, planned = made._bounds, made._design
    release = np.zeros(made.size)
    places = dict(zip([b.name for b in planned.blocks], np.cumsum(
        [0, *[b.size for b in planned.blocks]]), strict=False))  # fmt: skip
    block = planned.encoded(torch.tensor([1.2, 0.3]), bounds["scalars"])
    release[places["scalars"] : places["scalars"] + 2] = block
    release[places["shares"] :] = np.array([0.2, 0.3]) * bounds["shares"]  # half of them hide
    made.apply_release(release)
    public = made.weights()["public"]
    # the leak is a mean over those who hide: 0.3 over all of them is 0.6 over half
    assert np.allclose(public, [1.2, 0.6, 0.4, 0.6], atol=1e-5)
    made.apply_release(np.where(release == 0, 0, -release))  # noise can make anything negative
    assert np.isfinite(made.weights()["public"]).all()
    assert (made.weights()["public"][2:] > 0).all()


def test_the_filter_is_the_mean_of_its_last_quarter():
    made, seen = trainer(rounds=8, optimiser="sgd"), []
    for number in range(8):
        made.apply_release(np.random.default_rng(number).normal(size=made.size) * 1e-2)
        seen.append(to_vector(made._design.networks["filter"]))
        if number < 6:
            assert np.allclose(made.filter_weights(), seen[-1], atol=1e-6)
    assert np.allclose(made.filter_weights(), np.mean(seen[6:], 0), atol=1e-6)


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_a_state_is_taken_up_bit_for_bit(optimiser):
    releases = np.random.default_rng(1).normal(size=(6, trainer().size)) * 1e-2
    whole, first, second = (trainer(optimiser=optimiser) for _ in range(3))
    for release in releases:
        whole.apply_release(release)
    for release in releases[:3]:
        first.apply_release(release)
    second.restore(first.state())
    for release in releases[3:]:
        second.apply_release(release)
    left, right = whole.state(), second.state()
    assert set(left) == set(right)
    assert all(np.array_equal(left[name], right[name]) for name in left)


def test_a_release_of_another_shape_is_refused():
    with pytest.raises(ValueError, match="expected"):
        trainer().apply_release(np.zeros(3))


# Schedule and ledger


def test_the_privatizer_comes_first_and_shares_budget_and_scaling(config):
    made = config(tasks__privatizer__noise_multiplier=9.0, privacy__epsilon_budget=3.0)
    assert [(task.name, task.first, task.rounds) for task in scheduled(made)] == [
        ("privatizer", 1, 2), ("critic", 3, 1), ("annotator", 4, 1),
    ]  # fmt: skip
    assert sum(share for _, _, share in costs(made)) == pytest.approx(1)
    assert costs(made)[0][0] == "privatizer"
    found = scaled(made, epsilon=0.8, delta=1e-3)
    assert planned_epsilon(found, 1e-3) == pytest.approx(0.8, rel=2e-3)
    assert found.tasks["privatizer"].noise_multiplier != 9.0
    with pytest.raises(ConfigError, match="in its task 'privatizer'"):
        check_affordable(made.updated({"privacy.epsilon_budget": 0.05}))
    assert not made.updated({"tasks.privatizer.noise_multiplier": 0.0}).noised


BAD = [
    (
        {"privatizer.kind": "magic"},
        r"privatizer.* 'magic'.* none, trained, pretrained",
    ),
    ({"privatizer.kind": "none"}, r"privatizer\.kind = 'none'.* belong together"),
    ({"privatizer.sensitive_attribute": ""}, r"privatizer\.sensitive_attribute = ''"),
    (
        {"tasks.privatizer.alpha": 1.5},
        r"tasks\.privatizer cannot be used: alpha: give a number in \[0, 1\]",
    ),
    ({"tasks.privatizer.alpha": -0.1}, r"tasks\.privatizer\.alpha = -0\.1 .*≥ 0"),
    (
        {"tasks.privatizer.method": "alpha", "tasks.privatizer.alpha": 0.0},
        r"alpha: give a number in \[0\.001, inf\]",
    ),
    ({"tasks.privatizer.rounds": 0}, r"tasks\.privatizer\.rounds = 0"),
    ({"privatizer.budget": 0.1}, "unknown setting 'privatizer.budget'"),
    ({"tasks.privatizer.lead": 2}, "lead: the filter needs rounds too"),
    ({"privatizer.consenting": 0.5}, r"privatizer\.consenting = 0\.5"),
    ({"privatizer.network": "x"}, r"privatizer\.network = 'x'"),
    ({"privatizer.rounds": 3}, "unknown setting 'privatizer.rounds'"),
    ({"privatizer.method": "alpha"}, "unknown setting 'privatizer.method'"),
    ({"schedule": "critic privatizer annotator"}, "come first"),
    ({"tasks.privatizer.filter_share": 1.0}, r"privatizer\.filter_share = 1\.0"),
    ({"privacy.unit": "record", "privacy.delta": 1e-5}, "for users, not records"),
]


@pytest.mark.parametrize(("changes", "match"), BAD, ids=lambda c: str(c)[:40])
def test_bad_settings_are_refused_by_name(config, changes, match):
    with pytest.raises(ConfigError, match=match):
        config().updated(changes)


def test_an_unknown_method_is_refused_before_anything_is_spent(config, run_small, tmp_path):
    with pytest.raises(ConfigError, match=r"tasks\.privatizer.* 'magic': .* information, alpha"):
        run_small(config(tasks__privatizer__method="magic"))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"privatizer.sensitive_attribute": "age"}, "there is no sensitive attribute 'age'"),
        ({"privatizer.sensitive_attribute": "column"}, "has no sensitive column"),
    ],
)
def test_data_without_the_sensitive_attribute_is_refused(config, changes, match):
    with pytest.raises(DatasetError, match=match):
        simulated_sensitive(config(changes))


@pytest.mark.parametrize("given", [[0, 0, 0, 0], [0, 2, 2, 0], [0, -1, 1, 0], None])
def test_a_column_that_cannot_be_a_sensitive_attribute_is_refused(config, tmp_path, given):
    """One class, a class that no one has, a negative one, and half a column."""
    images = np.zeros((4, 28, 28), dtype=np.uint8)
    arrays = {
        "train_images": images, "test_images": images,
        "train_labels": np.arange(4), "test_labels": np.arange(4),
        "train_sensitive": np.array(given or [0, 1, 0, 1]),
    }  # fmt: skip
    if given is not None:
        arrays["test_sensitive"] = np.array(given)
    np.savez(tmp_path / "some.npz", **arrays)
    made = config(
        privatizer__sensitive_attribute="column", data__name=f"npz:{tmp_path / 'some.npz'}",
        data__users=4, data__samples_per_user=0, privacy__delta=1e-3,
    )  # fmt: skip
    with pytest.raises(DatasetError, match="sensitive"):
        simulated_sensitive(made)


# Whole runs


def test_every_round_is_charged_and_later_tasks_look_through_the_filter(
    config, run_small, tmp_path, monkeypatch
):
    seen = []
    rows = FrozenLocalTask.rows
    monkeypatch.setattr(
        FrozenLocalTask, "rows", lambda s, images, y: seen.append(images) or rows(s, images, y)
    )
    asked, gather = [], PrivateStep.gather
    monkeypatch.setattr(
        PrivateStep, "gather", lambda s, n, a: asked.append((set(a.weights), a.filter)) or
        gather(s, n, a)
    )  # fmt: skip
    blinding = PrivatizerTask.filter_weights

    def blinded(self):  # as if training had ended with a filter that shows black images alone
        vector = blinding(self)
        vector[-28 * 28 :] = -1e3  # the last layer's biases
        return vector

    monkeypatch.setattr(PrivatizerTask, "filter_weights", blinded)
    outcome = run_small(config())
    entries = Ledger.verify(tmp_path / "run" / "ledger.jsonl")
    assert [e.event.released.partition(" (")[0] for e in entries] == [
        "privatizer update", "privatizer update", "frozen critic update", "annotator update",
    ]  # fmt: skip
    assert [weights for weights, _ in asked] == [
        {"networks", "public"}, {"networks", "public"}, {"filter"}, {"annotator", "filter"},
    ]  # fmt: skip
    told = [None if filter_ is None else filter_.network for _, filter_ in asked]
    assert told == [None, None, "dense", "dense"], "the filter's own rounds send no filter"
    # -1 is black; 0 stands where users have fewer records than others
    assert seen and all(set(images.unique().tolist()) <= {-1.0, 0.0} for images in seen)
    with open_store(outcome.store) as store:
        strips = [b.round for b in store.batches(outcome.run_id) if b.purpose == "strip"]
        rounds = store.rounds(outcome.run_id)
    assert strips == [3, 4]  # there is nothing to see while the filter is trained
    assert set(rounds[0].metrics) == {"scalar_0", "scalar_1"}


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0])
def test_a_whole_run_trains_an_alpha_releaser_of_any_order(plain, run_small, tmp_path, order):
    made = plain(
        tasks__privatizer__method="alpha", tasks__privatizer__alpha=order,
        tasks__privatizer__weight=2.0,
    )  # fmt: skip
    outcome = run_small(made)
    entries = Ledger.verify(tmp_path / "run" / "ledger.jsonl")
    assert [e.event.released.partition(" (")[0] for e in entries] == [
        "privatizer update", "privatizer update", "frozen critic update",
    ]  # fmt: skip
    kept = RunDirectory(tmp_path / "run").load_state().arrays["tasks/privatizer/mean"]
    assert np.isfinite(kept).all() and not np.array_equal(kept, to_vector(untrained(made).network))
    assert run_small(made, "again").model_sha256 == outcome.model_sha256


def test_a_conditioned_run_draws_pairs_and_its_filter_is_kept(config, run_small, tmp_path):
    made = config(privatizer__condition=True)
    run_small(made)
    snapshot = RunDirectory(tmp_path / "run").load_state()
    assert snapshot.facts["classes"] == 20
    vector = kept_filter_weights(made, snapshot.arrays)
    assert np.array_equal(vector, snapshot.arrays["tasks/privatizer/mean"])
    network = restored_filter(made, (1, 28, 28), vector)
    assert not np.array_equal(to_vector(network), to_vector(trainer().network))
    assert set(load_generator(RunDirectory(tmp_path / "run").generator_path(4))) == {
        "average", "annotator",
    }  # fmt: skip


def test_the_focused_critic_looks_through_the_filter_too(
    plain, few_images_for_the_frame, run_small
):
    assert run_small(plain(FOCUSED)).rounds == 5


def test_a_run_cut_in_the_privatizers_rounds_ends_with_the_same_model(
    plain, run_small, monkeypatch
):
    made = plain(tasks__privatizer__sampling_rate=0.5)
    whole = run_small(made, "whole").model_sha256
    point = (PrivatizerTask, "apply_release", "after", 1)
    assert interrupted(monkeypatch, run_small, made, point).model_sha256 == whole
    other = plain(tasks__privatizer__sampling_rate=0.5, privacy__fixed_seed=4)
    assert run_small(other, "other").model_sha256 != whole


def test_a_lost_release_leaves_the_filter_as_it_was(plain, run_small, monkeypatch, tmp_path):
    applied, apply_release = [], PrivatizerTask.apply_release
    monkeypatch.setattr(
        PrivatizerTask, "apply_release", lambda s, r: applied.append(1) or apply_release(s, r)
    )
    made = plain()
    point = (RunDirectory, "save_release", "before", 1)
    assert interrupted(monkeypatch, run_small, made, point).rounds == 3
    assert len(applied) == 1
    assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 3


def test_without_a_filter_that_learned_no_later_task_begins(
    plain, run_small, monkeypatch, tmp_path
):
    made = plain()
    monkeypatch.setattr(PrivatizerTask, "ready", property(lambda self: False))
    with pytest.raises(NothingLearned, match="start a new run"):
        run_small(made)
    entries = Ledger.verify(tmp_path / "run" / "ledger.jsonl")
    assert len(entries) == made.tasks["privatizer"].rounds, (
        "nothing was spent on tasks that cannot begin"
    )


# Nodes that are not what they should be


def app_over(config, change):
    return build_client_app(
        lambda context: change(node_users(config, int(context.node_config["partition-id"])))
    )


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda users: replace(users, sensitive_attribute=""), "does not know"),
        (lambda users: replace(users, sensitive_attribute="age"), "does not know"),
        (lambda users: replace(users, sensitive_classes=2 + users.partition), "disagree"),
        (lambda users: replace(users, sensitive_classes=1), "nothing to hide"),
    ],
)
def test_nodes_must_know_the_same_sensitive_attribute(config, run_small, change, match, tmp_path):
    made = config()
    with pytest.raises(EnrolmentError, match=match):
        run_small(made, app=app_over(made, change))
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


@pytest.mark.parametrize("damage", ["shape", "nan", "norm"])
def test_malformed_replies_are_refused_in_this_task_too(config, run_small, monkeypatch, damage):
    made = config()
    size = Learner(made, _federation()).task(scheduled(made)[0]).size
    bad = {
        "shape": np.zeros(size + 1), "nan": np.full(size, np.nan), "norm": np.full(size, 1e3)
    }[damage]  # fmt: skip
    monkeypatch.setattr(
        "fedlens.client.app.train",
        lambda users, request: TrainReply(bad, np.zeros(64, dtype=np.int64)),
    )
    with pytest.raises(NoUsableReply):
        run_small(made)


def _federation():
    from fedlens.server.federation.enrolment import Federation
    from fedlens.server.federation.roster import Roster

    return Federation(Roster((1, 2), (20, 20)), (1, 28, 28), 10, 2)


# Opt-in


def test_some_simulated_users_consent_and_their_nodes_say_so(config):
    made = config(
        privatizer__network="unet", privatizer__width=2, tasks__privatizer__adversary_width=2,
        privatizer__consenting=0.25,
    )  # fmt: skip
    hides = hiding_users(made)
    assert hides.sum() == 30 and np.array_equal(hides, hiding_users(made))
    told = [node_users(made, n).user(p).hides for n in range(2) for p in range(20)]
    assert [bool(bits.all()) for bits in told] == hides.tolist()
    assert hiding_users(config()) is None and node_users(config(), 0).user(0).hides is None


def test_a_request_of_a_run_without_a_privatizer_says_nothing_of_one(
    annotated, run_small, monkeypatch
):
    kept, to_record = [], Request.to_record
    monkeypatch.setattr(Request, "to_record", lambda s: kept.append(s.filter) or to_record(s))
    run_small(annotated())
    assert kept == [None] * len(kept) and kept


def test_students_are_tried_on_images_as_devices_send_them(plain, tmp_path, monkeypatch):
    made = plain({"tasks.privatizer.rate": 3.0})
    directory = RunDirectory.create(tmp_path / "run", made)
    train_in_process(made, directory, directory.default_store, None)
    met: list[torch.Tensor] = []
    monkeypatch.setattr(engine, "train_student", lambda *given, **_: met.append(given[2]))
    measure_student(made, directory, images=20)
    tests, _ = simulated_federation(made.data, made.seed)
    real = torch.from_numpy(tests.test_images.copy()).float() / 127.5 - 1
    filter_, _ = kept_run_filter(directory.path)
    filtered = filter_(real, torch.randn(len(real), *filter_.noise_shape))
    to_filtered, to_real = ((met[0] - other).abs().mean() for other in (filtered, real))
    assert to_filtered < to_real / 2, "through the filter, each with other noise"
    assert torch.equal(met[0], as_devices_send(directory, real, made.seed + engine.STUDENT_SEED))


def test_a_filter_may_be_all_that_a_run_makes(config, run_small, tmp_path):
    alone = config().updated({"schedule": "privatizer", "release.agreement": 0.0})
    outcome = run_small(alone)
    assert outcome.rounds == alone.tasks["privatizer"].rounds
    network, shape = kept_run_filter(tmp_path / "run")
    assert shape == (1, 28, 28) and next(network.parameters()).isfinite().all()
