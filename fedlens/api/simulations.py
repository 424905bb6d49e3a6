"""Training a run on simulated users, and going on with one that was interrupted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedlens.api.presets import preset_config
from fedlens.api.runs import Run
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.server.config.tree import Config
    from fedlens.server.round.status import Progress
    from fedlens.server.run.directory import RunDirectory
    from fedlens.simulations.engine import Train

TRANSPORTS = ("in-process", "processes", "ray")
RUNS = Path("runs")


class Place(NamedTuple):
    """A new run's directory, and where the run that was there before is kept, if one was."""

    directory: RunDirectory
    kept: Path | None


@dataclass(frozen=True)
class SimulationSettings:
    """What a run starts from, where it goes, and how it is trained.

    Attributes:
        preset: what to start from, one of `preset_names`.
        settings: single settings by dotted key, over preset and ``config``.
        config: a TOML file over the preset, or a whole configuration instead of it.
        epsilon: scale the noise of all tasks by one factor, so that the whole run has this DP ε.
        delta: δ of ``epsilon``, and of the run from then on.
        data_dir: folder of the data set's files.
        out: the run's directory; the default is ``runs/PRESET-1``, ``-2``, ...
        overwrite: rename a run that is at ``out`` already; what it spent still counts.
        store: URL of the store of samples; the default is a SQLite file in the directory.
        transport: how messages travel, one of `TRANSPORTS`.
        student: also train a classifier on samples and test it on real images (simulation only:
            that use of real images is in no budget).

    Raises:
        WrongUse: there is no such transport.
    """

    preset: str = "demo"
    settings: Mapping[str, object] | None = None
    config: Path | str | Config | None = None
    epsilon: float | None = None
    delta: float | None = None
    data_dir: Path | str | None = None
    out: Path | str | None = None
    overwrite: bool = False
    store: str = ""
    transport: str = "in-process"
    student: bool = True

    def __post_init__(self) -> None:
        _check_transport(self.transport)

    def configuration(self) -> Config:
        """The run's configuration.

        Raises:
            WrongUse: a setting cannot be used.
        """
        return chosen_config(
            self.preset, config=self.config, settings=self.settings, epsilon=self.epsilon,
            delta=self.delta, data_dir=self.data_dir,
        )  # fmt: skip


def simulate(
    preset: str = "demo", *, progress: Callable[[Progress], None] | None = None, **settings: Any
) -> Run:
    """Train a generator on simulated users' data, under differential privacy.

    Nothing is released before its cost is in the run's ledger on disk; a process that is killed at
    any instant loses no entry, and `resume` goes on.

    Args:
        preset: what to start from, one of `preset_names`.
        progress: is told of every step of every round.
        **settings: the other fields of `SimulationSettings`, by name: ``out``, ``settings``,
            ``epsilon``, ...

    Raises:
        TypeError: there is no such field.
        WrongUse: a setting cannot be used.
        FedlensError: of a kind that says what else prevents the run: data, population, directory.
    """
    asked = SimulationSettings(preset, **settings)
    config = asked.configuration()
    place = prepare(config, preset, out=asked.out, overwrite=asked.overwrite)
    return train(config, place.directory, asked, progress)


def resume(
    path: Path | str,
    *,
    store: str = "",
    transport: str = "in-process",
    progress: Callable[[Progress], None] | None = None,
    student: bool = True,
    only_copy: bool = False,
) -> Run:
    """Go on with a run from its last whole round; a finished one is only summed up again.

    What was spent stays spent; a release that was paid for but lost with the process is not drawn
    again.

    Args:
        path: its directory.
        store: URL of its store, where it is not the one that the run remembers.
        transport: how messages travel, one of `TRANSPORTS`.
        progress: is told of every step of every round.
        student: also train a classifier on samples.
        only_copy: say that this directory, which was moved, copied or restored, is the only one
            that will go on.

    Raises:
        FedlensError: there is no run at ``path``, it is one over real nodes, another process trains
            it, or what it left cannot be trusted.
    """
    from fedlens.server.run.directory import RunDirectory
    from fedlens.server.run.place import bind

    directory = RunDirectory.open(Path(path))
    directory.require_simulated()
    if only_copy:
        with directory.locked():
            bind(directory)
    asked = SimulationSettings(store=store, transport=transport, student=student)
    return train(directory.config(), directory, asked, progress)


def chosen_config(
    preset: str = "demo",
    *,
    config: Path | str | Config | None = None,
    settings: Mapping[str, object] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    data_dir: Path | str | None = None,
) -> Config:
    """The configuration that `simulate` would train, from the same arguments.

    Raises:
        WrongUse: an argument cannot be used.
    """
    from fedlens.server.config.loading import read_config

    chosen = preset_config(preset) if config is None or isinstance(config, Path | str) else config
    if isinstance(config, Path | str):
        chosen = read_config(Path(config), chosen)
    chosen = chosen.updated(dict(settings or {}))
    if data_dir:
        chosen = chosen.updated({"data.dir": str(Path(data_dir).absolute())})
    # the server may run elsewhere
    places = {key: str(_absolute(named)) for key, named in _other_runs(chosen).items()}
    if chosen.data.label_model:
        places["data.labels"] = (
            f"{chosen.data.labels.removesuffix(chosen.data.label_model)}"
            f"{_absolute(chosen.data.label_model)}"
        )
    chosen = chosen.updated(places)
    return _to_guarantee(chosen, epsilon, delta)


def _other_runs(config: Config) -> dict[str, str]:
    """Where the run lies that this one builds on, by the setting that names it."""
    named = {"privatizer.path": config.privatizer.asked_run, "split.model": config.split.model}
    return {key: path for key, path in named.items() if path}


def _absolute(named: str) -> Path:
    """As a shell would read it; no other ``~`` than one's own home is meant."""
    path = Path(named)
    return (path.expanduser() if named.startswith("~/") else path).absolute()


def _to_guarantee(config: Config, epsilon: float | None, delta: float | None) -> Config:
    """The configuration with the noise that a guarantee needs, if one is asked for."""
    from fedlens.server.config.schedule import scaled
    from fedlens.server.learning.builds_on import released_before

    if epsilon is None:
        if delta is not None:
            raise WrongUse(f"delta {delta:g}: give epsilon too, or set privacy.delta")
        return config
    if delta is not None:
        config = config.updated({"privacy.delta": delta})
    before = released_before(config)
    return scaled(config, epsilon=epsilon, delta=config.privacy.delta, prior=before)


def prepare(
    config: Config, name: str, *, out: Path | str | None = None, overwrite: bool = False
) -> Place:
    """Make the directory of a new run, once it is certain that the run can begin.

    Neither a population without means nor bad data leaves a run behind.

    Args:
        config: of the run.
        name: of the default directory.
        out: the directory.
        overwrite: rename what is there.
    """
    from fedlens.server.config.schedule import check_affordable
    from fedlens.server.learning.builds_on import check_earlier
    from fedlens.server.ledger.population import check_room
    from fedlens.server.run.directory import RunDirectory
    from fedlens.simulations.federation.apps import check_planted, simulated_sensitive

    check_affordable(config)
    check_room(config)
    check_earlier(config)
    check_planted(config)
    simulated_sensitive(config)
    path = Path(out) if out is not None else _free_path(RUNS, name)
    kept = None
    if overwrite and RunDirectory(path).exists():
        _check_apart(config, path)
        kept = RunDirectory(path).set_aside()
    return Place(RunDirectory.create(path, config), kept)


def _check_apart(config: Config, out: Path) -> None:
    """Refuse to set the run aside that the new one builds on."""
    for key, named in _other_runs(config).items():
        if Path(named).resolve() == out.resolve():
            raise WrongUse(
                f"overwrite would set {out} aside, which {key} names: name another --out"
            )


def _free_path(parent: Path, name: str) -> Path:
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"


def train(
    config: Config,
    directory: RunDirectory,
    asked: SimulationSettings,
    progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Train in a directory that `prepare` made, or go on in it, and keep a summary there.

    Args:
        config: of the run.
        directory: of the run.
        asked: ``store``, ``transport`` and ``student``.
        progress: is told of every step of every round.
    """
    from fedlens.simulations import engine

    summary = engine.simulate(
        config,
        directory,
        store_url=asked.store,
        trainer=_trainer(asked.transport),
        observer=progress,
        student=asked.student,
    )
    run = Run(directory.path, directory.store_url(asked.store))
    run.keep(summary, directory)
    _keep_card(run)
    directory.date_everything()
    return run


def _keep_card(run: Run) -> None:
    """Write the card of a run that released one, for the dashboard; it costs nothing."""
    from fedlens.api.cards import read_card
    from fedlens.server.config import needs

    if run.config.providers(needs.CARD):
        with suppress(WrongUse):  # one that says nothing is said to by `fedlens card`
            read_card(run)


def _check_transport(transport: str) -> None:
    if transport not in TRANSPORTS:
        raise WrongUse(f"transport {transport!r}: choose one of {', '.join(TRANSPORTS)}")


def _trainer(transport: str) -> Train:
    if transport == "ray":
        from fedlens.simulations.transports.ray import train_through_ray

        return train_through_ray
    if transport == "processes":
        from fedlens.simulations.engine import train_in_processes

        return train_in_processes
    from fedlens.simulations.engine import train_in_process

    return train_in_process
