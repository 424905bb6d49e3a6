"""Which of the server's files a run's settings may name: where its owner says so, not operators.

An operator of a deployment sends settings alone. Unless it were limited, a setting could have the
server read or write any file that its account may. The limit is of the server's own environment:
``FEDLENS_PATHS`` holds folders as ``PATH`` does, and ``fedlens deploy start`` sets it. Where it is
not set, as on a machine of one's own, any path may be named.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

from fedlens.server.config.loading import settings_over
from fedlens.server.config.tree import ConfigError

VARIABLE = "FEDLENS_PATHS"
STORE, OUT, SETTINGS = "run.store", "run.out", "run.settings"
WHOLE = (".dir", ".model")
"""How keys end whose whole value may be a path."""
_PATH = re.compile(r"(?:^|[:,=])((?:/|~|\.\.?(?:/|$)|[^:,=]*/\.\.(?:/|$))[^,]*)")
"""A path anywhere in a value such as ``folder:/data/faces,utility=smile``."""


def check_paths(settings: Mapping[str, object], environment: Mapping[str, str]) -> None:
    """Refuse settings of a run that name files outside the folders that the server allows.

    Links are followed, so that a link out of a folder is outside. What ``run.settings`` says over
    the others is looked at like them.

    Args:
        settings: of the run, flat, ``run.out`` and ``run.store`` included.
        environment: of the process.

    Raises:
        ConfigError: naming the setting, its value and the fix; or ``run.settings`` is not TOML.
    """
    if VARIABLE not in environment:
        return
    allowed = [Path(p).resolve() for p in environment[VARIABLE].split(os.pathsep) if p]
    plain = ((key, value) for key, value in settings.items() if key != SETTINGS)
    for key, given in (*plain, *settings_over(settings).items()):
        for value in _texts(given):
            for named in _named(key, value):
                if named is None or not _inside(named, allowed):
                    raise _refused(key, value)


def _texts(value: object) -> Iterator[str]:
    """A value's texts, those of a list or of tables in it too."""
    if isinstance(value, str):
        yield from [value] if value else []
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _texts(one)
    elif isinstance(value, Sequence):
        for one in value:
            yield from _texts(one)


def _named(key: str, value: str) -> list[str | None]:
    """The paths in a value; None for a place that is no file of this machine."""
    if key == STORE:
        return [_file_of_store(value)]
    if key == OUT:
        return [value]
    relative = [value] if key.endswith(WHOLE) or "/" in value else []
    relative += [value[at + 1 :].partition(",")[0] for at, c in enumerate(value) if c == ":"]
    return [*_PATH.findall(value), *(path for path in relative if _is_there(path))]


def _is_there(path: str) -> bool:
    """Whether what may be a path, or only look like one, leads to a file from where this runs."""
    try:
        return bool(path) and Path(path).expanduser().exists()
    except (OSError, RuntimeError, ValueError):
        return False


def _file_of_store(value: str) -> str | None:
    try:
        parsed = make_url(value) if "://" in value else None
    except (ArgumentError, ValueError):  # a port that is no number is the latter
        return None
    if parsed is None:
        return value
    if parsed.get_backend_name() != "sqlite" or parsed.query or not parsed.database:
        return None
    return parsed.database


def _inside(path: str, allowed: list[Path]) -> bool:
    try:
        found = Path(path).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links, no such user, no path at all
        return False
    return any(found.is_relative_to(folder) for folder in allowed)


def _refused(key: str, value: str) -> ConfigError:
    fix = {
        OUT: "leave it out: run.name names a folder below the server's runs",
        STORE: "leave it out: the server's owner names another store in store-url",
    }.get(key, "name what lies there, or have the server's owner add its folder")
    return ConfigError(
        f"{key} = {value!r} names a file outside the folders that this server's runs may use: "
        f"{fix} (paths in the SuperLink's deploy.toml, or {VARIABLE})"
    )
