"""An owner's names of classes (and of values) as the federation's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fedlens.data.formats.label_names import LEAVE_OUT, SEVERAL, loosely, names_several
from fedlens.foundation.errors import WrongUse


class AgreedNames:
    """Agreed names by what an owner calls them.

    A name that is written otherwise only in capitals, blanks, ``_`` and ``-``, forms of accents or
    a ``.0`` behind a number is the same, if that tells the agreed ones apart; others are named by
    a map, in which `SEVERAL` is every name that lists several, such as ``A|B``.
    """

    def __init__(self, agreed: Sequence[str], mapped: Mapping[str, str] | None = None) -> None:
        """Take the agreed names, and what of an owner's names is which of them.

        Args:
            agreed: names in the order of their numbers.
            mapped: an owner's name to the agreed one, or to `LEAVE_OUT`.

        Raises:
            WrongUse: a map's target is not among the agreed names.
        """
        numbers = {name: number for number, name in enumerate(agreed)}
        loose: dict[str, int | None] = {}
        for name, number in numbers.items():
            loose[loosely(name)] = None if loosely(name) in loose else number
        self._loose = {name: number for name, number in loose.items() if number is not None}
        self._numbers: dict[str, int | None] = dict(numbers)
        for own, target in (mapped or {}).items():
            if target != LEAVE_OUT and target not in numbers:
                raise WrongUse(
                    f"--map {own}={target}: {target!r} is not among the agreed names "
                    f"{', '.join(agreed[:20])}{', ...' if len(agreed) > 20 else ''}; or leave them "
                    f"out: --map {own}={LEAVE_OUT}"
                )
            self._numbers[own] = None if target == LEAVE_OUT else numbers[target]

    def number(self, name: str) -> int | None:
        """The number of an owner's name; None where it is to be left out.

        Raises:
            KeyError: it is none of the agreed ones.
        """
        if name in self._numbers:
            return self._numbers[name]
        if SEVERAL in self._numbers and self.is_several(name):
            return self._numbers[SEVERAL]
        return self._loose[loosely(name)]

    def is_several(self, name: str) -> bool:
        """Whether a name lists several classes, of which a record has one."""
        return SEVERAL in name or names_several(name, self._loose)


def parse_map(pairs: Iterable[str]) -> dict[str, str]:
    """``OWN=AGREED`` as a map.

    Raises:
        WrongUse: there is no equals sign in one, or an owner's name is mapped twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        own, equals, agreed = pair.rpartition("=")
        if not (own and equals and agreed):
            raise WrongUse(f"--map {pair!r}: write OWN=AGREED, or OWN={LEAVE_OUT} to leave it out")
        if own in found:
            raise WrongUse(f"--map {own}: is there twice; give each name once")
        found[own] = agreed
    return found
