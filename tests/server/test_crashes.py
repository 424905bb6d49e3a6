"""Cut off at any instant at which something reaches the disk, a run goes on with nothing lost.

The guarantee is the order of durable writes, which no network has a part in: runs train the null
task, and are cut at every instant of a round, before and after each write. One real task of each
kind is cut in the tests of that kind.
"""

from __future__ import annotations

import pytest
from power_cuts import DurableWrites, Instant, PowerCut, instants_of_a_round
from test_resume import check_ledger
from thorough import some

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.server.run.directory import RunDirectory

MASKED = {
    "data.nodes": 3,
    "aggregation.secure": True,
    "aggregation.tolerated_dropouts": 1,
}
MODES = {
    "users": {},
    "records": {"privacy.unit": "record", "privacy.delta": 1e-5, "data.records_per_node": 100},
    "masked sums": MASKED,
    "masked sums, noise of nodes": {**MASKED, "aggregation.noise": "distributed"},
}


@pytest.fixture
def config(small_config):
    """A run of the null task, in one of the modes."""

    def make(mode: str, rounds: int):
        changes = {
            "data.users": 12,
            "tasks.critic.rounds": rounds,
            "tasks.critic.generator_steps": 1,
            "generator.width": 1,
            "generator.batch": 10,
            **MODES[mode],
        }
        return small_config(**{key.replace(".", "__"): v for key, v in changes.items()})

    return make


@pytest.fixture
def cut_points(config, run_small):
    """Every instant of a round; those between its ledger line and its release come second.

    What comes after the state is kept is the same in every mode: it is cut in one of them.
    """

    def find(mode: str) -> tuple[list[Instant], list[Instant]]:
        writes = DurableWrites()
        with writes.watched():
            run_small(config(mode, 3), "watched")
        found = instants_of_a_round(writes.seen)
        kept = next(n for n, one in enumerate(found) if one.what.startswith("folder of release-"))
        assert len(found) >= 18, "fewer writes than a round has"
        learned = next(n for n, one in enumerate(found) if one.what.startswith("folder of state"))
        return found[kept : None if mode == "users" else learned + 1], found[:kept]

    return find


def cut_in_each(points, run_small, config, folder):
    """A run that is cut at one of the points in each round, and at last goes on to its end.

    Returns:
        Its outcome, and the points at which a release was paid for and not kept.
    """
    lost = []
    directory = RunDirectory(folder)
    for point in points:
        writes = DurableWrites(point)
        with writes.watched(), pytest.raises(PowerCut):
            run_small(config, folder.name)
        assert writes.seen[-1] == point, f"no cut {point}"
        entries, state = Ledger.verify(directory.ledger), directory.load_state()
        done = 0 if state is None else state.round
        assert done <= len(entries) <= done + 1, point
        releases = [n for n in range(1, len(entries) + 2) if directory.load_release(n) is not None]
        assert all(number <= len(entries) for number in releases), f"unpaid release, cut {point}"
        if len(entries) > done and not releases:
            lost.append(point)
    return run_small(config, folder.name), lost


@pytest.mark.parametrize("mode", some(MODES, "users"))
@pytest.mark.law("crashes: a killed run goes on")
def test_a_run_cut_outside_the_private_instant_ends_with_the_same_model(
    config, cut_points, run_small, tmp_path, mode
):
    points, _ = cut_points(mode)
    made = config(mode, len(points) + 2)
    outcome, lost = cut_in_each(points, run_small, made, tmp_path / "run")
    assert lost == []
    assert outcome.model_sha256 == run_small(made, "whole").model_sha256
    check_ledger(tmp_path / "run", outcome, lost=0, rounds=len(points) + 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.law("2: empty, failed and lost rounds are charged")
def test_a_release_lost_with_the_process_stays_paid_for_and_is_not_drawn_again(
    config, cut_points, run_small, tmp_path, mode
):
    _, points = cut_points(mode)
    made = config(mode, len(points) + 1)
    outcome, lost = cut_in_each(points, run_small, made, tmp_path / "run")
    assert lost == points and outcome.spending.rounds == len(points) + 1
    check_ledger(tmp_path / "run", outcome, lost=len(lost), rounds=len(points) + 1)
