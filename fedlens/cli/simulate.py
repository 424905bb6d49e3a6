"""``fedlens simulate``: train a run on simulated users."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

import simulations
from fedlens.cli.output import add_json_flag, figure, print_json, program, progress_bar, say

if TYPE_CHECKING:
    from server.config.tree import Config
    from server.run_directory import RunDirectory
    from simulations.engine import Summary

PRESETS = Path(simulations.__file__).parent / "presets"
TRANSPORTS = ("in-process", "ray")


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The verb and its flags."""
    parser = verbs.add_parser(
        "simulate",
        help="train a generator on simulated users' data",
        description="Train a generator on simulated users' data and show what came out.",
        epilog="example: fedlens simulate --preset demo --set data.users=500 --out runs/small\n\n"
        + _settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", default="demo", help=f"one of {', '.join(preset_names())}")
    parser.add_argument("--config", type=Path, help="TOML file of settings, over the preset")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="settings",
        metavar="KEY=VALUE",
        help="one setting, over both; may be repeated",
    )
    parser.add_argument(
        "--epsilon",
        type=float,
        help="scale the noise of all tasks by one factor, so that the whole run has this DP ε",
    )
    parser.add_argument(
        "--delta", type=float, help="δ of --epsilon, and privacy.delta of the run from then on"
    )
    parser.add_argument("--data-dir", help="folder of the data set's files (data.dir)")
    parser.add_argument("--out", type=Path, help="run directory (default: runs/PRESET, numbered)")
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="rename a run that is in --out to make room for this one",
    )
    parser.add_argument("--store", default="", help="URL of the store (default: in the directory)")
    parser.add_argument(
        "--transport", choices=TRANSPORTS, default="in-process", help="how messages travel"
    )
    parser.add_argument("--no-student", action="store_true", help="do not train a student")
    add_json_flag(parser)
    parser.set_defaults(run=run)


def _settings_help() -> str:
    from server.config.reference import tables

    lines = []
    for table in tables():
        lines += [f"  {table.title}"] if table.title else []
        lines += [f"  {setting.key} = {setting.default!r}" for setting in table.settings]
    return "settings and their defaults (the reference says what they mean):\n" + "\n".join(lines)


def preset_names() -> list[str]:
    """The presets that ship."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def chosen_config(args: argparse.Namespace) -> Config:
    """Preset, then file, then single settings."""
    from server.config.reading import parse_setting, read_config
    from server.config.tree import ConfigError

    if args.preset not in preset_names():
        raise ConfigError(f"--preset {args.preset!r}: choose one of {', '.join(preset_names())}")
    config = read_config(PRESETS / f"{args.preset}.toml")
    if args.config is not None:
        config = read_config(args.config, config)
    config = config.updated(dict(parse_setting(text) for text in args.settings))
    if args.data_dir:
        config = config.updated({"data.dir": str(Path(args.data_dir).absolute())})
    if named := getattr(config.privatizer, "path", ""):  # the server may run elsewhere
        path = Path(named).expanduser() if named.startswith("~/") else Path(named)
        config = config.updated({"privatizer.path": str(path.absolute())})
    return _to_guarantee(config, args.epsilon, args.delta)


def _to_guarantee(config: Config, epsilon: float | None, delta: float | None) -> Config:
    """The configuration with the noise that a guarantee needs, if one is asked for."""
    from server.config.tree import ConfigError
    from server.schedule import scaled

    if epsilon is None:
        if delta is not None:
            raise ConfigError(f"--delta {delta:g}: give --epsilon too, or set privacy.delta")
        return config
    if delta is not None:
        config = config.updated({"privacy.delta": delta})
    return scaled(config, epsilon=epsilon, delta=config.privacy.delta)


def run(args: argparse.Namespace) -> int:
    """Train, sum up, print."""
    config = chosen_config(args)  # before anything slow is loaded

    from server.population import check_room
    from server.pretrained_filter import check_filter
    from server.run_directory import RunDirectory
    from server.schedule import check_affordable
    from simulations.federation.apps import simulated_federation, simulated_sensitive

    check_affordable(config)
    check_room(config)  # neither a population without means nor bad data leaves a run behind
    check_filter(config)
    simulated_federation(config.data, config.seed)
    simulated_sensitive(config)
    out = args.out or _free_path(Path("runs"), args.preset)
    if args.overwrite and RunDirectory(out).exists():
        _check_apart(config, out)
        kept = RunDirectory(out).set_aside()
        say(f"the run that was there is in {kept}; what it spent still counts for its users")
    directory = RunDirectory.create(out, config)
    return finish(args, config, directory)


def _check_apart(config: Config, out: Path) -> None:
    """Refuse to set the run aside whose filter is to be taken."""
    from server.config.tree import ConfigError

    named = getattr(config.privatizer, "path", "")
    if named and Path(named).resolve() == out.resolve():
        raise ConfigError(
            f"--overwrite would set {out} aside, whose filter is to be taken: name another --out"
        )


def finish(args: argparse.Namespace, config: Config, directory: RunDirectory) -> int:
    """Train or go on, print the summary, and give the exit status; shared with ``resume``."""
    from fedlens.cli import DONE, OUT_OF_BUDGET
    from simulations.engine import describe_noise, simulate, train_in_process

    trainer = train_in_process
    if args.transport == "ray":
        from simulations.transports.ray import train_through_ray as trainer
    if warning := describe_noise(config):
        say(warning)
    with progress_bar() as observer:
        summary = simulate(
            config,
            directory,
            store_url=args.store,
            trainer=trainer,
            observer=observer,
            student=not args.no_student,
        )
    _print(summary, "filtered real" if config.privatizer.active else "real")
    budget = getattr(config.privatizer, "budget", math.inf)
    if (summary.sensitive_read_nats or 0) > budget:
        say(
            f"the filter left more of the attribute than privatizer.budget = {budget:g} nats: more "
            "privatizer.steps may hide more"
        )
    if config.privacy.population:
        _print_population(config)
    if args.json:
        print_json(summary.to_json())
    return OUT_OF_BUDGET if summary.stopped else DONE


def _print(summary: Summary, tests: str) -> None:
    epsilon, delta = summary.epsilon, summary.delta
    say(
        f"run {summary.run_id} in {summary.run_dir}: {summary.rounds} rounds, "
        f"{summary.users} {summary.unit}"
    )
    if summary.stopped:
        say(f"stopped by the budget: {summary.stopped}")
    if not summary.rounds:
        return
    if summary.contact_sheet is not None:
        say(f"  contact sheet   {summary.contact_sheet}")
    say(f"  plots           {summary.plots}")
    say(f"  store           {summary.store}")
    if not summary.private:
        say("  guarantee       none; the figures below protect nobody")
    say(
        f"  DP              ε = {figure(epsilon['dp'])} at δ = {delta['dp']:g}, "
        f"{figure(epsilon['dp_at_bayesian_delta'])} at δ = {delta['bdp']:g}"
    )
    say(
        f"  Bayesian DP     ε = {figure(epsilon['bdp_sound'])} (sound), "
        f"{figure(epsilon['bdp_corrected'])} (corrected), "
        f"{figure(epsilon['bdp_as_published'])} (as published) at δ = {delta['bdp']:g}"
    )
    _print_students(summary, tests)
    if summary.sensitive_read is not None:
        say(
            f"  sensitive       a fresh network reads it of {summary.sensitive_read:.1%} of "
            f"filtered samples ({summary.sensitive_read_nats:.2g} nats) with the "
            "output noise that the filter was fitted with; all its values are as frequent there"
        )
    say(f"  took            {summary.seconds:.0f} s")
    say()
    say(summary.statement)
    say()
    say(f"Look at it:  {program()} dashboard {summary.run_dir}")


def _print_students(summary: Summary, tests: str) -> None:
    own, best = summary.own_label_accuracy, summary.student_accuracy
    if own is None or best is None:
        return
    taught = best != own
    if taught:
        say(f"  student         {best:.1%} of {tests} test images right, by the annotator's labels")
    label = "with own labels" if taught else "student        "
    say(f"  {label} {own:.1%} of {tests} test images right, trained on synthetic ones")
    say("                  (students are simulation only: real test images are in no budget)")


def _print_population(config: Config) -> None:
    from accountant.ledger.population import Population
    from server.population import population_folder

    population = Population.read(population_folder(config.privacy.population))
    terms, spent = population.terms, population.spent()
    say(
        f"Population {terms.population}, over all its runs: ε = {figure(spent.epsilon)} of "
        f"{terms.epsilon_budget:g} at δ = {terms.delta:g}"
    )


def _free_path(parent: Path, name: str) -> Path:
    number = 1
    while (parent / f"{name}-{number}").exists():
        number += 1
    return parent / f"{name}-{number}"
