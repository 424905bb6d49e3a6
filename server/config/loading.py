"""Reading a configuration: TOML files, ``key=value`` settings, Flower's run config."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedlens.foundation.toml import parse_toml
from fedlens.server.config.tree import RUN_KEYS, Config, ConfigError, flatten

SHORT_NUMBER = re.compile(r"[+-]?(\d+\.|\.\d+)")
"""Numbers that TOML does not take."""


def read_config(path: Path, base: Config | None = None) -> Config:
    """The configuration in a TOML file, over ``base`` or the defaults.

    Raises:
        ConfigError: the file is missing, is not TOML, or holds a setting that cannot be used.
    """
    tree = _read_tree(path)
    return (base or Config()).updated(flatten(tree))


def _read_tree(path: Path) -> dict[str, Any]:
    try:
        return parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def parse_setting(text: str) -> tuple[str, object]:
    """``"section.key=value"`` as its key and typed value; bare words are strings.

    Numbers may lack a digit beside the point, as people write them: ``.5``.

    Raises:
        ConfigError: there is no ``=`` in it.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r} cannot be used: write KEY=VALUE")
    if SHORT_NUMBER.fullmatch(value.strip()):
        return key.strip(), float(value)
    try:
        return key.strip(), parse_toml(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def read_run_config(run_config: Mapping[str, object]) -> Config:
    """The configuration in Flower's flat run config, with ``run.settings`` over it.

    Flower lets a submission override keys that the app lists, but not remove or add any, so tables
    of tasks that no schedule names are left out, and ``run.settings`` takes TOML text.

    Raises:
        ConfigError: as `Config.updated`, or ``run.settings`` is not TOML.
    """
    more = settings_over(run_config)
    wanted = {key: value for key, value in run_config.items() if key not in RUN_KEYS}
    if "schedule" not in wanted:
        return Config().updated(wanted).updated(more)
    listed = str(wanted["schedule"]).split()
    added = set(str(more.get("schedule", "")).split()) - set(listed)
    first = {key: value for key, value in wanted.items() if _task_of(key) in (None, *listed)}
    later = {key: value for key, value in wanted.items() if _task_of(key) in added}
    return Config().updated(first).updated({**_of_the_same_kind(later, more), **more})


def settings_over(run_config: Mapping[str, object]) -> dict[str, Any]:
    """What ``run.settings`` of Flower's run config says over its other settings, flat.

    Raises:
        ConfigError: it is not TOML.
    """
    try:
        return flatten(parse_toml(str(run_config.get("run.settings", ""))))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"run.settings is not TOML: {error}") from None


def _task_of(key: str) -> str | None:
    """The task that a setting is of, or None for one of the whole run."""
    return key.split(".")[1] if key.startswith("tasks.") else None


def _of_the_same_kind(
    settings: Mapping[str, object], more: Mapping[str, object]
) -> dict[str, object]:
    """Those of tasks to which ``more`` gives no other kind: another one starts from defaults."""
    kinds = {key: value for key, value in settings.items() if key.endswith(".kind")}
    changed = {_task_of(key) for key, value in kinds.items() if more.get(key, value) != value}
    return {key: value for key, value in settings.items() if _task_of(key) not in changed}
