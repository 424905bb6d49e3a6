"""Neighbours whose nodes' files are written anew during a run: no sum moves by more than C."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from fedlens.client.app import build_client_app
from fedlens.client.messages import TRAIN
from fedlens.client.node.file import open_node_users
from fedlens.server.config.tree import Config
from fedlens.server.federation import membership
from fedlens.server.round.step import PrivateStep
from fedlens.server.run.directory import RunDirectory
from fedlens.server.training import train
from fedlens.simulations.transports.inprocess import FIRST_NODE_ID, InProcessGrid

NODES, ROUNDS, USERS, BOUND = 3, 4, 5, 24
CLIP = 0.05
ONE = 103
"""The user whom neighbouring worlds differ by: of node 1."""

World = list[list[dict[int, int]]]
"""For each round and node, how many records each enrolled user holds."""


def a_run() -> Config:
    return Config().updated(
        {
            "schedule": "critic",
            "tasks.critic.kind": "frozen",
            "tasks.critic.rounds": ROUNDS,
            "tasks.critic.generator_steps": 1,
            "tasks.critic.faithful_steps": 1,
            "tasks.critic.clipping_norm": CLIP,
            "tasks.critic.sampling_rate": 1.0,  # else the draw moves the sums, not the user
            "generator.width": 8,
            "generator.batch": 20,
            "data.nodes": NODES,
            "data.users": BOUND,
            "data.records_per_user": 4,
            "membership.least_users": 0.01,
            "membership.least_nodes": 0.1,
            "membership.patience": 0.0,
            "privacy.delta": 1e-6,
            "privacy.fixed_seed": 1,
        }
    )


def write(path, held: dict[int, int], enrolled: bool) -> None:
    """A node's file; a user's records are the user's own, whoever else is there."""
    users = np.repeat(list(held), list(held.values())).astype(np.int64)
    images = [
        np.random.default_rng([user, record]).integers(0, 256, (1, 28, 28), dtype=np.uint8)
        for user, records in held.items()
        for record in range(records)
    ]
    arrays = {"enrolled": np.array(list(held), dtype=np.int64)} if enrolled else {}
    labels = users % 3
    pixels = np.array(images, dtype=np.uint8).reshape(-1, 1, 28, 28)
    np.savez(path, images=pixels, labels=labels, users=users, classes=3, **arrays)


class ChangingFiles(InProcessGrid):
    """Nodes over files that are written anew before a round, or between question and request."""

    def __init__(self, config, folder, world: World, *, enrolled: bool, late: bool):
        folder.mkdir()
        self._folder, self._world = folder, world
        self._enrolled, self._late = enrolled, late
        super().__init__(build_client_app(open_node_users), NODES, config.flat())
        for place in range(NODES):
            own = self._contexts[FIRST_NODE_ID + place].node_config
            own["data"] = str(folder / f"{place}.npz")
            del own["num-partitions"]
        self._write(1)

    def _write(self, number):
        for place, held in enumerate(self._world[number - 1]):
            write(self._folder / f"{place}.npz", held, self._enrolled)

    def push_messages(self, messages):
        messages = list(messages)
        training = messages and messages[0].metadata.message_type == TRAIN
        number = int(messages[0].metadata.group_id) if training else 0
        if training and self._late:
            self._write(number)
        found = super().push_messages(messages)
        if training and not self._late and number < ROUNDS:
            self._write(number + 1)
        return found


numbers = count()


def sums_of(tmp_path, monkeypatch, world: World, **how) -> list[np.ndarray]:
    """What each round added up to before its noise."""
    sums, gather = [], PrivateStep.gather

    def kept(step, *asked):
        aggregate = gather(step, *asked)
        assert len(aggregate.accepted) == NODES, "a node left the sum"
        sums.append(aggregate.total.values.copy())
        return aggregate

    config, place = a_run(), tmp_path / str(next(numbers))
    place.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(PrivateStep, "gather", kept)
        grid = ChangingFiles(config, place / "files", world, **how)
        train(config, RunDirectory.create(place / "run", config), grid)
    return sums


def changes(place: int) -> st.SearchStrategy[dict[int, int]]:
    """Who is enrolled on a node and how much each holds: people join, leave, gain and lose."""
    first = 100 * place
    people = st.integers(first, first + USERS + 1)
    return st.dictionaries(people, st.integers(0, 3), min_size=1, max_size=USERS + 2)


JOINS = [[{1: 1}, {102: 1, 104: 3, 105: 1, 106: 2}, {201: 1}]] * ROUNDS, [0, 2, 2, 0]
"""The one user joins in the middle of a list of which all others stay, and leaves again."""
worlds = st.lists(
    st.tuples(*map(changes, range(NODES))).map(list), min_size=ROUNDS, max_size=ROUNDS
)


@pytest.mark.parametrize(
    ("every", "enrolled", "late"),
    [(1, True, False), (1, False, False), (1, False, True), (10, False, False)],
)
@settings(
    max_examples=1,
    phases=[
        Phase.explicit,
        Phase.generate,
    ],  # each example is two runs: to shrink one would take minutes
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
@example(*JOINS)
@given(worlds, st.lists(st.integers(0, 3), min_size=ROUNDS, max_size=ROUNDS))
@pytest.mark.law("1: one user moves a sum by at most the clip")
def test_whoever_comes_or_goes_a_user_moves_each_sum_by_the_clip_at_most(
    tmp_path, monkeypatch, every, enrolled, late, world, held
):
    monkeypatch.setattr(membership, "ASKED_EVERY", every)
    with_one, without = [], []
    for nodes, records in zip(world, held, strict=True):
        others = [{u: n for u, n in node.items() if u != ONE} for node in nodes]
        others = [{**node, 100 * p + 1: 1} for p, node in enumerate(others)]  # no node is empty
        own = {ONE: records} if records or not enrolled else {}
        without.append(others)
        with_one.append([others[0], {**others[1], **own}, others[2]])
    how = {"enrolled": enrolled, "late": late}
    found = sums_of(tmp_path, monkeypatch, with_one, **how)
    missing = sums_of(tmp_path, monkeypatch, without, **how)
    moved = [np.linalg.norm(one - other) for one, other in zip(found, missing, strict=True)]
    assert max(moved) <= CLIP * (1 + 1e-9)
