"""`make bench`: all ways do the same work, and figures are of the turns they are said of."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from torch.nn.utils import parameters_to_vector

from benchmarks.peers import __main__ as bench
from benchmarks.peers import ours, turns, work
from benchmarks.peers.curves import plot_curves
from benchmarks.peers.turns import TurnCosts, ratios, take_turns
from fedlens.client.tasks.engines.autograd import LoopEngine
from fedlens.client.tasks.engines.batches import LocalBatches, LocalRule
from fedlens.models.limits import weight_limits


def test_a_peers_plain_steps_are_those_of_the_plain_loop():
    """The same batches against the same generated images lead to the same weights."""
    size, seed = work.Size(4, 8), 3
    data = work.people(5).user(2)
    source = np.random.default_rng(seed)
    picks, places = [], []
    for _ in range(work.STEPS * work.BATCH // work.RECORDS):
        for batch in np.split(source.permutation(work.RECORDS), work.RECORDS // work.BATCH):
            picks.append(torch.from_numpy(batch))
            places.append(torch.from_numpy(source.integers(25, size=work.BATCH)))
    batches = LocalBatches(
        data.images[None],
        data.labels[None],
        torch.stack(picks)[None],
        work.pool(),
        torch.stack(places)[None],
    )
    critic = size.critic()
    rule = LocalRule("wasserstein", work.RATE, weight_limits(critic, work.LIMIT))
    wanted = LoopEngine(critic, rule).changes(batches)[0]
    start = parameters_to_vector(critic.parameters()).detach().clone()
    work.plain_steps(critic, data.images, data.labels, seed)
    found = parameters_to_vector(critic.parameters()).detach() - start
    assert float((found - wanted).norm() / wanted.norm()) < 1e-3


@pytest.mark.parametrize("name", ours.ENGINES)
def test_our_round_is_a_nodes_whole_round_clip_included(name):
    reply = ours.our_round(name, work.Size(2, 4), 3, population=20)()
    assert 0 < np.linalg.norm(reply.total) <= 3 * work.CLIP
    assert reply.norms.sum() == 3


def test_a_way_is_warmed_up_and_then_timed_as_often_as_the_others():
    done = []
    ways = {name: lambda name=name: done.append(name) for name in ("one", "other")}
    said = []
    costs = take_turns(ways, frozenset({"other"}), 4, 3, said.append)
    assert done == ["one", "other"] * 4
    assert {name: len(cost.cpu) for name, cost in costs.items()} == {"one": 3, "other": 3}
    assert len(said) == 8 and "turn 3 of 3: other, 4 users" in said[-1]


def test_ratios_are_of_the_same_turn():
    costs = {"a": TurnCosts(cpu=[1.0, 2.0, 10.0]), "b": TurnCosts(cpu=[2.0, 8.0, 20.0])}
    assert ratios(costs, "b", "a") == (2.0, 2.0, 4.0)
    assert bench.of(costs, "a", "b") == "2.00 (2.00 to 4.00)"
    assert costs["a"].users_a_second == 500.0


def test_the_table_says_what_was_not_measured(monkeypatch):
    costs = {"fedlens, columns": TurnCosts(cpu=[2.0]), bench.FLOWER: TurnCosts(cpu=[5.0])}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    out = io.StringIO()
    Console(file=out, width=120).print(bench.steps_table("small", costs, {}))
    assert "pfl" in out.getvalue() and "not measured" in out.getvalue()
    assert "2.50 (2.50 to 2.50)" in out.getvalue()
    assert bench.gpu_words() == "not measured"


def test_own_processor_time_counts_those_of_children():
    before = turns.tree_seconds()
    assert before > 0 and turns.children_megabytes() >= 0


def test_curves_are_drawn(tmp_path: Path):
    line = {"fedlens": {16: 50.0, 64: 60.0}}
    plot_curves({"cohort": line, "population": line}, tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 5000
