"""A whole simulated run: train over a transport, draw pictures, measure a student, sum up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from torch import Tensor

from fedlens.accountant.account import statement
from fedlens.accountant.wording import shown
from fedlens.data.registry import spec_of
from fedlens.foundation.json_values import json_value
from fedlens.foundation.memory import give_back_memory
from fedlens.foundation.profile import timed
from fedlens.foundation.unlabelled import NONE, OWN_OR
from fedlens.server.config.tree import Config
from fedlens.server.generation.compute import training_threads, usable_cores
from fedlens.server.generation.sampler import Sampler
from fedlens.server.learning.builds_on import with_cost
from fedlens.server.learning.forecast import RECORDS, expectation
from fedlens.server.ledger.plan import noise_source
from fedlens.server.round.publication import guarantees_something
from fedlens.server.round.status import OnProgress
from fedlens.server.run.directory import RunDirectory, RunDirectoryError
from fedlens.server.training import Outcome, train
from fedlens.simulations.federation.apps import (
    client_app,
    forget_nodes,
    named_classes,
    simulated_federation,
)
from fedlens.simulations.federation.labels import real_test_set
from fedlens.simulations.run_artifacts import (
    as_devices_send,
    fresh_samples,
    kept_leakage,
    kept_sampler,
    last_batch,
    seen_samples,
    stored_samples,
    without_password,
)
from fedlens.simulations.students.distillation import taught_student
from fedlens.simulations.students.students import StudentResult, train_student
from fedlens.simulations.transports.inprocess import InProcessGrid
from fedlens.simulations.transports.processes import several_processes
from fedlens.store import Purpose, SampleFilter, Store, open_store

SHEETS: dict[Purpose, str] = {"curated": "contact-sheet.png", "faithful": "faithful.png"}
"""Files of the pictures that a run ends with. Sheets of single rounds have files of their own."""
STUDENT_IMAGES = 20_000
TAUGHT_IMAGES, TAUGHT_EPOCHS = 30_000, 3
STUDENT_SEED = 3_000_003
AGREED_ON = 1000
"""Fresh samples on which student and annotator are compared where there are no real test images."""
BAYESIAN = ("as_published", "corrected", "sound")

Train = Callable[[Config, RunDirectory, str, OnProgress | None], Outcome]


MEASURED_ON_REAL_IMAGES = ("student_accuracy", "own_label_accuracy")
"""Figures of a summary that are in no budget: they are for simulations alone."""


@dataclass(frozen=True)
class Summary:
    """What `fedlens simulate --json` prints."""

    run_id: str
    run_dir: str
    status: str
    private: bool
    rounds: int
    users: int
    unit: str
    """What ``users`` counts: users, or silos in record mode."""
    epsilon: dict[str, float | None]
    """None where there is no finite bound."""
    delta: dict[str, float]
    student_accuracy: float | None
    """Of a student with the annotator's labels, or with requested classes where there is none;
    null where samples have neither.
    Simulation only: measured on real test images, outside any budget."""
    own_label_accuracy: float | None
    """Of a student with requested classes. Simulation only."""
    sensitive_read: float | None
    """Where a filter was fitted on samples or on moments: of how many filtered ones of what was
    drawn a fresh network reads the attribute, as a share, before any output noise beyond .1. What
    is left in real images is for attackers to say."""
    sensitive_read_nats: float | None
    """The same in nats: a lower bound on what the filter leaves of the attribute there."""
    store: str
    contact_sheet: str | None
    """Of curated samples."""
    faithful_sheet: str | None
    """Of faithful samples."""
    rejected: dict[str, float]
    """Share of the candidates of each class that the filter of curated samples turned down."""
    worth: str
    """What its samples are good for: clear, usable for statistics, noise, or not judged."""
    fidelity: dict[str, float]
    """What the verdict was made of: signal by class, and what an annotator recognises."""
    planted: str
    """Faults that were planted in the simulated data, as in ``data.fault``; empty for none."""
    plots: str | None
    ledger_entries: int
    releases: int
    model_sha256: str
    statement: str
    stopped: str | None
    covered: str = ""
    """Which nodes its rounds had, and for what share of the declared users its releases speak."""
    whole: bool = True
    """Whether every round had all the nodes and users that are declared."""
    class_names: tuple[str, ...] = ()
    """What people call the classes; empty where they have numbers alone."""
    simulation_only: tuple[str, ...] = MEASURED_ON_REAL_IMAGES

    def to_json(self) -> dict[str, Any]:
        """As a JSON object."""
        return asdict(self)


def train_in_process(
    config: Config, directory: RunDirectory, store_url: str, observer: OnProgress | None
) -> Outcome:
    """Train with the real ClientApp called in this process."""
    grid = InProcessGrid(client_app, config.data.nodes, config.flat())
    return _train(config, directory, grid, store_url, observer)


def train_in_processes(
    config: Config, directory: RunDirectory, store_url: str, observer: OnProgress | None
) -> Outcome:
    """Train with the real ClientApp, called in as many processes as there are nodes and cores."""
    nodes, cores = config.data.nodes, usable_cores()
    with several_processes(_simulated_app, nodes, config.flat(), cores) as grid:
        return _train(config, directory, grid, store_url, observer)


def _train(
    config: Config, directory: RunDirectory, grid: Grid, url: str, observer: OnProgress | None
) -> Outcome:
    names = named_classes(config)
    return train(config, directory, grid, store_url=url, observer=observer, class_names=names)


def _simulated_app() -> ClientApp:
    return client_app


def simulate(
    config: Config,
    directory: RunDirectory,
    *,
    store_url: str = "",
    trainer: Train = train_in_process,
    observer: OnProgress | None = None,
    student: bool = True,
) -> Summary:
    """Train (or go on with) a run and bring home everything there is to see of it."""
    url = directory.store_url(store_url)
    directory.remember_store(url)
    outcome = trainer(config, directory, url, observer)
    forget_nodes()
    give_back_memory()
    with open_store(url) as store:
        plots = None
        batches = {batch.purpose: batch for batch in store.batches(outcome.run_id)}
        sheets = {
            purpose: draw_sheet(store, directory, outcome.run_id, purpose=purpose)
            for purpose in SHEETS
            if purpose in batches
        }
        if outcome.rounds > 1:  # of one round there is no line to draw
            plots = draw_plots(store, directory, outcome.run_id)
        own = taught = None
        measured = student and is_measurable(config)
        if measured and "curated" in batches and not config.privatizer.conditioned:
            sampler = kept_sampler(directory)
            if not config.data.unlabelled:
                own = taught = measure_student(config, directory).accuracy
            if sampler.annotator is not None and sampler.privatizer is None:
                taught = measure_taught_student(config, directory).accuracy
        read = kept_leakage(directory)
        releases = len(store.releases(outcome.run_id))
        entries = len(store.ledger(outcome.run_id))
        class_names = store.run(outcome.run_id).class_names
    spending = outcome.spending
    return Summary(
        run_id=outcome.run_id,
        run_dir=str(directory.path),
        status="stopped-by-budget" if outcome.stopped else "finished",
        private=guarantees_something(config),
        rounds=outcome.rounds,
        users=config.data.users,
        unit="users" if config.privacy.unit == "user" else "silos",
        epsilon={
            "dp": json_value(spending.dp_epsilon),
            "dp_at_bayesian_delta": json_value(spending.dp_epsilon_at_bdp_delta),
            **{f"bdp_{how}": json_value(getattr(spending, f"bdp_{how}")) for how in BAYESIAN},
        },
        delta={"dp": spending.delta_dp, "bdp": spending.delta_bdp},
        student_accuracy=taught,
        own_label_accuracy=own,
        sensitive_read=None if read is None else read.share,
        sensitive_read_nats=None if read is None else read.nats,
        store=without_password(url),
        contact_sheet=sheets.get("curated"),
        faithful_sheet=sheets.get("faithful"),
        rejected=dict(batches["curated"].rejected) if "curated" in batches else {},
        worth=batches["curated"].worth if "curated" in batches else "not judged",
        fidelity=dict(batches["curated"].fidelity) if "curated" in batches else {},
        planted=config.data.fault,
        plots=plots,
        ledger_entries=entries,
        releases=releases,
        model_sha256=outcome.model_sha256,
        statement=with_cost(statement(spending, config.data.users), directory),
        stopped=outcome.stopped,
        covered=outcome.covered,
        whole=outcome.whole,
        class_names=class_names,
    )


@timed("pictures")
def draw_sheet(
    store: Store,
    directory: RunDirectory,
    run_id: str,
    *,
    purpose: Purpose = "curated",
    round_number: int | None = None,
    rows: int = 8,
    path: Path | None = None,
) -> str:
    """Write the contact sheet of the last batch of a purpose, or of that round; returns its path.

    Raises:
        RunDirectoryError: there is none.
    """
    from fedlens.simulations.plots.run import contact_sheet  # a card or a probe needs no plots

    batch = last_batch(store, run_id, purpose, round_number)
    images, labels = stored_samples(store, SampleFilter(batch_id=batch.batch_id))
    own = SHEETS.get(purpose, f"{purpose}.png") if round_number is None else ""
    name = own or f"{purpose}-round-{batch.round}.png"
    target = path or directory.path / "pictures" / name
    caption = (
        f"{batch.provenance} · run {run_id} · round {batch.round} · seed {batch.seed} · "
        f"DP ε={shown(batch.dp_epsilon)} (δ={shown(batch.delta_dp)}) · "
        f"Bayesian DP ε={shown(batch.bdp_corrected)} (δ={shown(batch.delta_bdp)}, estimate)"
    )
    contact_sheet(images, labels, rows=rows, caption=caption, path=target)
    return str(target)


@timed("pictures")
def draw_plots(store: Store, directory: RunDirectory, run_id: str) -> str:
    """Write the plot of both ε and the losses; returns its path."""
    from fedlens.simulations.plots.run import plot_run

    target = directory.path / "pictures" / "privacy.png"
    plot_run(store.rounds(run_id), target)
    return str(target)


@timed("students")
def measure_student(
    config: Config, directory: RunDirectory, *, images: int = STUDENT_IMAGES, epochs: int = 2
) -> StudentResult:
    """Train a student on fresh samples with the classes they were asked for; test on real images.

    Where a filter hides something of samples, test images go through it too, as devices' will.
    Simulation only: the test images are real and their use is in no budget.
    """
    if config.data.unlabelled:
        raise RunDirectoryError(
            f"samples of {directory.path} were asked for no class: take --labels annotator where "
            "some users' records have labels, or --project, what people said of them"
        )
    if config.privatizer.conditioned:
        raise RunDirectoryError(
            f"classes of {directory.path} are pairs with a sensitive value, which no "
            "test image has: train the run without privatizer.condition, or measure it by `fedlens "
            "study federated`"
        )
    sampler, seed = kept_sampler(directory), config.seed + STUDENT_SEED
    samples, labels = seen_samples(sampler, images, seed)
    return tested_student(config, directory, samples, labels, epochs)


@timed("students")
def measure_taught_student(
    config: Config,
    directory: RunDirectory,
    *,
    images: int = TAUGHT_IMAGES,
    epochs: int = TAUGHT_EPOCHS,
) -> StudentResult:
    """Train a student on changed samples with the annotator's labels; test on real images.

    Simulation only, as `measure_student`.

    Raises:
        ValueError: the run has no annotator.
    """
    real, truth, _ = _labelled_test_set(config)
    tests = as_devices_send(directory, real, config.seed + STUDENT_SEED), truth
    return annotators_student(config, directory, tests, images=images, epochs=epochs)


def annotators_student(
    config: Config,
    directory: RunDirectory,
    tests: tuple[Tensor, Tensor] | None = None,
    *,
    images: int = TAUGHT_IMAGES,
    epochs: int = TAUGHT_EPOCHS,
) -> StudentResult:
    """A student of changed samples with the annotator's labels.

    Args:
        config: the run's.
        directory: the run's.
        tests: images [n, c, h, w] in [-1, 1] and their classes int64 [n]; None: fresh samples and
            what the annotator calls them.
        images: how many it learns from.
        epochs: passes over them.

    Raises:
        RunDirectoryError: the annotator cannot label samples, or there is none.
    """
    sampler = _teacher(config, directory)
    if tests is None:
        drawn, _ = fresh_samples(sampler, AGREED_ON, config.seed)
        tests = drawn, sampler.label(drawn).argmax(1)
    return taught_student(
        sampler,
        *tests,
        images=images,
        epochs=epochs,
        seed=config.seed + STUDENT_SEED,
        augmentation=spec_of(config.data.name).augmentation,
        distortion=spec_of(config.data.name).distortion,
    )


def _teacher(config: Config, directory: RunDirectory) -> Sampler:
    """A run's sampler, whose annotator can label its samples.

    Raises:
        RunDirectoryError: it cannot.
    """
    torch.set_num_threads(training_threads(config))
    sampler = kept_sampler(directory)
    if config.privatizer.pairs:
        without = "train the run without privatizer.condition"
        fix = without if config.privatizer.conditioned else "take --labels requested"
        raise RunDirectoryError(
            f"the annotator of {directory.path} cannot label its samples: it reads pairs of class "
            f"and sensitive value; {fix}"
        )
    if sampler.annotator is None:
        raise RunDirectoryError(
            f"{directory.path} has no annotator that could label its samples: let people label "
            "them and take --project, or train with a task of kind 'annotator'"
        )
    return sampler


def tested_student(
    config: Config, directory: RunDirectory, images: Tensor, labels: Tensor, epochs: int
) -> StudentResult:
    """A student of images in [-1, 1] with classes, tested on real images as devices send them."""
    torch.set_num_threads(training_threads(config))
    real, truth, classes = _labelled_test_set(config)
    sent = as_devices_send(directory, real, config.seed + STUDENT_SEED)
    return train_student(
        images, labels, sent, truth, classes=classes, epochs=epochs, seed=config.seed
    )


def is_measurable(config: Config) -> bool:
    """Whether real test images have labels under the names that the run's samples have."""
    return config.data.labels != NONE and _real_test_set(config) is not None


def _real_test_set(config: Config) -> tuple[Tensor, Tensor] | None:
    dataset, _ = simulated_federation(config.data, config.seed)
    return real_test_set(config.data, dataset.class_names)


def _labelled_test_set(config: Config) -> tuple[Tensor, Tensor, int]:
    found = None if config.data.labels == NONE else _real_test_set(config)
    if found is None:
        raise RunDirectoryError(
            f"data.labels = {config.data.labels!r}: the samples have no names, or other ones than "
            "the test images: train a student on what people said of them, with --project"
        )
    return *found, simulated_federation(config.data, config.seed)[0].classes


def describe_labels(config: Config) -> str:
    """In words, what records are labelled by where it is not by their own labels, else nothing."""
    data = config.data
    if data.labels == NONE:
        return "records have no labels: samples are unlabelled, and what needs labels is left out"
    if data.partly_labelled:
        return (
            "records without labels count too: samples are unlabelled, and the annotator learns "
            "from records with labels alone"
        )
    if data.label_model:
        sure = data.least_confidence
        left = f"; those it is less than {sure:.0%} sure of take no part" if sure else ""
        which = "records without labels" if data.labels.startswith(OWN_OR) else "their records"
        return f"devices name {which} by {Path(data.label_model).name}{left}"
    return ""


def what_to_expect(config: Config) -> str:
    """One line on what a run over simulated users can give, before it spends anything."""
    dataset, dealt = simulated_federation(config.data, config.seed)
    if config.privatizer.pairs:
        return ""
    # how much real people hold is theirs: of what somebody brought it goes by what is declared
    public = spec_of(config.data.name).public
    held = float(dealt.sizes.mean()) if public else config.data.records_per_user or RECORDS
    return expectation(config, dataset.classes, held)


def describe_noise(config: Config) -> str:
    """A warning in words where a run protects no user, else nothing."""
    if noise_source(config) == "fixed-seed":
        return "TEST RUN: noise from a fixed seed protects no user"
    if not config.noised:
        return "NOT PRIVATE: a task adds no noise; use it on public data only"
    return ""
