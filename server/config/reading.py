"""Reading a configuration: TOML files, ``key=value`` settings, and the list of all there are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from server.config.tree import Config, ConfigError


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, object]:
    """Nested tables as flat dotted keys."""
    flat: dict[str, object] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


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


def documented_settings() -> list[tuple[str, object, str]]:
    """Every setting as (flat key, default, section), in the order of the tree."""
    defaults = Config().flat()
    order = ["seed"] + [
        f"{section.name}.{item.name}"
        for section in fields(Config)
        if section.name != "seed"
        for item in fields(getattr(Config(), section.name))
    ]
    return [(key, defaults[key], key.rpartition(".")[0]) for key in order]
