"""A filter that is trained on a run's own samples, and what is stored of such a run."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from run_tasks import TINY

from fedlens.api.label_curves import label_curve
from fedlens.cli import main
from fedlens.client.messages import TrainRequest
from fedlens.client.users.views import FilteredUsers, prepare_users
from fedlens.models.weights import to_vector
from fedlens.privatizers import fitting
from fedlens.privatizers.classifiers import choices_of
from fedlens.privatizers.export import load_filter
from fedlens.privatizers.protocol import PrivatizerError
from fedlens.server.config.mechanism import mechanism
from fedlens.server.config.schedule import planned_epsilon, scheduled
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.generation import fitting as privatizer_fit
from fedlens.server.generation.fitting import FilterFit, leakage_of
from fedlens.server.generation.sampler import Sampler, kept_arrays, restored_sampler
from fedlens.server.learning.privatizer import told_to_nodes
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.simulations.engine import (
    STUDENT_SEED,
    measure_taught_student,
    simulate,
    train_in_process,
)
from fedlens.simulations.federation.apps import hiding_users, node_users, simulated_federation
from fedlens.simulations.run_artifacts import (
    as_devices_send,
    kept_leakage,
    kept_run_filter,
    kept_sampler,
)
from fedlens.simulations.students.students import train_student
from fedlens.store import (
    Annotation,
    LabelRecord,
    ProjectRecord,
    SampleFilter,
    StoreError,
    open_store,
)

pytestmark = pytest.mark.usefixtures("a_filter_in_no_time")


def trained(path, **changes):
    config = Config().updated({**TINY, **changes})
    directory = RunDirectory.create(path, config)
    outcome = train_in_process(config, directory, directory.default_store, None)
    return config, directory, outcome


def test_a_run_stores_nothing_but_filtered_samples(tmp_path):
    config, directory, outcome = trained(tmp_path / "run")
    sampler = kept_sampler(directory)
    assert (
        sampler.privatizer is not None and sampler.sensitive_classes == 2 and sampler.classes == 20
    )
    with open_store(directory.default_store) as store:
        batches = store.batches(outcome.run_id)
        wanted = SampleFilter(run_id=outcome.run_id, purpose="curated")
        stored = store.samples(wanted)
        # rounds have samples too, which nothing hides yet
        assert [(batch.round, batch.purpose) for batch in batches] == [(2, "curated")]
        # the class in a column, no sensitive attribute there, and neither in the order
        classes = [sample.requested_class for sample in stored]
        assert sorted(classes) == sorted(3 * list(range(10)))
        assert classes != [i % 10 for i in range(30)]
    bare = replace(sampler, privatizer=None, sensitive_classes=1)
    pairs = torch.arange(20)
    shown, raw = sampler.draw(pairs, 3), bare.draw(pairs, 3)
    assert shown.shape == raw.shape and not torch.allclose(shown, raw, atol=0.1)
    assert not torch.allclose(sampler.unfiltered().draw(pairs, 3), raw, atol=0.1)
    # nothing but the tasks of a run without a filter is paid for
    assert [task.name for task in scheduled(config)] == ["critic"]
    plain = config.updated({"privatizer.kind": "none"})
    assert planned_epsilon(config, 1e-3) == planned_epsilon(plain, 1e-3)


def test_a_samples_number_tells_no_one_its_class(tmp_path):
    """Annotators of a blind project see numbers; who has the generator finds the order again."""
    _, directory, outcome = trained(tmp_path / "run")
    sampler = kept_sampler(directory)
    with open_store(directory.default_store) as store:
        (batch,) = [one for one in store.batches(outcome.run_id) if one.purpose == "curated"]
        stored = store.samples(SampleFilter(run_id=outcome.run_id, purpose="curated"))
    numbered = sorted(stored, key=lambda sample: sample.sample_id)
    order = sampler.order(batch.count, batch.seed)
    asked = torch.arange(batch.count) % 10
    assert [one.requested_class for one in numbered] == asked[order].tolist() != asked.tolist()
    with torch.no_grad():
        next(iter(sampler.generator.parameters())).add_(1e-3)
    assert not torch.equal(sampler.order(batch.count, batch.seed), order)


def test_a_runs_filter_is_exported_for_devices(tmp_path, capsys):
    config, directory, _ = trained(tmp_path / "run")
    assert main(["privatizer", "export", str(directory.path), "--json"]) == 0
    exported = load_filter(directory.path / "filter.pt2", "torch")
    images, noise = torch.rand(1, 1, 28, 28), torch.randn(1, 10 + 784)
    expected = kept_sampler(directory).privatizer(images, noise)
    assert torch.allclose(exported(images, noise), expected, atol=1e-5)
    plain = config.updated({"privatizer.kind": "none"})
    other = RunDirectory.create(tmp_path / "plain", plain)
    train_in_process(plain, other, other.default_store, None)
    assert main(["privatizer", "export", str(other.path)]) == 1
    assert "has no filter" in capsys.readouterr().err


def test_who_minds_nothing_is_not_filtered_and_samples_always_are(tmp_path):
    config, directory, _ = trained(tmp_path / "run", **{"privatizer.consenting": 0.25})
    hides, users = hiding_users(config), node_users(config, 0)
    network, _ = kept_run_filter(directory.path)
    assert choices_of(network) == 1
    shown = FilteredUsers(users, network, b"key")
    for position in range(len(users)):
        raw, sent = users.user(position).images, shown.user(position).images
        assert torch.equal(raw, sent) != bool(hides[position])
    # samples are no one's, so no one consents to them
    sampler = kept_sampler(directory)
    pairs = torch.arange(20)
    bare = replace(sampler, privatizer=None, sensitive_classes=1)
    assert not torch.allclose(sampler.draw(pairs, 3), bare.draw(pairs, 3), atol=0.1)


def test_every_stage_weighs_how_far_images_are_changed(tmp_path, monkeypatch):
    made, objective = [], privatizer_fit.Objective
    monkeypatch.setattr(
        privatizer_fit, "Objective", lambda **given: made.append(given) or objective(**given)
    )
    trained(tmp_path / "run", **{"privatizer.distortion": 7.0})
    assert len(made) > 1 and {given["distortion"] for given in made} == {7.0}


def test_a_run_is_the_same_when_it_is_repeated_or_taken_up(tmp_path):
    # noise is from the operating system, so one run's state is taken up twice
    config, directory, _ = trained(tmp_path / "run")
    snapshot = directory.load_state()
    vector = snapshot.arrays["filter/mean"]
    sampler = kept_sampler(directory)
    again = FilterFit.of(config, (1, 28, 28), 2)
    assert again.network is None
    assert again.state() == {}
    bare = replace(sampler, privatizer=None, sensitive_classes=1)
    again.fit(bare, lambda done, all_: None)
    assert np.array_equal(again.state()["mean"], vector)
    other = FilterFit.of(config, (1, 28, 28), 2)
    other.restore(again.state())
    assert np.array_equal(other.state()["mean"], vector)
    restored = restored_sampler(config, (1, 28, 28), 20, kept_arrays(sampler))
    pairs = torch.arange(20)
    assert torch.equal(restored.draw(pairs, 5), sampler.draw(pairs, 5))
    bare = {k: v for k, v in kept_arrays(sampler).items() if k != "privatizer"}
    with pytest.raises(KeyError):  # never images that hide nothing
        restored_sampler(config, (1, 28, 28), 20, bare)


@pytest.mark.thorough
def test_a_run_that_its_budget_ends_early_has_a_filter_too(tmp_path):
    config = Config().updated(TINY)
    half = planned_epsilon(config.updated({"tasks.critic.rounds": 1}), 1e-3) * 1.01
    config = config.updated({"privacy.epsilon_budget": half})
    directory = RunDirectory.create(tmp_path / "run", config)
    summary = simulate(config, directory)
    assert (summary.status, summary.rounds) == ("stopped-by-budget", 1)
    assert kept_sampler(directory).privatizer is not None and summary.contact_sheet is not None
    assert summary.student_accuracy is not None  # of the classes, which the filter keeps
    with open_store(directory.default_store) as store:
        found = store.batches(summary.run_id)
        assert [(batch.round, batch.purpose) for batch in found] == [(1, "curated")]
    with pytest.raises(RunDirectoryError, match="labels requested"):
        measure_taught_student(config, directory)


def test_labels_of_hidden_samples_teach_a_student_that_meets_hidden_images(tmp_path, monkeypatch):
    config, directory, outcome = trained(tmp_path / "run")
    met: list[torch.Tensor] = []

    def watched(*given, **settings):
        met.append(given[2])
        return train_student(*given, **settings)

    monkeypatch.setattr("fedlens.simulations.engine.train_student", watched)
    names = [LabelRecord(key=str(digit), name=str(digit)) for digit in range(10)]
    with open_store(directory.default_store) as store:
        asked = ProjectRecord(name="digits", run_id=outcome.run_id, labels=tuple(names))
        project = store.create_project(asked)
        person, labels = store.ensure_user("ada"), store.labels(project)
        for sample in store.queue(project, person, limit=8):
            label = labels[sample.requested_class].label_id
            store.annotate(
                Annotation(
                    client_uuid=f"a{sample.sample_id}",
                    project_id=project,
                    sample_id=sample.sample_id,
                    user_id=person,
                    label_id=label,
                )
            )
        with pytest.raises(StoreError, match=r"no project 'letters'.*page Annotate.*'digits'"):
            label_curve(config, directory, store, "letters", epochs=1)
        [(used, _)] = label_curve(config, directory, store, "digits", epochs=1)
        tests, _ = simulated_federation(config.data, config.seed)
        real = torch.from_numpy(tests.test_images.copy()).float() / 127.5 - 1
        sent = as_devices_send(directory, real, config.seed + STUDENT_SEED)
        assert used == 8 and torch.equal(met[0], sent) and not torch.equal(sent, real)
        other = trained(tmp_path / "other")[1]
        with pytest.raises(StoreError, match="another filter"):
            label_curve(config, other, store, "digits", epochs=1)


def test_a_run_killed_before_its_filter_goes_on_with_it(tmp_path, monkeypatch):
    config = Config().updated(TINY)
    directory = RunDirectory.create(tmp_path / "run", config)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(FilterFit, "fit", killed)
        train_in_process(config, directory, directory.default_store, None)
    with open_store(directory.default_store) as store:
        (run,) = store.runs()
        assert store.batches(run.run_id) == []
    outcome = train_in_process(config, directory, directory.default_store, None)
    assert outcome.rounds == 2 and kept_sampler(directory).privatizer is not None


def fitted(config: Config, directory: RunDirectory, told=None):
    """A filter, fitted again on the samples of a run."""
    bare = replace(kept_sampler(directory), privatizer=None, sensitive_classes=1)
    hidden = FilterFit.of(config, (1, 28, 28), 2)
    hidden.fit(bare, lambda done, all_: None if told is None else told.append((done, all_)))
    return hidden


def test_a_rate_that_is_too_high_is_lowered(tmp_path, monkeypatch):
    config, directory, _ = trained(tmp_path / "run")
    real, rates = fitting.train_privatizer, []

    def failing(method, samples, stages, **rest):
        rates.append({stage.name: stage.rates for stage in stages})
        if len(rates) < 3:
            raise PrivatizerError("the loss is nan")
        real(method, samples, stages, **rest)

    monkeypatch.setattr(fitting, "train_privatizer", failing)
    assert fitted(config, directory).network is not None
    settings = config.privatizer
    for found, share in zip(rates[:3], (1, 0.1, 0.01), strict=True):
        moved = found["releasing"]
        assert moved["filter"] == pytest.approx(settings.rate * share)
        assert moved["adversary"] == pytest.approx(settings.adversary_rate * share)
    judges = [found["meeting"]["adversary"] for found in rates[3:] if "meeting" in found]
    assert judges and set(judges) == {fitting.JUDGE_RATE}, "no setting makes a judge blind"


def test_judges_are_tried_on_samples_that_no_one_learned_from(tmp_path, monkeypatch):
    config, directory, _ = trained(tmp_path / "run")
    real, parts = privatizer_fit.fit_filter, []

    def looking(build, data, held, *rest):
        parts.append((data.records, held.records))
        return real(build, data, held, *rest)

    monkeypatch.setattr(privatizer_fit, "fit_filter", looking)
    fitted(config, directory)
    ((learned, held),) = parts
    assert (len(learned), len(held)) == (200, 100)
    assert float((learned[:, None] - held[None]).abs().amax((2, 3, 4)).min()) > 0


def test_a_later_stage_that_fails_loses_no_filter(tmp_path, monkeypatch):
    config, directory, _ = trained(tmp_path / "run")
    real, calls = fitting.train_privatizer, []

    def failing(method, samples, stages, **rest):
        calls.append(method)
        if len(calls) == 3:
            raise PrivatizerError("the loss is nan")
        real(method, samples, stages, **rest)

    monkeypatch.setattr(fitting, "train_privatizer", failing)
    monkeypatch.setattr(
        fitting._Fitting, "_leakage", lambda self, method: fitting.LeakageEstimate(0.2, 0.6)
    )
    assert fitted(config, directory).network is not None and len(calls) == 3


@pytest.mark.parametrize(("nats", "missed"), [(0.2, True), (0.001, False)])
def test_people_are_told_what_a_fresh_network_reads(tmp_path, monkeypatch, capsys, nats, missed):
    monkeypatch.setattr(
        fitting._Fitting, "_leakage", lambda self, method: fitting.LeakageEstimate(nats, 0.71)
    )
    path = tmp_path / "tiny.toml"
    path.write_text(Config().updated(TINY).to_toml())
    out = str(tmp_path / "run")
    assert main(["simulate", "--config", str(path), "--out", out, "--no-student", "--json"]) == 0
    printed = capsys.readouterr().out
    assert f"reads it of 71.0% of filtered samples ({nats:.2g} nats) with the" in printed
    assert ("than privatizer.budget = 0.003" in printed) is missed
    found = json.loads(printed.splitlines()[-1])
    assert (found["sensitive_read"], found["sensitive_read_nats"]) == (0.71, nats)


@pytest.mark.parametrize(("readings", "later"), [([0.002], 0), ([0.2, 0.1, 0.3, 0.25], 3)])
def test_fresh_adversaries_say_when_it_is_enough_and_which_filter_is_kept(
    tmp_path, monkeypatch, readings, later
):
    config, directory, _ = trained(tmp_path / "run")
    real, methods, told, left = fitting.train_privatizer, [], [], list(readings)
    weights = []

    def looking(method, samples, stages, **rest):
        methods.append((method.networks["adversary"], [stage.name for stage in stages]))
        real(method, samples, stages, **rest)

    def read(self, method):
        weights.append(to_vector(method.networks["filter"]).copy())
        return fitting.LeakageEstimate(left.pop(0), 0.5)

    monkeypatch.setattr(fitting, "train_privatizer", looking)
    monkeypatch.setattr(fitting._Fitting, "_leakage", read)
    hidden = fitted(config, directory, told)
    assert not left and [names for _, names in methods] == [
        ["meeting", "releasing"],
        *[["meeting"], ["releasing"]] * later,
        ["meeting"],
    ]
    adversaries = [id(adversary) for adversary, _ in methods]
    assert len(set(adversaries)) == 2 + later, "each stage has its own"
    assert hidden.network is not None
    best = int(np.argmin(readings))
    assert np.array_equal(to_vector(hidden.network), weights[best])
    assert hidden.state()["reading"].tolist() == [min(readings), 0.5]
    steps = [done for done, _ in told]
    assert steps == sorted(steps) and told[-1][0] == told[-1][1]


def test_what_a_fresh_network_reads_is_kept(tmp_path):
    config, directory, _ = trained(tmp_path / "run")
    found = kept_leakage(directory)
    assert found is not None and 0 <= found.share <= 1 and found.nats < np.log(2)
    assert found == leakage_of(fitted(config, directory).state())
    assert leakage_of({}) is None


def test_a_seed_tells_neither_the_sensitive_value_nor_the_noise(tmp_path):
    """A batch's seed is stored beside its samples."""
    _, directory, _ = trained(tmp_path / "run")
    sampler = kept_sampler(directory)
    other = copy.deepcopy(sampler)
    with torch.no_grad():
        next(iter(other.generator.parameters())).add_(1e-3)
    labels = torch.arange(10).repeat(20)
    assert not torch.equal(sampler.asked(labels, 7), other.asked(labels, 7))
    shares = torch.eye(sampler.classes)[:2]
    assert not torch.equal(sampler.between(shares, 7), other.between(shares, 7))
    assert torch.equal(sampler.between(shares, 7), copy.deepcopy(sampler).between(shares, 7))


def test_trying_all_seeds_of_pytorch_finds_neither_value_nor_noise(tmp_path, monkeypatch):
    """A generator of PyTorch takes 32 bits of its seed, so that 2^32 tries find what it drew."""
    sampler = kept_sampler(trained(tmp_path / "run")[1])
    labels = torch.arange(10).repeat(20)

    def refuse(*_, **__):
        raise AssertionError("drawn from 32 bits")

    monkeypatch.setattr(torch, "Generator", refuse)
    asked = sampler.asked(labels, 7)
    assert set((asked % 2).tolist()) == {0, 1} and torch.equal(asked // 2, labels)
    assert torch.equal(sampler.asked(labels[:50], 7), asked[:50])
    same = sampler._hidden(torch.zeros(4, 1, 28, 28), 7, torch.zeros(4, 1))
    assert len(torch.unique(same.flatten(1), dim=0)) == 4


def test_two_images_of_one_seed_have_two_noises_and_one_image_has_one(tmp_path):
    sampler = kept_sampler(trained(tmp_path / "run")[1])
    noises, network = [], sampler.privatizer
    zeros, ones = torch.zeros(3, dtype=torch.int64), torch.ones(3, dtype=torch.int64)

    class Heard(torch.nn.Module):
        noise_shape = network.noise_shape

        def forward(self, images, noise):
            noises.append(noise)
            return network(images, noise)

    source = replace(sampler, privatizer=Heard())
    for labels in (zeros, zeros[:2], ones):
        source.draw(labels, 7)
    first, fewer, others = noises
    assert torch.equal(first[:2], fewer)
    assert not bool((first == others).any())
    assert len(torch.unique(first[:, 0])) == 3


def test_a_source_of_pairs_without_a_filter_is_refused(tmp_path):
    _, directory, _ = trained(tmp_path / "run")
    with pytest.raises(ValueError, match="no filter hides it"):
        replace(kept_sampler(directory), privatizer=None)


def test_a_budget_above_all_there_is_to_know_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="nothing would be hidden"):
        trained(tmp_path / "run", **{"privatizer.budget": 0.7})


def test_nodes_give_pairs_of_unfiltered_images():
    config = Config().updated(TINY)
    users = node_users(config, 0)
    settings = config.tasks["critic"]
    asked = mechanism(config, settings)
    request = TrainRequest(1, (0,), settings.kind, asked, {}, {}, 0, len(users), b"key", 10)
    shown = prepare_users(users, replace(request, filter=told_to_nodes(config)))
    assert isinstance(shown, FilteredUsers) and shown.classes == 20
    raw, pairs = users.user(3), shown.user(3)
    assert torch.equal(pairs.images, raw.images)
    assert torch.equal(pairs.labels, raw.labels * 2 + raw.sensitive)
    assert prepare_users(users, request).users is not None and not isinstance(
        prepare_users(users, request), FilteredUsers
    )


def test_sensitive_values_of_samples_are_even_and_their_own(tmp_path):
    _, directory, _ = trained(tmp_path / "run")
    sampler: Sampler = kept_sampler(directory)
    labels = torch.arange(10).repeat(200)
    asked = sampler.asked(labels, 1)
    assert torch.equal(asked // 2, labels) and 0.45 < float((asked % 2).float().mean()) < 0.55
    assert torch.equal(asked, sampler.asked(labels, 1))
    assert not torch.equal(asked, sampler.asked(labels, 2))
    with pytest.raises(ValueError, match="no annotator"):
        sampler.label(torch.zeros(1, 1, 28, 28))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"privatizer.rounds": 3}, "unknown setting 'privatizer.rounds'"),
        ({"privatizer.network": "unet"}, "privatizer.network = 'unet' .*'code'"),
        ({"privatizer.alpha": 0.9}, "unknown setting 'privatizer.alpha'"),
        ({"privatizer.condition": True}, "unknown setting 'privatizer.condition'"),
        ({"privatizer.steps": 0}, "privatizer.steps"),
        ({"privatizer.budget": -1.0}, "privatizer.budget"),
        ({"privatizer.distortion": -1.0}, "privatizer.distortion"),
        ({"privatizer.output_noise_std": -0.1}, "privatizer.output_noise_std"),
        ({"privatizer.output_noise_std": math.nan}, "privatizer.output_noise_std"),
        ({"privatizer.sensitive_attribute": ""}, "privatizer.sensitive_attribute"),
        ({"privatizer.consenting": 1.0}, "privatizer.consenting"),
        ({"privacy.unit": "record", "privacy.delta": 1e-5}, "privatizer.kind = .*not records"),
    ],
)
def test_settings_that_do_not_fit_are_refused(changes, text):
    with pytest.raises(ConfigError, match=text):
        Config().updated({**TINY, **changes})


def test_a_filter_trained_in_rounds_needs_its_task():
    with pytest.raises(ConfigError, match="no task trains the filter"):
        Config().updated(TINY).updated(
            {"privatizer.kind": "trained", "privatizer.trained_by": "rounds"}
        )
