"""Plug-ins by name: our own, and those of other packages that are installed.

A kind of plug-in (task, data set, privatizer, ...) is one `Registry`. Our own plug-ins are listed
where the registry is made; another package adds its own through an entry point in the registry's
group, and it is then found by its name like ours:

    [project.entry-points."fedlens.datasets"]
    scans = "our_package.scans:SCANS"

Nothing is imported before it is asked for, so a broken package disturbs only who names it.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Generic, TypeVar

from fedlens.foundation.errors import FedlensError, WrongUse

Plugin = TypeVar("Plugin")


def installed(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, by name."""
    return _installed(group, tuple(map(_changed, sys.path)))


@lru_cache(maxsize=256)
def _installed(group: str, places: tuple[tuple[str, int], ...]) -> tuple[EntryPoint, ...]:
    """Kept while ``places``, where modules are, stay as they are.

    To find them the files of every installed package are read: seconds over a thousand rounds.
    """
    return tuple(sorted(entry_points(group=group), key=lambda point: point.name))


def _changed(place: str) -> tuple[str, int]:
    """A folder of modules, and when something was last put into it or taken away."""
    try:
        return place, Path(place).stat().st_mtime_ns
    except OSError:
        return place, 0


class PluginError(FedlensError):
    """An installed plug-in that cannot be loaded, or has a name that is taken."""


class Registry(Mapping[str, Plugin], Generic[Plugin]):
    """Plug-ins of one kind, in the order of their names' registration, ours first.

    Attributes:
        kind: what people call one, such as ``"data set"``.
        group: the entry points' group, such as ``"fedlens.datasets"``.
    """

    def __init__(self, kind: str, group: str, own: Mapping[str, str]) -> None:
        """List our own.

        Args:
            kind: what people call one.
            group: the entry points' group.
            own: where each of ours lies, as ``"package.module:attribute"``.
        """
        self.kind, self.group = kind, group
        self._own = dict(own)
        self._loaded: dict[str, Plugin] = {}

    def __getitem__(self, name: str) -> Plugin:
        """The plug-in of that name.

        Raises:
            WrongUse: there is none; the message lists what there is.
            PluginError: it cannot be loaded, or its name is taken.
        """
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        """Names, ours first."""
        yield from self._own
        yield from (point.name for point in self._foreign() if point.name not in self._own)

    def __len__(self) -> int:
        """How many there are."""
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        """Whether there is one of that name; it is not loaded for that."""
        return name in set(self)

    @contextmanager
    def replaced(self, name: str, plugin: Plugin) -> Iterator[None]:
        """Have ``name`` stand for ``plugin`` for as long as the context lasts, in this process."""
        real = self[name]
        self._loaded[name] = plugin
        try:
            yield
        finally:
            self._loaded[name] = real

    def _foreign(self) -> tuple[EntryPoint, ...]:
        return installed(self.group)

    def _load(self, name: str) -> Plugin:
        found = [point for point in self._foreign() if point.name == name]
        if len(found) + (name in self._own) > 1:
            givers = ", ".join(point.value for point in found)
            raise PluginError(f"the {self.kind} {name!r} exists more than once: uninstall {givers}")
        if name in self._own:
            module, _, attribute = self._own[name].partition(":")
            plugin: Plugin = getattr(import_module(module), attribute)
            return plugin
        if not found:
            raise WrongUse(self.unknown(name))
        try:
            foreign: Plugin = found[0].load()
        except Exception as error:  # another package's code: whatever it raises, it is named
            raise PluginError(
                f"the {self.kind} {name!r} ({found[0].value}) cannot be loaded: "
                f"{type(error).__name__}: {error}; fix or uninstall it"
            ) from error
        return foreign

    def unknown(self, name: str) -> str:
        """What to say of a name that nothing has."""
        close = difflib.get_close_matches(name, list(self), n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        return f"there is no {self.kind} {name!r}: choose one of {', '.join(self)}{meant}"
