"""The configurations that ship."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fedlens import simulations
from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.server.config.tree import Config

PRESETS = Path(simulations.__file__).parent / "presets"


def preset_names() -> list[str]:
    """Names of the presets that ship, sorted."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def preset_config(name: str) -> Config:
    """A preset's configuration.

    Raises:
        WrongUse: there is no such preset.
    """
    from fedlens.server.config.loading import read_config

    if name not in preset_names():
        raise WrongUse(f"preset {name!r}: choose one of {', '.join(preset_names())}")
    return read_config(PRESETS / f"{name}.toml")
