"""The decisions of `fedlens.accountant.noise.normal` that 64 bits leave open, taken with more bits.

Each asks on which side of a real threshold a uniform random real lies, of which the leading bits
are known. Both are narrowed down until their intervals are apart: further bits for the one,
further digits for the other. That ends with probability 1, and the answer is exact.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

from fedlens.accountant.noise.bits import BitSource

_HALF = Decimal("0.5")
_WORD = 64
_SPARE_DIGITS = 24
_ROUNDING = Decimal(10) ** 12
"""Units in the last digit that a computed threshold may be off by; far fewer are."""


def shares_below(most: int, digits: int) -> list[Decimal]:
    """P(K < j) for j = 0 .. ``most``, where P(K = j) is proportional to exp(−j²/2), j ≥ 0."""
    with localcontext() as context:
        context.prec = digits
        terms = [(-_HALF * j * j).exp() for j in range(max(most, _negligible_from(digits)))]
        whole, below, found = sum(terms, Decimal(0)), Decimal(0), [Decimal(0)]
        for term in terms[:most]:
            below += term
            found.append(below / whole)
        return found


def cell(word: int, bits: BitSource) -> int:
    """The cell K that the uniform real whose first 64 bits are ``word`` falls in, by inversion."""
    number, length = word, _WORD
    while True:
        number, length = number << _WORD | _next(bits), length + _WORD
        found = _cell_of(number, length)
        if found is not None:
            return found


def _cell_of(number: int, length: int) -> int | None:
    """The cell of all reals with these first bits, or None where they are of two."""
    digits = _digits(length)
    shares = shares_below(_negligible_from(digits), digits)
    with localcontext() as context:
        context.prec = digits
        low, high = _interval(number, length)
        error = _ROUNDING.scaleb(-digits)
        for j in range(1, len(shares)):
            if high <= shares[j] - error:
                return j - 1 if j == 1 or low >= shares[j - 1] + error else None
    return None


def accepted(k: int, place: int, places: int, chance: int, bits: BitSource) -> bool:
    """Whether V < exp(−F (2k + F) / 2).

    Args:
        k: the cell.
        place: F lies in [place, place + 1) / places, uniformly.
        places: how many there are.
        chance: V lies in [chance, chance + 1) / 2^64, uniformly.
        bits: to narrow F and V down with.
    """
    length = _WORD
    while True:
        place, places = place << _WORD | _next(bits), places << _WORD
        chance, length = chance << _WORD | _next(bits), length + _WORD
        with localcontext() as context:
            context.prec = digits = _digits(length)
            low, high = _interval(chance, length)
            error = _ROUNDING.scaleb(-digits)
            if high <= _height(k, place + 1, places) - error:
                return True
            if low >= _height(k, place, places) + error:
                return False


def accepted_at(k: int, place: int, places: int, chance: int, bits: BitSource) -> bool:
    """Whether V < exp(−F (2k + F) / 2) for F = place / places exactly; else as `accepted`."""
    length = _WORD
    while True:
        chance, length = chance << _WORD | _next(bits), length + _WORD
        with localcontext() as context:
            context.prec = digits = _digits(length)
            low, high = _interval(chance, length)
            error = _ROUNDING.scaleb(-digits)
            height = _height(k, place, places)
            if high <= height - error:
                return True
            if low >= height + error:
                return False


def _height(k: int, place: int, places: int) -> Decimal:
    """exp(−F (2k + F) / 2) at F = place / places, to the digits of the context."""
    inside = Decimal(place) / Decimal(places)
    return (-_HALF * inside * (2 * k + inside)).exp()


def _interval(number: int, length: int) -> tuple[Decimal, Decimal]:
    """The ends of the reals in [0, 1) whose first bits are ``number``."""
    whole = Decimal(1 << length)
    return Decimal(number) / whole, Decimal(number + 1) / whole


def _digits(length: int) -> int:
    """Decimal digits that hold numbers of ``length`` bits and leave room for rounding."""
    return math.ceil(length * math.log10(2)) + _SPARE_DIGITS


def _negligible_from(digits: int) -> int:
    """A j from which exp(−j²/2) is below the last of ``digits`` digits."""
    return math.isqrt(5 * digits) + 4


def _next(bits: BitSource) -> int:
    return int(bits.words(1)[0])
