"""The users of a node whom the server named, in the order of the list that it goes by.

It draws by what a node said of whom it hosts, and people come and go meanwhile; were the node to
refuse then, all its users would leave the sum for one who joined.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedlens.client.users.cache import WeakCache
from fedlens.client.users.protocol import LocalData, LocalUsers, Rows
from fedlens.client.users.records import NO_USER, no_records
from fedlens.client.users.views import UsersView, cached_view


@dataclass(frozen=True, eq=False)
class ListedUsers(UsersView):
    """The users of a list; one who is not there any more holds nothing."""

    places: NDArray[np.int64]
    """[users], where each is among the users now; `NO_USER` for one who is not."""
    numbers: NDArray[np.void]
    """[users], the list: see `list_numbers`."""

    @property
    def people(self) -> NDArray[np.int64] | None:
        """As of all users, of those who are gone too."""
        if self.users.people is None:
            return None
        return np.array([self._number(place) for place in range(len(self))], dtype=np.int64)

    def __len__(self) -> int:
        """Number of users on the list."""
        return len(self.places)

    def _number(self, position: int) -> int:
        return int.from_bytes(self.numbers[position].tobytes(), "big", signed=True)

    def user_id(self, position: int) -> int:
        """The user's own number."""
        place = int(self.places[position])
        return self._number(position) if place == NO_USER else self.users.user_id(place)

    def held(self, position: int) -> int:
        """How many records the user holds."""
        place = int(self.places[position])
        return 0 if place == NO_USER else self.users.held(place)

    def user(self, position: int, rows: Rows | None = None) -> LocalData:
        """The user's records."""
        place = int(self.places[position])
        return no_records(self.users) if place == NO_USER else self.users.user(place, rows)


NUMBER = np.dtype("V16")
"""A user's own number on a list, 128 bits, big-endian and signed."""
_NUMBERS: WeakCache[NDArray[np.void]] = WeakCache(64)


def list_numbers(users: LocalUsers) -> NDArray[np.void]:
    """Who a node's users are, by position: each one's number among people, or else the own one."""
    known = _NUMBERS.get(users, None)
    if known is None:
        people, size = users.people, NUMBER.itemsize
        packed = bytearray(size * len(users))
        for place in range(len(users)):
            number = users.user_id(place) if people is None else int(people[place])
            packed[size * place : size * (place + 1)] = number.to_bytes(size, "big", signed=True)
        known = np.frombuffer(packed, dtype=NUMBER)
        _NUMBERS.put(users, None, known)
    return known


def take_listed(users: LocalUsers, numbers: NDArray[np.void]) -> LocalUsers:
    """The users of a list, in its order; the same object for the same list.

    Of users with one number the first is taken. What is returned is held by ``users`` alone.
    """
    now = list_numbers(users)
    if np.array_equal(now.view(np.int64), numbers.view(np.int64)):
        return users

    def find(everyone: LocalUsers) -> ListedUsers:
        found, first = np.unique(now, return_index=True)
        at = np.searchsorted(found, numbers).clip(max=max(0, len(found) - 1))
        there = found[at] == numbers if len(found) else np.zeros(len(numbers), dtype=np.bool_)
        places = np.where(there, first[at] if len(found) else NO_USER, NO_USER)
        return ListedUsers(everyone, places, numbers)

    return cached_view(users, ListedUsers, numbers.tobytes(), find)
