"""The registry of a population, and which nodes rounds had, on both engines."""

from __future__ import annotations

import pytest
from store_builders import a_ledger_row, a_run

from fedlens.store import Coverage, NodeRoster, PresenceRow, Store, StoreError


def there(round_: int = 1, users: int = 30, answered: tuple[int, ...] = (0, 1, 2)) -> PresenceRow:
    return PresenceRow(
        run_id="run-1", round=round_, answered=answered, nodes=3, users=users, users_declared=30
    )


def test_users_come_leave_and_return_and_no_row_goes(store: Store) -> None:
    store.note_nodes("p", [NodeRoster(0, 3, (5, 2**63 - 1, 7)), NodeRoster(1, 40)])
    store.note_nodes("p", [NodeRoster(0, 2, (5, 9))])
    found = {m.number: m for m in store.members("p", 0)}
    assert set(found) == {5, 7, 9, 2**63 - 1}
    assert [found[n].until is None for n in (5, 9, 7, 2**63 - 1)] == [True, True, False, False]
    store.note_nodes("p", [NodeRoster(0, 3, (5, 7, 9))])
    assert {m.number for m in store.members("p") if m.until is None} == {5, 7, 9}
    assert [(n.node, n.users) for n in store.member_nodes("p")] == [(0, 3), (1, 40)]
    assert store.members("another") == [] and store.member_nodes("another") == []


def test_many_users_at_once(store: Store) -> None:
    store.note_nodes("p", [NodeRoster(0, 3000, range(3000))])
    store.note_nodes("p", [NodeRoster(0, 1000, range(2000, 3000))])
    assert sum(m.until is None for m in store.members("p")) == 1000


def test_who_is_revoked_stays_so_wherever_it_turns_up(store: Store) -> None:
    store.note_nodes("p", [NodeRoster(0, 2, (5, 7))])
    store.set_revoked("p", number=5, on=True)
    store.note_nodes("p", [NodeRoster(1, 2, (5, 8))])
    assert store.revoked("p") == (frozenset({5}), frozenset())
    assert all(m.revoked for m in store.members("p") if m.number == 5)
    store.set_revoked("p", node=1, on=True)
    store.set_revoked("p", number=5, on=False)
    assert store.revoked("p") == (frozenset(), frozenset({1}))


@pytest.mark.parametrize("whom", [{"number": 6}, {"node": 3}])
def test_an_unknown_one_cannot_be_revoked(store: Store, whom: dict[str, int]) -> None:
    store.note_nodes("p", [NodeRoster(0, 1, (5,))])
    with pytest.raises(StoreError, match="knows none"):
        store.set_revoked("p", on=True, **whom)


def test_presence_comes_after_the_ledger_row_and_is_replaced(store: Store) -> None:
    store.create_run(a_run())
    with pytest.raises(StoreError, match="no ledger row"):
        store.record_progress(presence=[there()])
    store.record_progress([a_ledger_row()], presence=[there()])
    store.record_progress([a_ledger_row()], presence=[there(users=20, answered=(0, 2))])
    (row,) = store.presence("run-1").rows
    assert (row.users, list(row.answered), row.share) == (20, [0, 2], 20 / 30)


@pytest.mark.parametrize("users", [31, -1])
def test_presence_cannot_be_above_the_bound(users: int) -> None:
    with pytest.raises(StoreError, match="users"):
        there(users=users)


def test_coverage_in_words() -> None:
    assert Coverage(()).words == "" and Coverage(()).whole and Coverage(()).share == 1
    short = Coverage((there(1), there(2, 20, (0, 1)), there(3, 20, (0, 1)), there(4)))
    assert not short.whole and short.share == pytest.approx(5 / 6)
    assert short.words == (
        "2 of 4 rounds had fewer nodes or users than declared (rounds 2 to 3); the fewest were 2 "
        "of 3 nodes, 20 of 30 users in round 2. The releases speak for 83% of the declared users "
        "on average, the last one for 100%."
    )
    assert not Coverage((there(1, 30, (0, 1)),)).whole, "an empty node that is missing is missing"


def test_a_node_that_answers_for_a_slice_has_lost_no_one(store):
    store.note_nodes("p", [NodeRoster(0, 3, (5, 7, 9))])
    store.note_nodes("p", [NodeRoster(0, 1, (7,), whole=False)])
    assert [member.until for member in store.members("p")] == [None] * 3
    assert [node.users for node in store.member_nodes("p")] == [3]
