"""Users of a slice on a node: by what is declared of them, one value each, never by records."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedlens.client.node.file import open_node_users
from fedlens.client.node.slices import wanted_slice
from fedlens.client.users.protocol import NodeDataError


@pytest.fixture
def opened(tmp_path):
    def write(wanted="", declared="", **changes):
        found = {
            "images": np.zeros((6, 1, 28, 28), np.uint8),
            "labels": np.arange(6),
            "users": np.array([7, 4, 9, 4, 7, 7]),
            "classes": np.array(10),
            "declared_app_version": np.array(["2.0", "1.0", "2.0", "1.0", "2.0", "2.0"]),
            **changes,
        }
        path = tmp_path / f"users-{len(list(tmp_path.iterdir()))}.npz"
        np.savez(path, **{k: v for k, v in found.items() if v is not None})
        node = {"data": str(path), **({"declared": declared} if declared else {})}
        return open_node_users(SimpleNamespace(node_config=node, run_config={"data.slice": wanted}))

    return write


def numbers(users):
    return [users.user_id(place) for place in range(len(users))]


def test_a_slice_has_the_users_whose_value_is_asked_for_with_their_records(opened):
    assert numbers(opened()) == [4, 7, 9]
    one, two = opened("app_version=1.0"), opened("app_version=2.0")
    assert numbers(one) == [4] and numbers(two) == [7, 9]
    assert two.user(0).labels.tolist() == [0, 4, 5] and two.user(1).labels.tolist() == [2]
    assert two.slice == "app_version=2.0"
    assert len(opened("app_version=3.0")) == 0


@pytest.mark.law("2: only disjoint groups compose in parallel")
def test_slices_by_one_attribute_share_no_user_whatever_the_file_says(opened):
    """A user whose records disagree has the value of the first of them."""
    odd = np.array(["2.0", "1.0", "1.0", "2.0", "1.0", "3.0"])
    found = [
        set(numbers(opened(f"app_version={value}", declared_app_version=odd)))
        for value in ("1.0", "2.0", "3.0")
    ]
    assert sum(map(len, found)) == len(set.union(*found)) == 3


def test_a_user_without_records_is_in_no_slice_of_a_column(opened):
    assert numbers(opened("app_version=1.0", enrolled=np.array([4, 5, 7, 9]))) == [4]


def test_who_is_on_a_slice_does_not_depend_on_who_holds_records(opened):
    """One value for each of ``enrolled``, in any order; user 5, and at last 7, hold nothing."""
    declared = {
        "enrolled": np.array([9, 4, 7, 5]),
        "declared_app_version": None,
        "enrolled_app_version": np.array(["2.0", "1.0", "2.0", "1.0"]),
    }
    emptied = {
        "images": np.zeros((3, 1, 28, 28), np.uint8),
        "labels": np.arange(3),
        "users": np.array([4, 9, 4]),
    }
    for changes in ({}, emptied):
        one, two = (opened(f"app_version={v}", **declared, **changes) for v in ("1.0", "2.0"))
        assert numbers(one) == [4, 5] and numbers(two) == [7, 9]
        assert one.held(0) == 2 and two.held(0) == (0 if changes else 3)


def test_an_operator_declares_a_value_of_all_users(opened):
    users = opened("hospital=north", declared="hospital=north ward=3")
    assert numbers(users) == [4, 7, 9]
    assert len(opened("hospital=south", declared="hospital=north")) == 0


def test_a_node_that_declares_no_such_attribute_refuses(opened):
    with pytest.raises(NodeDataError, match="declares no 'device'"):
        opened("device=phone")
    with pytest.raises(NodeDataError, match="write NAME=VALUE"):
        opened("device=phone", declared="phone")
    with pytest.raises(NodeDataError, match="for each number in 'enrolled'"):
        opened("device=phone", enrolled_device=np.array(["phone"]))
    with pytest.raises(NodeDataError, match="declared_app_version must be one text"):
        opened("app_version=1.0", declared_app_version=np.zeros((6, 2)))


def test_run_settings_stand_over_the_runs_own_key():
    assert wanted_slice({"data.slice": "a=1"}) == "a=1"
    assert wanted_slice({"data.slice": "a=1", "run.settings": 'data.slice = "a=2"'}) == "a=2"
    assert wanted_slice({}) == ""
    with pytest.raises(NodeDataError, match="not TOML"):
        wanted_slice({"run.settings": "="})
