"""What stands behind the colon of a source's name: ``PATH,option=value,option=value``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlens.privatizers.private_data import PrivateDataError


@dataclass(frozen=True)
class Options:
    """A folder or file, and the options that follow it.

    Attributes:
        source: the kind of source, named in errors.
        path: where the data lie.
        values: every option's value: as given, else its default.
    """

    source: str
    path: Path
    values: Mapping[str, str]

    def number(self, name: str, least: int) -> int:
        """The option ``name`` as a whole number of at least ``least``.

        Raises:
            PrivateDataError: when it is none.
        """
        text = self.values[name]
        if not text.isdecimal() or int(text) < least:
            raise PrivateDataError(
                f"{self.source}: {name}={text} must be a whole number of at least {least}"
            )
        return int(text)

    def one_of(self, name: str, allowed: Mapping[str, int]) -> str:
        """The option ``name``, which must be a key of ``allowed``.

        Raises:
            PrivateDataError: when the attribute is absent.
        """
        value = self.values[name]
        if value not in allowed:
            raise PrivateDataError(
                f"{self.source}: {name}={value} is absent from {self.path}; choose one of "
                f"{', '.join(allowed)}"
            )
        return value


def parse_options(
    source: str, argument: str, defaults: Mapping[str, str], needed: Sequence[str] = ()
) -> Options:
    """Read ``argument``; options not given have their default, those of ``needed`` must be given.

    A path may have commas and equals signs itself: what exists as a whole is a path.

    Raises:
        PrivateDataError: without a path that exists, or with an option there is not.
    """
    path, pairs = _path_and_pairs(argument, defaults)
    if not path:
        raise PrivateDataError(f"{source} needs a path: write {source}:PATH")
    values = dict(defaults)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if name not in defaults or not equals or not value:
            known = ", ".join(f"{key}={default}" for key, default in defaults.items())
            raise PrivateDataError(
                f"{source}: {pair!r} is no option; there are {known or 'none'}: "
                f"write {source}:PATH,option=value"
            )
        values[name] = value
    found = Path(path).expanduser()
    if not found.exists():
        raise PrivateDataError(f"{source}: {found} does not exist; give the data's folder or file")
    if lacking := [name for name in needed if not values[name]]:
        raise PrivateDataError(
            f"{source}: which column is {' and which is '.join(lacking)}? name "
            f"{'it' if len(lacking) == 1 else 'them'}: "
            f"{source}:{path},{','.join(f'{name}=COLUMN' for name in lacking)}"
        )
    return Options(source, found, values)


def without_path(name: str) -> str:
    """A source's full name less where its data lie: ``folder,utility=age`` of ``folder:...``."""
    kind, _, argument = name.partition(":")
    parts = argument.split(",")
    there = [cut for cut in range(len(parts), 0, -1) if _exists(",".join(parts[:cut]))]
    if there:
        return ",".join([kind, *parts[there[0] :]])
    if "/" in argument or "=" in argument:
        return ",".join([kind, *(part for part in parts[1:] if "=" in part and "/" not in part)])
    return name


def _exists(path: str) -> bool:
    return bool(path) and Path(path).expanduser().exists()


def _path_and_pairs(argument: str, defaults: Mapping[str, str]) -> tuple[str, list[str]]:
    """The path in front, and what follows it: options as far back as they are some."""
    parts = argument.split(",")
    cut = len(parts)
    while cut > 1 and parts[cut - 1].partition("=")[0] in defaults:
        cut -= 1
    if _exists(whole := ",".join(parts[:cut])):
        return whole, parts[cut:]
    return parts[0], parts[1:]
