"""Reading a configuration: TOML files, ``key=value`` settings, Flower's run config."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

from server.config.tree import RUN_KEYS, Config, ConfigError, flatten


def read_config(path: Path, base: Config | None = None) -> Config:
    """The configuration in a TOML file, over ``base`` or the defaults.

    Raises:
        ConfigError: the file is missing, is not TOML, or holds a setting that cannot be used.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    return (base or Config()).updated(flatten(tree))


def parse_setting(text: str) -> tuple[str, object]:
    """``"section.key=value"`` as its key and typed value; bare words are strings.

    Raises:
        ConfigError: there is no ``=`` in it.
    """
    key, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text!r} cannot be used: write KEY=VALUE")
    try:
        return key.strip(), tomllib.loads(f"v = {value}")["v"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def read_run_config(run_config: Mapping[str, object]) -> Config:
    """The configuration in Flower's flat run config, with ``run.settings`` over it.

    Flower lets a submission override keys that the app lists, but not remove or add any, so tables
    of tasks that the schedule does not name are left out, and ``run.settings`` takes TOML text.

    Raises:
        ConfigError: as `Config.updated`, or ``run.settings`` is not TOML.
    """
    named = str(run_config.get("schedule", "")).split()
    wanted = {
        key: value
        for key, value in run_config.items()
        if key not in RUN_KEYS and not (key.startswith("tasks.") and key.split(".")[1] not in named)
    }
    try:
        more = tomllib.loads(str(run_config.get("run.settings", "")))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"run.settings is not TOML: {error}") from None
    return Config().updated(wanted).updated(flatten(more))
