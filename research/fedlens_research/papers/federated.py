"""A federation makes a filter, and samples that show what it lets through: who reads the attribute?

The whole run is differentially private at user level and has one ledger. Everything below it is
simulation only: fresh attackers are trained on images that no user of the run holds.

Rows, by ``where`` the sensitive attribute is looked for:
    raw         images as they are: what there is to hide
    filtered    filtered images; attackers have seen filtered images of others
    samples     samples as they are released, by attackers that were trained on samples with their
                requested sensitive attributes
    transfer    samples, by attackers that were trained on filtered images
    taught      filtered images, by attackers that were trained on samples
    consenting, observed, unobserved   filtered images of users who do not mind, of users who took
                part in training and hide, and of others who hide (where some users consent)
    second …    as samples, transfer and taught, of a second run: its nodes look through the first
                one's filter, and its generator learns from filtered images alone
and ``utility`` is how often a student of the samples (of such images, where there are no samples)
reads the class of *filtered* test images, which is what a service will get; where a run makes a
filter and nothing else, the student has all filtered images that no user holds. ``code_reader`` has
the filter's weights, as every node does, and reads the noisy code of a filtered image, with all
images that no user holds: no reader of a filtered image can know more than the best reader of the
code, which this one estimates from below. Where the sensitive attribute is the strokes' thickness,
an attacker that computes it is one of them. ε is the run's; of a second run's rows it is that of
both runs together, which are about the same users.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedlens import simulations
from fedlens.accountant.dp.differential import DifferentialAccountant
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.foundation.tables import Row
from fedlens.privatizers.attacks.attack_runs import build_attackers, read_all
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.formula import with_formula
from fedlens.privatizers.attacks.gate import CODE_COLUMNS, judge_code
from fedlens.privatizers.attacks.targets import FilterTarget
from fedlens.privatizers.private_data import PrivateData
from fedlens.server.config.loading import parse_setting, read_config
from fedlens.server.config.tree import Config
from fedlens.server.ledger.run_ledger import spending_of
from fedlens.server.round.status import OnProgress, Progress
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.engine import train_in_process
from fedlens.simulations.students.students import train_student
from fedlens_research.framework.charts import plot_sheet
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.settings import ONE_WAY, check_names
from fedlens_research.framework.study import SeedTrial
from fedlens_research.framework.trials import Report
from fedlens_research.papers.federated_data import (
    FilteredRun,
    groups_of,
    halves,
    opened,
    samples_of,
)

COLUMNS = (
    "seed", "where", *CODE_COLUMNS, "attacker", "attacker_formula", "leak_at_least", "utility",
    "epsilon", "delta",
)  # fmt: skip
PRESETS = Path(simulations.__file__).parent / "presets"
SHOWN = 10  # Images of the sheet
EPOCHS = 3  # of attackers that are networks, at least
Keep = Callable[[Mapping[str, Any], Callable[[], list[Row]]], list[Row]]
"""Keeps rows under a key, or reads those that are kept: `SeedTrial.rows`."""
FORMULAS = {"thickness": "mnist-thickness"}
"""Sources whose sensitive attribute is computed as one of a run's is."""


@dataclass(frozen=True)
class FederatedSettings:
    """What is run and who attacks it."""

    preset: str  # a configuration with a privatizer: a preset's name, or a path without ``.toml``
    attackers: tuple[str, ...]  # fresh ones, by name
    attacker_steps: int  # at least so many batches of those that are networks
    code_steps: int  # batches of the network that reads the filter's code
    samples: int  # drawn from the generator, half to train attackers and half to test them
    epochs: int  # of the student
    second: bool = False  # whether a second run follows, with the first one's filter on its nodes
    run: tuple[str, ...] = ()  # settings of the run over its preset's, ``tasks.critic.rounds=2``

    def __post_init__(self) -> None:
        check_names("attackers", self.attackers, ATTACKERS)
        self.changes()

    def changes(self) -> dict[str, Any]:
        """The run's own settings, by dotted key.

        Raises:
            ConfigError: one is not KEY=VALUE.
        """
        return dict(parse_setting(one) for one in self.run)


SETTINGS = FederatedSettings


def run_seed(settings: FederatedSettings, trial: SeedTrial) -> list[Row]:
    """Train (or take up) a run, and attack what comes of it.

    Raises:
        StudyError: the preset trains no privatizer.
        DatasetError, ConfigError: what they say.
    """
    seed, report = trial.seed, trial.report
    config = _config(settings, seed, trial.data_dir)
    first = _trained(config, trial.out / f"run-{seed}", report)
    spent = _guarantee(config, first)
    report(f"seed {seed}: trained, {_words(spent)}")
    filtered = opened(config, first, seed)
    if trial.first:
        _plot_before_and_after(filtered, trial.out / "federated-sheet.png")
    found = _rows(settings, filtered, trial.rows)
    rows = [{"seed": seed, **row, **spent} for row in found]
    if settings.second:
        second = RunDirectory(trial.out / f"second-{seed}")
        # a study that was moved goes on with the run that is there
        follows = second.config() if second.exists() else seconded(config, first.path)
        _trained(follows, second.path, report)
        spent = _guarantee(follows, first, second)
        report(f"seed {seed}: second run trained, {_words(spent)}")
        found = trial.rows(
            {"run": "second"},
            lambda: _sample_rows(settings, opened(follows, second, seed), "second "),
        )
        rows += [{"seed": seed, **row, **spent} for row in found]
    for row in rows:
        report(f"seed {seed}: {row['where']} attacker {row['attacker']:.3f}{_coded(row)}")
    return rows


def _coded(row: Row) -> str:
    code = row.get("code_reader")
    return "" if code is None else f", code's reader {code:.3f}"


def draw(rows: Sequence[Row], settings: FederatedSettings, out: Path) -> None:
    """Nothing: the sheet needs records, and the runs' own folders have their pictures."""


def _plot_before_and_after(trained: FilteredRun, path: Path) -> None:
    """Test images as they are and as the run's filter releases them."""
    few = trained.test.take(slice(0, SHOWN))
    plot_sheet({"raw": few.records, "filtered": trained.filtered(few).records}, path)


def seconded(config: Config, folder: Path) -> Config:
    """The same run once more, whose nodes look through the filter of the one in ``folder``.

    Its generator is asked for pairs, of filtered images, so that there is a sensitive attribute to
    try attackers
    on. Pairs' sums differ by their noise too, so that what is read of samples may be no sensitive
    attribute: rows ``transfer`` and ``taught`` tell.
    """
    used = (
        "network", "width", "output_noise_std", "capacity", "highest_frequency",
        "sensitive_attribute", "consenting",
    )  # fmt: skip
    known = config.privatizer.model_dump()
    kept = {f"privatizer.{name}": known[name] for name in used if name in known}
    given = {"privatizer.kind": "pretrained", "privatizer.path": str(folder)}
    left = [name for name, task in config.planned.items() if not task.trains_filter_by]
    if not left:
        raise StudyError("second: this run makes a filter and nothing else; leave second out")
    after = {"schedule": " ".join(left), "privatizer.condition": True}
    return config.updated({**kept, **given, **after})


def _trained(config: Config, folder: Path, report: Report) -> RunDirectory:
    directory = RunDirectory(folder)
    if directory.exists():
        config = directory.config()  # a preset may have changed since
    else:
        directory = RunDirectory.create(directory.path, config)
    train_in_process(config, directory, directory.default_store, _rounds_told(report))
    return directory


def _rounds_told(report: Report) -> OnProgress:
    """An observer of a run that tells of its rounds, twenty times at most."""
    told: set[int] = set()

    def show(progress: Progress) -> None:
        every = max(1, progress.rounds // 20)
        if progress.round % every == 0 and progress.round not in told:
            told.add(progress.round)
            report(f"round {progress.round} of {progress.rounds}")

    return show


def _config(settings: FederatedSettings, seed: int, data_dir: Path | None) -> Config:
    config = read_config(PRESETS / f"{settings.preset}.toml")
    config = config.updated({**ONE_WAY, **settings.changes(), "seed": seed})
    if not config.privatizer.training:
        raise StudyError(f"preset {settings.preset!r} trains no privatizer: name one that does")
    return config if data_dir is None else config.updated({"data.dir": str(data_dir.absolute())})


def _guarantee(config: Config, *runs: RunDirectory) -> Row:
    """DP ε of everything that is in the ledgers of runs on the same users.

    Raises:
        LedgerError: a ledger cannot be trusted, or is not of its run's configuration.
    """
    account = DifferentialAccountant()
    for directory in runs:
        spending_of(directory.config(), directory)
        for entry in Ledger.read(directory.ledger).entries:
            account.compose(entry.event)
    delta = config.privacy.delta
    return {"epsilon": account.epsilon(delta).epsilon, "delta": delta}


def _words(spent: Row) -> str:
    return f"DP ε = {spent['epsilon']:.3g} at δ = {spent['delta']:g}"


def _rows(
    settings: FederatedSettings, trained: FilteredRun, keep: Keep = lambda _, make: make()
) -> list[Row]:
    """Rows of one run, kept as they come."""

    def row_of(
        where: str, both: tuple[PrivateData, PrivateData], taught: PrivateData | None = None
    ) -> list[Row]:
        known, tried = both[0] if taught is None else taught, both[1]
        return [{**_read(settings, trained, where, *both), "utility": _use(settings, known, tried)}]

    def filtered() -> list[Row]:
        # without samples the images that no user holds teach a student, all of them
        taught = trained.filtered(trained.known) if trained.sampler is None else None
        (row,) = row_of("filtered", _filtered_parts(trained), taught)
        target = FilterTarget(trained.network, trained.known, trained.test, trained.seed)
        return [{**row, **judge_code(target, settings.code_steps)[0]}]

    rows = keep({"where": "raw"}, lambda: row_of("raw", (trained.attack, trained.test)))
    rows = rows + keep({"where": "filtered"}, filtered)
    if trained.config.privatizer.pairs:
        rows = rows + keep({"where": "samples"}, lambda: _sample_rows(settings, trained))
    for where, both in groups_of(trained).items():
        rows = rows + keep({"where": where}, lambda where=where, both=both: row_of(where, both))  # type: ignore[misc]
    return rows


def _filtered_parts(trained: FilteredRun) -> tuple[PrivateData, PrivateData]:
    return trained.filtered(trained.attack), trained.filtered(trained.test)


def _sample_rows(settings: FederatedSettings, trained: FilteredRun, before: str = "") -> list[Row]:
    """What is read of samples of pairs, by attackers that learned from them or from images."""
    attack, test = _filtered_parts(trained)
    samples = samples_of(trained, settings.samples)
    taught, tried = halves(samples, trained.seed)
    utility = _use(settings, samples, test)
    return [
        {**_read(settings, trained, f"{before}samples", taught, tried), "utility": utility},
        {**_read(settings, trained, f"{before}transfer", attack, samples), "utility": None},
        {**_read(settings, trained, f"{before}taught", samples, test), "utility": None},
    ]


def _read(
    settings: FederatedSettings,
    trained: FilteredRun,
    where: str,
    taught: PrivateData,
    tried: PrivateData,
) -> Row:
    """What fresh attackers that learned from the one read of the other."""
    attribute = getattr(trained.config.privatizer, "sensitive_attribute", "")
    fresh = with_formula(
        build_attackers(settings.attackers, settings.attacker_steps, epochs=EPOCHS),
        taught,
        FORMULAS.get(attribute, ""),
        steps=settings.attacker_steps,
        seed=trained.seed + 7,
    )
    return {"where": where, **read_all(fresh, taught, tried, trained.seed)}


def _use(settings: FederatedSettings, taught: PrivateData, tried: PrivateData) -> float:
    """How often a student of the one reads the class of the other."""
    data = taught.records, taught.utility, tried.records, tried.utility
    classes, epochs = tried.utility_classes, settings.epochs
    return train_student(*data, classes=classes, epochs=epochs, seed=0).accuracy
