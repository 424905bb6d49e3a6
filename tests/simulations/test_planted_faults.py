"""Faults that a simulation plants: in which users, in which records, and where it is written."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from fedlens.api.simulations import chosen_config
from fedlens.cli import main
from fedlens.foundation.errors import WrongUse
from fedlens.models.faults import FAULTS
from fedlens.models.faults.planting import SOUND
from fedlens.models.faults.protocol import FaultSetting
from fedlens.simulations.federation.apps import FaultyUsers, check_planted, node_users

SMALL = {"data.users": 100, "data.samples_per_user": 6}


def config(fault, **more):
    return chosen_config(settings={**SMALL, "data.fault": fault, **more})


def test_the_share_of_users_has_the_fault_in_all_records_and_the_others_in_none():
    made, clean = config("rotate90:0.3"), config("")
    faulty = 0
    for number in range(2):
        users, others = node_users(made, number), node_users(clean, number)
        assert isinstance(users, FaultyUsers) and not isinstance(others, FaultyUsers)
        for place in range(len(users)):
            own, real = users.user(place), others.user(place)
            turned = FAULTS["rotate90"].applied(real.images, real.labels, FaultSetting(10))[0]
            wanted = real.images if users.which[place] == SOUND else turned
            assert torch.equal(own.images, wanted) and torch.equal(own.labels, real.labels)
            faulty += users.which[place] != SOUND
    assert faulty == 30


def test_a_user_has_the_same_fault_whatever_is_read_and_however_many_nodes_there_are():
    one = node_users(config("noise:0.5", **{"data.nodes": 1}), 0)
    two = [node_users(config("noise:0.5"), number) for number in range(2)]
    some = np.array([4, 1])
    for place in range(0, 100, 7):
        own = one.user(place)
        assert torch.equal(own.images[some], one.user(place, some).images)
        assert torch.equal(own.images, two[place // 50].user(place % 50).images)


def test_records_that_a_fault_takes_out_are_not_held():
    users = node_users(config("missing_class:1:classes=3"), 0)
    for place in range(len(users)):
        data = users.user(place)
        assert users.held(place) == len(data.labels) == len(data.images)
        assert not (data.labels == 3).any()


def test_a_fault_that_does_not_go_with_the_data_is_refused_before_anything_is_spent():
    with pytest.raises(WrongUse, match="grey"):
        check_planted(config("swap_channels:0.2"))
    with pytest.raises(WrongUse, match=r"data\.fault = 'rotate:0.2' cannot be used.*no fault"):
        config("rotate:0.2")


def test_the_command_plants_a_fault_and_the_run_says_so(tmp_path, capsys):
    quick = [
        *("schedule=warmup", "data.users=40", "data.samples_per_user=5", "privacy.delta=1e-3"),
        *("tasks.warmup.generator_steps=1", "generator.width=8", "release.samples=10"),
        *("release.agreement=0", "generator.batch=20"),
    ]
    settings = [word for setting in quick for word in ("--set", setting)]
    out = tmp_path / "run"
    planted = ["--fault", "rotate90:0.25", "--fault", "invert:0.5"]
    arguments = ["simulate", *planted, *settings, "--out", str(out), "--no-student", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rounds"] == 1
    assert 'fault = "rotate90:0.25 invert:0.5"' in (out / "config.toml").read_text()
