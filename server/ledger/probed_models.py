"""The networks of earlier runs that probes ask: what their training released is not the probe's."""

from __future__ import annotations

from pathlib import Path

from fedlens.server.config.tasks import ProbeConfig
from fedlens.server.config.tree import Config
from fedlens.server.ledger.earlier_run import NamedRun


def check_probed_models(config: Config) -> None:
    """Refuse a probe that would ask a network trained without a guarantee, where it has one.

    Such a network may tell of single people, and so may what users answer about it, whatever the
    probe's own noise.

    Raises:
        ConfigError: saying so, or there is no such run.
    """
    for setting, model in _named(config).items():
        named = NamedRun(setting, model, "", other_people=False)
        named.check_private(config, named.opened()[1])


def cost_of_models(config: Config) -> str:
    """In words, what a probe's figures leave out; empty where they leave out nothing."""
    runs = sorted({Path(model).name for model in _named(config).values()})
    if not runs:
        return ""
    return (
        f"The question asks the annotator of run {', '.join(runs)}: what that run released of the "
        "same users comes on top, and these figures leave it out."
    )


def _named(config: Config) -> dict[str, str]:
    return {
        f"tasks.{name}.model": task.model
        for name, task in config.planned.items()
        if isinstance(task, ProbeConfig) and task.model
    }
