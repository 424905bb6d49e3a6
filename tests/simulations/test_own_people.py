"""A simulation over people whom the data name: what one holds is no matter of the others'."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from fedlens.client.messages import TrainRequest
from fedlens.client.train import train
from fedlens.client.users.protocol import DataOrigin
from fedlens.client.users.records import alone
from fedlens.server.config.mechanism import mechanism
from fedlens.server.config.tree import Config
from fedlens.server.learning.builds_on import with_cost
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import named_classes, node_users, usual_records

PEOPLE, EACH, ONE = 40, 12, 7


def saved(path, left: int, others: int = EACH) -> str:
    """Data of which person ``ONE``, and all others, have only the first few records."""
    source = np.random.default_rng(0)
    owners = np.repeat(np.arange(PEOPLE) * 1000 - 9, EACH)
    images = source.integers(0, 256, (len(owners), 28, 28), dtype=np.uint8)
    labels = source.integers(0, 10, len(owners))
    most = np.where(owners == ONE * 1000 - 9, left, others)
    kept = np.arange(len(owners)) % EACH < most
    np.savez(
        path, train_images=images[kept], train_labels=labels[kept], user_ids=owners[kept],
        test_images=images[:20], test_labels=np.arange(20) % 10,
    )  # fmt: skip
    return str(path)


def config_of(path: str, users: int, **changes) -> Config:
    return Config().updated(
        {
            "data.name": f"npz:{path}", "data.users": users, "data.nodes": 1,
            "data.scheme": "column", "privacy.delta": 1e-3, "tasks.critic.kind": "frozen",
            **{key.replace("__", "."): value for key, value in changes.items()},
        }
    )  # fmt: skip


@pytest.mark.parametrize(
    ("renamed", "told"),
    [
        ("", ()),
        (",map=cat:cat", ()),
        (",map=cat:cat;dog:dog", ("cat", "dog")),
        (",map=cat:felis;dog:canis", ("canis", "felis")),
    ],
)
def test_no_persons_own_label_is_told_as_the_name_of_a_class(tmp_path, renamed, told):
    for name in ("cat", "dog"):
        for user in range(6):
            place = tmp_path / "own" / name / f"u{user}" / "0.png"
            place.parent.mkdir(parents=True)
            Image.fromarray(np.full((28, 28), 9 * user, np.uint8)).save(place)
    config = Config().updated({"data.name": f"tree:{tmp_path / 'own'}{renamed}", "data.users": 2})
    assert named_classes(config) == told


def test_an_archive_and_the_demo_have_the_names_that_they_declare(tmp_path):
    path = saved(tmp_path / "own.npz", EACH)
    config = config_of(path, PEOPLE)
    assert named_classes(config) == named_classes(Config()) == ()
    with np.load(path) as arrays:
        names = np.array([f"kind {number}" for number in range(10)])
        np.savez(tmp_path / "named.npz", **arrays, classes=names)
    config = config.updated({"data.name": f"npz:{tmp_path / 'named.npz'}"})
    assert named_classes(config) == tuple(names)
    assert named_classes(config.updated({"data.labels": "none"})) == ()


def parts(config: Config) -> dict[int, np.ndarray]:
    """What each person adds to a sum, by the person's number."""
    users = node_users(config, 0)
    return {users.user_id(place): own_sum(config, users, place) for place in range(len(users))}


def own_sum(config: Config, users, place: int) -> np.ndarray:
    request = TrainRequest(
        round=1, users=(place,), enrolled=len(users), kind="frozen",
        mechanism=mechanism(config, config.tasks["critic"]), settings={"feature_seed": 0},
        weights={}, seed=1, key=b"k" * 16,
        records_per_user=config.data.records_per_user or usual_records(config),
    )  # fmt: skip
    return train(users, request).total


@pytest.mark.parametrize(
    "changes", [{}, {"data__records_per_user": 4}, {"data__samples_per_user": 4}]
)
@pytest.mark.parametrize("users, left", [(PEOPLE, 1), (PEOPLE // 2, 0)])
@pytest.mark.law("1: seeds belong to the user")
def test_what_one_person_holds_changes_nothing_of_the_others(tmp_path, users, left, changes):
    found = []
    for place, held in enumerate((EACH, left)):
        path = saved(tmp_path / f"{place}.npz", held)
        found.append(parts(config_of(path, users, **changes)))
    both = found[0].keys() & found[1].keys()
    assert len(both) >= users - 1, "another one may come in that one's place, and no more"
    assert all((found[0][one] == found[1][one]).all() for one in both - {ONE * 1000 - 9})


def test_how_many_records_count_is_nothing_that_one_person_decides(tmp_path):
    few, many = (
        usual_records(config_of(saved(tmp_path / f"{held}.npz", held, others=4), PEOPLE))
        for held in (1, EACH)
    )
    assert few == many


def test_a_simulation_computes_what_people_hold_and_a_node_as_if_all_held_as_much(tmp_path):
    config = config_of(saved(tmp_path / "d.npz", 0, others=4), PEOPLE // 2)
    spared = node_users(config, 0)
    hosted = replace(spared, origin=DataOrigin())
    for place in range(len(spared)):
        data = spared.user(place)
        assert alone(data, EACH, spared).images.shape[1] == max(1, len(data.labels))
        assert alone(data, EACH, hosted).images.shape[1] == EACH
        both = own_sum(config, spared, place), own_sum(config, hosted, place)
        assert np.abs(both[0] - both[1]).max() < 1e-6


@pytest.mark.parametrize("scheme, said", [("iid", True), ("column", False)])
def test_a_run_over_made_up_users_says_so(tmp_path, scheme, said):
    config = config_of(saved(tmp_path / "d.npz", EACH), PEOPLE, data__scheme=scheme)
    told = with_cost("Guaranteed.", RunDirectory.create(tmp_path / "run", config))
    assert ("made up" in told) is said
    public = Config().updated({"data.scheme": "iid"})
    assert with_cost("G.", RunDirectory.create(tmp_path / "other", public)) == "G."
