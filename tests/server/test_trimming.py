"""Trimmed sums: what one user moves, what hostile nodes move, and whole runs of them."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.api.diagnoses import power
from fedlens.api.probes import probe_config
from fedlens.client.messages import TRAIN, Description, TrainReply, failure
from fedlens.foundation.errors import WrongUse
from fedlens.server.config.mechanism import denominator, release_deviation
from fedlens.server.config.schedule import scheduled
from fedlens.server.config.tree import ConfigError
from fedlens.server.config.trimming import TooFewUsers, Trimming
from fedlens.server.federation.enrolment import enrol
from fedlens.server.learning.learner import Learner
from fedlens.server.round.step import NoUsableReply, PrivateStep, StepPlan
from fedlens.simulations.federation.apps import client_app
from fedlens.simulations.transports.inprocess import InProcessGrid

CLIP = 0.3
NODES = st.lists(st.integers(1, 12), min_size=3, max_size=9)


def trimming_for(enrolled, share):
    """As many users as can be trimmed of these nodes, at least the largest node's."""
    whole = sum(enrolled)
    users = min(max(max(enrolled), int(share * whole)), (whole - 1) // 2)
    return Trimming(users, whole, CLIP), whole


def user_sums(enrolled, size, source, common=0.5):
    """Node sums of clipped contributions that have something in common, float64 [n, P]."""
    found = []
    for users in enrolled:
        rows = common + source.normal(size=(users, size))
        rows *= CLIP / np.linalg.norm(rows, axis=1, keepdims=True)
        found.append(rows.sum(axis=0))
    return np.stack(found)


def user_by_user(sums, enrolled, cut):
    """The same sum by its definition: each user at the node's mean, extremes left out."""
    values = np.repeat(sums / np.array(enrolled)[:, None], enrolled, axis=0)
    return np.sort(values, axis=0)[cut : len(values) - cut].sum(axis=0)


@settings(max_examples=60, deadline=None)
@given(NODES, st.floats(0, 0.49), st.integers(0, 2**32))
def test_it_is_the_sum_of_the_users_in_the_middle(enrolled, share, seed):
    trimming, _ = trimming_for(enrolled, share)
    sums = user_sums(enrolled, 17, np.random.default_rng(seed))
    found = trimming.total(list(sums), enrolled)
    wanted = user_by_user(sums, enrolled, trimming.users)
    assert np.abs(found - wanted).max() < 1e-7 * CLIP


@settings(max_examples=150, deadline=None)
@given(NODES, st.floats(0, 0.49), st.integers(0, 2**32), st.booleans())
@pytest.mark.law("1: trimming keeps the sensitivity")
def test_one_user_moves_it_by_the_clip_at_most(enrolled, share, seed, aimed):
    """The user's contribution is random, or crosses as many other nodes as it can."""
    trimming, _ = trimming_for(enrolled, share)
    source = np.random.default_rng(seed)
    sums = user_sums(enrolled, 23, source, common=0.0)
    place = int(source.integers(len(enrolled)))
    change = source.normal(size=23)
    if aimed:
        change = np.median(sums / np.array(enrolled)[:, None], axis=0) * enrolled[place]
        change -= sums[place]
    change *= CLIP / np.linalg.norm(change)
    other = sums.copy()
    other[place] += change
    moved = trimming.total(list(other), enrolled) - trimming.total(list(sums), enrolled)
    assert np.linalg.norm(moved) <= trimming.sensitivity(23)
    assert (moved * np.sign(change) >= -2 * trimming.users * trimming.step).all()
    assert (np.abs(moved) <= np.abs(change) + 2 * trimming.users * trimming.step).all()


def test_a_sum_can_move_by_all_of_a_users_contribution():
    """The bound is met, so no smaller noise would do."""
    trimming = Trimming(2, 10, CLIP)
    sums = [np.full(1, value) for value in (-9.0, -1.0, 0.0, 1.0, 9.0)]
    other = [one.copy() for one in sums]
    other[2] += CLIP
    moved = trimming.total(other, [2] * 5) - trimming.total(sums, [2] * 5)
    assert moved == pytest.approx(CLIP, rel=1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(["flip", "random", "far"]))
@pytest.mark.law("1: trimming keeps the sensitivity")
def test_hostile_nodes_stay_between_what_honest_ones_say(seed, attack):
    source, enrolled = np.random.default_rng(seed), [10] * 8 + [3, 7]
    trimming = Trimming(10, 90, CLIP)
    honest = user_sums(enrolled[:8], 31, source)
    sent = {
        "flip": -honest.mean(axis=0),
        "random": source.normal(size=31),
        "far": np.eye(1, 31)[0] * 1e6,
    }[attack]
    sums = [*honest, sent * 3, sent * 7]
    found = trimming.total(sums, enrolled)
    values = np.repeat(np.sort(honest / 10, axis=0), 10, axis=0)  # 80 users' places
    low, high = values[:70].sum(axis=0), values[10:].sum(axis=0)
    slack = 100 * 10 * trimming.step
    assert (found >= low - slack).all() and (found <= high + slack).all()
    widest = 10 * (honest.max(axis=0) - honest.min(axis=0)) / 10
    assert (high - low <= widest + slack).all()


def test_too_few_users_and_nodes_without_any():
    trimming = Trimming(3, 9, CLIP)
    sums = [np.ones(2) * CLIP] * 4
    with pytest.raises(TooFewUsers, match=r"6 users .* 3 are trimmed"):
        trimming.total(sums, [3, 3, 0, 0])
    found = trimming.total([*sums[:3], np.full(2, 1e9)], [3, 3, 3, 0])
    assert found == pytest.approx([CLIP] * 2, rel=1e-6)


def test_large_federations_are_summed_exactly_too():
    trimming = Trimming(2**18, 2**20, CLIP)
    source, enrolled = np.random.default_rng(4), [2**17] * 8
    sums = source.uniform(-1, 1, (8, 50)) * CLIP * 2**17 / 50**0.5
    wanted = user_by_user(sums, [1] * 8, 2)
    assert trimming.total(list(sums), enrolled) == pytest.approx(wanted, rel=1e-9, abs=1e-6 * CLIP)
    quarters = ((2**20, 1e-4), (10**6, 5e-5), (10**4, 1e-8), (1000, 1e-9))
    for users, added in quarters:  # what rounding adds stays of the size of float32's margin
        assert Trimming(users // 4, users, CLIP).sensitivity(130_000) <= (1 + added) * CLIP


def test_the_longest_sums_do_not_overflow():
    """Every user at the clip, all in one coordinate: the most that replies are let in with."""
    users, longest = 2**20 - 1, CLIP * (1 + 1e-9)
    enrolled = [users // 3] * 3
    trimming = Trimming(users // 3, users, CLIP)
    sums = [np.array([each * longest, -each * longest]) for each in enrolled]
    wanted = (users - 2 * (users // 3)) * longest
    assert trimming.total(sums, enrolled) == pytest.approx([wanted, -wanted], rel=1e-8)


FIVE = {
    "data__users": 50,
    "data__nodes": 5,
    "tasks__critic__kind": "frozen",
    "tasks__critic__rounds": 1,
    "tasks__critic__noise_multiplier": 1e-6,
    "tasks__critic__faithful_steps": 1,
}


def flipped(message, context):
    """Node 1 sends the longest sum that is taken, against its own users'."""
    reply = client_app(message, context)
    if context.node_config["partition-id"] == 1 and message.metadata.message_type == TRAIN:
        sent = TrainReply.from_record(reply.content)
        drawn = int(sent.norms.sum())
        long = -sent.total * (drawn * CLIP / np.linalg.norm(sent.total)) * (1 - 1e-6)
        counts = np.zeros_like(sent.norms)
        counts[-1] = drawn
        reply.content = TrainReply(long, counts).to_record()
    return reply


def gathered(config, app):
    """A round's sum before the noise, over its weight."""
    grid = InProcessGrid(app, config.data.nodes, config.flat())
    federation, task = enrol(grid, config), scheduled(config)[0]
    learner = Learner(config, federation)
    learner.prepare(task)
    state = learner.task(task)
    step = PrivateStep(StepPlan(config, task, grid, federation, state.size, state.largest_reply))
    return step.gather(1, learner.asked(task)).total.values / denominator(config, task.settings)


def test_a_hostile_node_moves_a_trimmed_sum_by_little(small_config):
    """Of five nodes one sends the worst that is taken; the others' users differ as users do."""
    plain, trimmed = (small_config(**FIVE, aggregation__trimmed_share=s) for s in (0.0, 0.2))
    sound = gathered(plain, client_app)
    bias = np.linalg.norm(gathered(trimmed, client_app) - sound)
    hit = np.linalg.norm(gathered(plain, flipped) - sound)
    held = np.linalg.norm(gathered(trimmed, flipped) - sound)
    assert bias < held < hit / 2


def test_a_trimmed_run_is_charged_as_any_other_and_divided_by_what_is_left(small_config):
    plain, trimmed = (small_config(**FIVE, aggregation__trimmed_share=s) for s in (0.0, 0.3))
    one, other = (scheduled(config)[0] for config in (plain, trimmed))
    assert one.event == other.event
    assert denominator(trimmed, other.settings) == 0.4 * denominator(plain, one.settings)
    noise = release_deviation(trimmed, other.settings) / release_deviation(plain, one.settings)
    assert noise == pytest.approx(2.5)


def test_a_round_of_too_few_users_fails_and_is_charged(small_config, run_small, tmp_path):
    def silent(message, context):
        if context.node_config["partition-id"] > 1 and message.metadata.message_type == TRAIN:
            return Message(content=failure(), reply_to=message)
        return client_app(message, context)

    with pytest.raises(NoUsableReply, match="trimmed_share"):
        run_small(small_config(**FIVE, aggregation__trimmed_share=0.2), app=silent)
    assert [entry.round for entry in Ledger.verify(tmp_path / "run" / "ledger.jsonl")] == [1]


def test_a_node_of_more_users_than_are_trimmed_takes_part_with_as_many(small_config):
    """Users are dealt out as equally as can be, so only a node by itself can be too large here."""
    config = small_config(**FIVE, aggregation__trimmed_share=0.2)
    roster = enrol(InProcessGrid(client_app, 5, config.flat()), config).roster
    assert roster.users == (10,) * 5

    def larger(message, context):
        reply = client_app(message, context)
        told = Description.from_record(reply.content)
        if told.partition == 3:
            reply.content = told.model_copy(update={"users": 11}).to_record()
        return reply

    grid = InProcessGrid(larger, 5, config.flat())
    assert enrol(grid, config).roster.users == (10,) * 5


def test_what_speaks_of_all_users_takes_no_trimmed_sums(small_config):
    """A share that few nodes' users have is cut off, and noise is larger than a plain mean's."""
    config = small_config(**FIVE, aggregation__trimmed_share=0.2)
    assert probe_config(config, "dark_border", 1.0, "").aggregation.trimmed_share == 0
    with pytest.raises(WrongUse, match=r"trimmed_share = 0\.2 cuts off"):
        power(config=config)
    asked = {"schedule": "probe", "tasks.probe.kind": "probe", "tasks.probe.probe": "dark_border"}
    with pytest.raises(ConfigError, match=r"trimmed_share.*means over all users"):
        config.updated(asked)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"aggregation__secure": True}, "masked"),
        (
            {"privacy__unit": "record", "privacy__delta": 1e-6, "data__records_per_node": 50},
            "record mode",
        ),
        ({"data__nodes": 2}, "3 nodes"),
        ({"aggregation__trimmed_share": 0.1}, "could not be trimmed"),
        ({"aggregation__trimmed_share": 0.499}, "cut off at either end"),
        ({"aggregation__trimmed_share": 0.5}, "below 0.5"),
    ],
)
def test_what_cannot_be_trimmed_is_refused_by_name(small_config, changes, word):
    with pytest.raises(ConfigError, match=word) as told:
        small_config(**{**FIVE, "aggregation__trimmed_share": 0.25, **changes})
    assert "trimmed_share" in str(told.value)
