"""Flags that describe a schedule of releases; shared by ``budget`` and ``calibrate``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedlens.cli import WrongUse

if TYPE_CHECKING:
    from accountant.events import GaussianRelease, SubsampledGaussian

SAMPLERS = ("poisson", "without-replacement", "none")
ADJACENCIES = ("add-remove", "replace-one")
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
    for flag, mark, said in numbers:
        needed = flag in required
        parser.add_argument(flag, type=float, metavar=mark, help=said, required=needed)
    needed = "--rounds" in required
    parser.add_argument("--rounds", type=int, metavar="T", help="number of rounds", required=needed)
    parser.add_argument(
        "--sampler", choices=SAMPLERS, help="how cohorts are drawn (default: poisson; none for q=1)"
    )
    parser.add_argument(
        "--adjacency",
        choices=ADJACENCIES,
        default="add-remove",
        help="how neighbouring data sets differ (default: %(default)s)",
    )
    parser.add_argument(
        "--unit", choices=("user", "record"), default="user", help="whom it protects: %(default)s"
    )
    parser.add_argument("--users", type=int, metavar="N", help="enrolled users, to judge δ by")


@contextmanager
def plain_refusals() -> Iterator[None]:
    """Turn the accountants' refusals of an argument into wrong use of the command.

    Raises:
        WrongUse: with the message of a ValueError.
    """
    try:
        yield
    except ValueError as error:
        raise WrongUse(str(error)) from error


def require_flags(args: argparse.Namespace, *flags: str) -> None:
    """Refuse a command that leaves one of ``flags`` out.

    Raises:
        WrongUse: naming the flag.
    """
    missing = [f for f in flags if getattr(args, f.removeprefix("--").replace("-", "_")) is None]
    if missing:
        raise WrongUse(f"{', '.join(missing)} must be given; see `fedlens {args.verb} --help`")


def check_users(users: int | None) -> None:
    """Refuse a number of users that is none.

    Raises:
        WrongUse: naming it.
    """
    if users is not None and users < 1:
        raise WrongUse(f"--users {users}: give a whole number ≥ 1")


def round_of(args: argparse.Namespace, noise_multiplier: float) -> SubsampledGaussian:
    """The event of one round.

    Raises:
        EventError: a combination that cannot be accounted for, with the reason.
    """
    from accountant.events import Sampler, SubsampledGaussian

    sampler: Sampler = args.sampler or ("none" if args.sampling_rate == 1 else "poisson")
    return SubsampledGaussian(
        args.unit, sampler, args.adjacency, args.sampling_rate, noise_multiplier, 1.0
    )


def releases_of(args: argparse.Namespace) -> tuple[GaussianRelease, ...]:
    """The one-shot releases of ``--release NAME=Z``.

    Raises:
        WrongUse: one that has no such form.
    """
    from accountant.events import GaussianRelease

    found = []
    for text in args.release:
        name, mark, noise = text.rpartition("=")
        try:
            found.append(GaussianRelease(args.unit, args.adjacency, 1.0, float(noise), 1, name))
        except ValueError as error:
            raise WrongUse(f"--release {text!r}: {_reason(error)}") from error
        if not mark or not name:
            raise WrongUse(f"--release {text!r}: write NAME=Z, as in --release 'class counts=5'")
    return tuple(found)


def _reason(error: ValueError) -> str:
    said = str(error)
    return "write NAME=Z with a number Z" if said.startswith("could not convert") else said


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
