"""Flags that describe a schedule of releases; shared by ``budget`` and ``calibrate``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from fedlens.cli.flags import chosen
from fedlens.foundation.errors import WrongUse

SAMPLERS = ("poisson", "none")
MOST_ORDER = 4096
_PERCENT = 100


def add_mechanism_flags(parser: argparse.ArgumentParser, *, required: Sequence[str]) -> None:
    """Flags of one round's mechanism.

    Args:
        parser: to add them to.
        required: flags that the parser itself must insist on.
    """
    numbers = (
        ("--sampling-rate", "Q", "chance of one unit to take part in a round, in (0, 1]"),
        ("--noise-multiplier", "Z", "noise standard deviation over the clipping norm, on the sum"),
        ("--delta", "D", "δ in (0, 1), well below one over the number of users"),
    )
    add = parser.add_argument
    for flag, mark, said in numbers:
        needed = flag in required
        add(flag, type=float, metavar=mark, help=said, required=needed)
    needed = "--rounds" in required
    add("--rounds", type=int, metavar="T", help="number of rounds", required=needed)
    add(
        "--sampler", choices=SAMPLERS, help="how cohorts are drawn (default: poisson; none for q=1)"
    )
    add("--unit", choices=("user", "record"), default="user", help="whom it protects: %(default)s")
    add("--users", type=int, metavar="N", help="enrolled users, to judge δ by")


def require_flags(args: argparse.Namespace, *flags: str) -> None:
    """Refuse a command that leaves one of ``flags`` out.

    Raises:
        WrongUse: naming the flag.
    """
    missing = [f for f in flags if getattr(args, f.removeprefix("--").replace("-", "_")) is None]
    if missing:
        raise WrongUse(f"{', '.join(missing)} must be given; see `fedlens {args.verb} --help`")


def mechanism_of(args: argparse.Namespace) -> dict[str, Any]:
    """The flags of `add_mechanism_flags` as the API's arguments."""
    names = ("sampling_rate", "noise_multiplier", "delta", "rounds", "sampler", "unit")
    return chosen(args, *names)


def releases_of(args: argparse.Namespace) -> list[tuple[str, float]]:
    """The one-shot releases of ``--release NAME=Z``.

    Raises:
        WrongUse: one that has no such form.
    """
    found = []
    for text in args.release:
        name, mark, noise = text.rpartition("=")
        try:
            found.append((name, float(noise)))
        except ValueError:
            mark = ""
        if not mark or not name:
            raise WrongUse(f"--release {text!r}: write NAME=Z, as in --release 'class counts=5'")
    return found


def parse_orders(text: str) -> tuple[int, ...]:
    """Orders from ``1:64`` (both ends included), ``2,4,8`` or both forms joined by commas.

    Raises:
        WrongUse: anything else.
    """
    orders: list[int] = []
    try:
        for part in text.split(","):
            first, _, last = part.partition(":")
            orders.extend(range(int(first), min(int(last or first), MOST_ORDER) + 1))
    except ValueError:
        orders = []
    if not orders or min(orders) < 1 or max(orders) >= MOST_ORDER:
        raise WrongUse(
            f"--orders {text!r}: give whole numbers ≥ 1, below {MOST_ORDER}, as in 1:64 or 2,4,8"
        )
    return tuple(sorted(set(orders)))


def share_in_words(share: float) -> str:
    """A share of users as a percentage."""
    return f"{share * _PERCENT:.6g}%"
