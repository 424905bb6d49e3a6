"""Views of users that are kept beside them, whoever goes or comes meanwhile."""

from __future__ import annotations

from fedlens.client.users.cache import WeakCache


class Owner:
    """Something that a value is made of."""


class Leaving(int):
    """A size during whose addition an owner goes, as by a collection or in another thread."""

    owners: list[Owner]

    def __radd__(self, other: int) -> int:
        self.owners.clear()
        return int(self) + other


def test_an_owner_that_goes_while_room_is_made_disturbs_nothing() -> None:
    cache: WeakCache[str] = WeakCache(10)
    going, staying = [Owner()], [Owner(), Owner()]
    size = Leaving(4)
    size.owners = []
    cache.put(staying[0], "a", "first", size)
    cache.put(going[0], "a", "gone", 4)
    size.owners = going
    assert cache.room == 2 and len(cache) == 1, "it went while the sizes were added up"
    cache.put(staying[1], "a", "second", 8)
    assert cache.get(staying[0], "a") is None, "the oldest goes first"
    assert cache.get(staying[1], "a") == "second"
