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


def read_run_config(settings: Mapping[str, object]) -> Config:
    """The configuration in Flower's flat run config.

    Flower lets a submission override keys of the app's own configuration, but not remove them, so
    tables of tasks that the schedule does not name are left out here.

    Raises:
        ConfigError: as `Config.updated`.
    """
    named = str(settings.get("schedule", "")).split()
    wanted = {
        key: value
        for key, value in settings.items()
        if key not in RUN_KEYS and not (key.startswith("tasks.") and key.split(".")[1] not in named)
    }
    return Config().updated(wanted)
