"""The registry of faults, where ``rotate90+dim`` is a name too."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path

from fedlens.foundation.errors import WrongUse
from fedlens.foundation.registry import Registry
from fedlens.models.faults.protocol import Fault, composed

AND = "+"
"""Between the names of faults that come one after the other."""


class FaultLibrary(Registry[Fault]):
    """Faults by name; those that are composed of others are made when they are asked for."""

    def __contains__(self, name: object) -> bool:
        """Whether there is one of that name, or every part of it is there."""
        known = set(self)
        return name in known or (isinstance(name, str) and set(name.split(AND)) <= known)

    def _load(self, name: str) -> Fault:
        if AND not in name:
            return super()._load(name)
        parts = [self[part] for part in name.split(AND)]
        if wrong := [part.name for part in parts if part.image is None or part.takes != "any"]:
            raise WrongUse(
                f"fault {name!r}: {wrong[0]} is not about images of all classes alike; only such "
                "faults can be put together"
            )
        return composed(parts)


def find_faults(asked: Sequence[str | Path | Fault]) -> Iterator[Fault]:
    """Faults by name, of files, or as they are.

    Args:
        asked: names of the library, composed ones too; Python files, which are run; and faults.

    Raises:
        WrongUse: there is no such fault or file, or a fault has a name that is taken.
    """
    from fedlens.models.faults import FAULTS

    for one in asked:
        if isinstance(one, str):
            found = FAULTS[one]
            if AND not in one:
                raise WrongUse(f"fault {one!r} is looked for anyway: leave it out")
            yield found
            continue
        for fault in [one] if isinstance(one, Fault) else faults_in(one):
            if not fault.name or fault.name in FAULTS:
                raise WrongUse(
                    f"fault {fault.name!r}: the library has this name already: choose another"
                )
            yield fault


def faults_in(path: Path) -> list[Fault]:
    """The faults that a Python file defines; the file is run.

    Raises:
        WrongUse: there is no such file, it fails, or it defines no fault.
    """
    try:
        found = runpy.run_path(str(path))
    except (Exception, SystemExit) as error:  # somebody's code: whatever it raises, it is named
        raise WrongUse(f"faults of {path}: {type(error).__name__}: {error}") from error
    faults = [one for one in found.values() if isinstance(one, Fault)]
    if not faults:
        raise WrongUse(
            f"faults of {path}: it defines none; write FADED = Fault('faded', 'faded', "
            "image=lambda images, _: 0.8 * images), with Fault of fedlens.models.faults.protocol"
        )
    return faults
