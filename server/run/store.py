"""Where a run's samples go: named by the ServerApp's environment, where the URL is a secret.

What stands in a run's configuration travels to every node, so a password must not stand there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from fedlens.server.config.tree import ConfigError

VARIABLE, FILE_VARIABLE = "FEDLENS_RUN_STORE", "FEDLENS_RUN_STORE_FILE"


def store_url(configured: str, environment: Mapping[str, str]) -> str:
    """The URL of the store of a run; empty for the run directory's own.

    Args:
        configured: ``run.store``, which every node can read.
        environment: of the process; ``FEDLENS_RUN_STORE`` holds the URL, or
            ``FEDLENS_RUN_STORE_FILE`` names a file that does.

    Raises:
        ConfigError: ``run.store`` has a password, or the file cannot be read.
    """
    if environment.get(VARIABLE):
        return environment[VARIABLE]
    if named := environment.get(FILE_VARIABLE):
        return _read(Path(named))
    if configured and _has_password(configured):
        raise ConfigError(
            "run.store has a password, and a run's configuration travels to every node: name the "
            f"store by {VARIABLE}, or a file with it by {FILE_VARIABLE}, where the SuperLink runs"
        )
    return configured


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{FILE_VARIABLE}: {path} can be read by others: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"{FILE_VARIABLE}: {path}: {error.strerror}") from None


def _has_password(url: str) -> bool:
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):  # a port that is no number is the latter
        return False
    return bool(parsed.password) or "password" in parsed.query
