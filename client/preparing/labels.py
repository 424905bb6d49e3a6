"""An owner's names of classes (and of values) as the federation's numbers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

from fedlens.foundation.errors import WrongUse

LEAVE_OUT = "-"
_BETWEEN = re.compile(r"[\s_\-]+")
_WHOLE = re.compile(r"^(-?\d+)\.0+$")


class AgreedNames:
    """Agreed names by what an owner calls them.

    A name that is written otherwise only in capitals, blanks, ``_`` and ``-``, forms of accents or
    a ``.0`` behind a number is the same, if that tells the agreed ones apart; others are named by
    a map.
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
            loose[_loosely(name)] = None if _loosely(name) in loose else number
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
        return self._loose[_loosely(name)]


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


def _loosely(name: str) -> str:
    plain = unicodedata.normalize("NFC", name.strip())
    return _BETWEEN.sub(" ", _WHOLE.sub(r"\1", plain)).casefold()
