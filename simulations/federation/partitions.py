"""Who holds which record: splitting a training set over simulated users.

Every scheme is vectorised over users and records, reproducible by its seed, gives disjoint index
lists and leaves no user empty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedlens.client.users.seeds import keyed_seed
from fedlens.client.users.views import choose_rows
from fedlens.foundation.errors import FedlensError
from fedlens.simulations.federation.slots import fill_slots

Scheme = Literal["iid", "dirichlet", "classes", "column"]
Sizes = Literal["equal", "power-law"]
Integers = NDArray[np.int64]

PARETO_EXPONENT = 1.5
"""Tail of the power-law sizes: the mean exists, the variance does not."""


class PartitionError(FedlensError, ValueError):
    """A split that cannot be made; the message has the numbers."""


@dataclass(frozen=True, eq=False)
class Partition:
    """Record indices grouped by user (compressed rows).

    Attributes:
        indices: int64 [records], each at most once.
        offsets: int64 [users + 1], rising; user i holds ``indices[offsets[i]:offsets[i + 1]]``.
        own_ids: int64 [users], rising: users' numbers in the data; None where users are made up.
    """

    indices: Integers
    offsets: Integers
    own_ids: Integers | None = None

    @cached_property
    def ids(self) -> Integers:
        """Each user's own number, int64 [users], rising; one array, of which nodes have parts."""
        return np.arange(self.users) if self.own_ids is None else self.own_ids

    @property
    def users(self) -> int:
        """Number of users."""
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Integers:
        """Records per user, int64 [users], each at least 1."""
        return np.diff(self.offsets)

    def user(self, user: int) -> Integers:
        """Indices of the records that user number ``user`` holds."""
        if not 0 <= user < self.users:
            raise PartitionError(f"there is no user {user}; users run from 0 to {self.users - 1}")
        return self.indices[self.offsets[user] : self.offsets[user + 1]]


def partition(
    labels: Integers,
    *,
    users: int,
    scheme: Scheme = "iid",
    sizes: Sizes = "equal",
    alpha: float = 0.3,
    classes_per_user: int = 2,
    user_ids: Integers | None = None,
    samples_per_user: int | None = None,
    seed: int = 0,
) -> Partition:
    """Split records over users.

    Args:
        labels: int64 [n], class of each record, from 0.
        users: number of users.
        scheme: ``iid``: a random deal. ``dirichlet``: each user's class mix is drawn from a
            Dirichlet with mean the overall class shares and concentration ``alpha`` x number of
            classes (Hsu, Qi & Brown, arXiv:1909.06335, section 3, up to the scale of alpha).
            ``classes``: each user holds records of at most ``classes_per_user`` random classes.
            ``column``: records belong to the users named in ``user_ids``.
        sizes: ``equal`` (they differ by one at most) or ``power-law`` (Pareto with exponent 1.5).
            Under ``classes``, users whose classes run out get fewer. Not for ``column``.
        alpha: small is skewed; read by ``dirichlet``.
        classes_per_user: read by ``classes``.
        user_ids: int64 [n]; read by ``column``, which takes ``users`` of them by a hash of each.
        samples_per_user: mean number of records per user; ``None`` deals out all. Under
            ``column``: the most a user keeps, drawn at random. What a user keeps, and in which
            order, follows there from the user's own records alone.
        seed: decides everything that is random here.

    Raises:
        PartitionError: when the arguments are wrong or leave a user without records.
    """
    labels = np.asarray(labels, np.int64)
    _check(labels, users, scheme, sizes, samples_per_user)
    rng = np.random.default_rng(seed)
    if scheme == "column":
        return _by_column(labels, users, sizes, user_ids, samples_per_user, seed)
    total = len(labels) if samples_per_user is None else users * samples_per_user
    if total > len(labels):
        raise PartitionError(
            f"{users} users with {samples_per_user} records each need {total} records, but there "
            f"are {len(labels)}; lower users or samples_per_user"
        )
    if users > total:
        raise PartitionError(f"{users} users cannot share {total} records; lower users")
    wanted = _sizes(users, total, sizes, rng)
    if scheme == "iid":
        chosen = rng.permutation(len(labels)).astype(np.int64, copy=False)
        chosen = chosen if total == len(labels) else chosen[:total].copy()
        return Partition(chosen, _offsets(wanted))
    shares = np.bincount(labels) / len(labels)
    if scheme == "dirichlet":
        mix = _dirichlet_mix(shares, users, alpha, rng)
    else:
        mix = _class_mix(shares, users, classes_per_user, rng)
    owner, indices = fill_slots(labels, wanted, mix, rng, strict=scheme == "classes")
    return _gather(owner, indices, users, f"{classes_per_user} classes a user")


def _check(
    labels: Integers, users: int, scheme: str, sizes: str, samples_per_user: int | None
) -> None:
    if scheme not in get_args(Scheme):
        raise PartitionError(f"scheme={scheme!r} is none of {', '.join(get_args(Scheme))}")
    if sizes not in get_args(Sizes):
        raise PartitionError(f"sizes={sizes!r} is none of {', '.join(get_args(Sizes))}")
    if users < 1:
        raise PartitionError(f"users={users} must be at least 1")
    if samples_per_user is not None and samples_per_user < 1:
        raise PartitionError(f"samples_per_user={samples_per_user} must be at least 1")
    if labels.ndim != 1 or len(labels) == 0 or int(labels.min()) < 0:
        raise PartitionError("labels must be a non-empty row of class numbers from 0")


def _sizes(users: int, total: int, sizes: Sizes, rng: np.random.Generator) -> Integers:
    """Records per user: at least one each, ``total`` together."""
    if sizes == "equal":
        equal = np.full(users, total // users, np.int64)
        equal[: total % users] += 1
        return equal
    weights = 1 + rng.pareto(PARETO_EXPONENT, users)
    exact = (total - users) * (weights / weights.sum())
    counts = np.floor(exact).astype(np.int64)
    short = total - users - int(counts.sum())
    counts[np.argsort(counts - exact, kind="stable")[:short]] += 1
    at_least_one: Integers = counts + 1
    return at_least_one


def _dirichlet_mix(
    shares: NDArray[np.float64], users: int, alpha: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Class probabilities [users, classes] of each user."""
    if not (alpha > 0 and np.isfinite(alpha)):
        raise PartitionError(f"alpha={alpha} must be a positive number")
    mix = rng.standard_gamma(alpha * len(shares) * shares, (users, len(shares)))
    # Tiny alphas underflow to zero everywhere; their limit is one class per user.
    empty = np.flatnonzero(mix.sum(1) < np.finfo(np.float64).tiny)
    mix[empty, rng.choice(len(shares), len(empty), p=shares)] = 1.0
    normalised: NDArray[np.float64] = mix / mix.sum(1, keepdims=True)
    return normalised


def _class_mix(
    shares: NDArray[np.float64], users: int, classes_per_user: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Equal probabilities for each user's own classes, drawn in proportion to their shares."""
    present = np.flatnonzero(shares)
    if not 1 <= classes_per_user <= len(present):
        raise PartitionError(
            f"classes_per_user={classes_per_user} must lie in 1..{len(present)}, "
            "the number of classes that have records"
        )
    # The k largest of log share + Gumbel noise are k draws without replacement.
    keys = np.log(shares[present]) + rng.gumbel(size=(users, len(present)))
    own = np.argpartition(-keys, classes_per_user - 1, axis=1)[:, :classes_per_user]
    mix = np.zeros((users, len(shares)))
    np.put_along_axis(mix, present[own], 1 / classes_per_user, axis=1)
    return mix


def _by_column(
    labels: Integers,
    users: int,
    sizes: Sizes,
    user_ids: Integers | None,
    most: int | None,
    seed: int,
) -> Partition:
    """People with numbers of their own: what one of them holds moves no other's records.

    Were a random order of *all* records taken, one record more of a person would change which ones
    of everybody else count.
    """
    if user_ids is None or len(user_ids) != len(labels):
        raise PartitionError(
            f"scheme 'column' needs one user id for each of the {len(labels)} records; this data "
            f"set has {'none' if user_ids is None else len(user_ids)}"
        )
    if sizes != "equal":
        raise PartitionError(f"sizes={sizes!r} does not go with scheme 'column': ids decide sizes")
    known, owner = np.unique(user_ids, return_inverse=True)
    if users > len(known):
        raise PartitionError(
            f"users={users}, but the data set has {len(known)} user ids; lower users"
        )
    key = seed.to_bytes(16, "big", signed=True)
    picked = np.arange(len(known))
    if users < len(known):
        places = [keyed_seed(key, "people", int(one)) for one in known]
        picked = np.sort(np.argsort(places, kind="stable")[:users])
    number = np.full(len(known), -1, np.int64)
    number[picked] = np.arange(users)
    owner = number[owner]
    indices = np.flatnonzero(owner >= 0).astype(np.int64)
    whole = replace(_gather(owner[indices], indices, users, "user ids"), own_ids=known[picked])
    return whole if most is None else _cut(whole, most, key)


def _cut(whole: Partition, most: int, key: bytes) -> Partition:
    """``most`` records of every user, drawn for each user apart."""
    kept = [
        whole.user(user)[choose_rows(int(held), most, keyed_seed(key, "kept", int(one)))]
        for user, (held, one) in enumerate(zip(whole.sizes, whole.ids, strict=True))
    ]
    indices, offsets = np.concatenate(kept), _offsets(np.minimum(whole.sizes, most))
    return Partition(indices, offsets, whole.own_ids)


def _gather(owner: Integers, indices: Integers, users: int, what: str) -> Partition:
    """Group ``indices`` by ``owner``; refuse when a user has none."""
    counts = np.bincount(owner, minlength=users).astype(np.int64)
    if empty := int((counts == 0).sum()):
        raise PartitionError(
            f"{empty} of {users} users would have no records with {what} and {len(indices)} "
            "records dealt; lower users or raise classes_per_user"
        )
    return Partition(indices[np.argsort(owner, kind="stable")], _offsets(counts))


def _offsets(counts: Integers) -> Integers:
    found = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=found[1:])
    return found
