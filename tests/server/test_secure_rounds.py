"""Runs whose nodes mask their sums: what they learn, what they cost, and how they fail."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from flwr.app import Message

from fedlens.accountant.bayesian.noised_norms import NoisedNorms
from fedlens.accountant.ledger.evidence import EvidenceFile
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client import secure_messages as wire
from fedlens.client.messages import TRAIN, failure
from fedlens.foundation.secure_sum import SumCollector
from fedlens.server.config.mechanism import release_deviation, round_event, round_noise
from fedlens.server.config.tree import ConfigError
from fedlens.server.ledger.plan import empty_account
from fedlens.server.round.step import NoUsableReply
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import client_app
from fedlens.store import open_store

FIVE = {
    "data__nodes": 5,
    "aggregation__secure": True,
    "aggregation__tolerated_dropouts": 1,
    "aggregation__colluding": 1,
    "tasks__critic__kind": "frozen",
    "tasks__critic__rounds": 1,
    "tasks__critic__faithful_steps": 1,
}
DISTRIBUTED = {**FIVE, "aggregation__noise": "distributed"}
TWICE = {**DISTRIBUTED, "tasks__critic__rounds": 2}


class Silent:
    """Nodes that fail when asked for one of some kinds of message."""

    def __init__(self, *kinds: str, partitions: tuple[int, ...] = (2,)) -> None:
        self.kinds, self.partitions = kinds, partitions

    def __call__(self, message, context):
        gone = context.node_config["partition-id"] in self.partitions
        if gone and message.metadata.message_type in self.kinds:
            return Message(content=failure(), reply_to=message)
        return client_app(message, context)


def plain(changes: dict) -> dict:
    return {key: value for key, value in changes.items() if not key.startswith("aggregation")}


@pytest.mark.parametrize("step", [None, wire.KEYS, wire.SHARES, wire.MASKED])
@pytest.mark.law("secure sums: the sum is exact")
def test_a_masked_run_is_the_plain_one_bit_for_bit(small_config, run_small, step):
    """With 5 nodes and one that drops out, at whichever step, the released sums are equal."""
    gone = Silent(TRAIN, step) if step else Silent()
    open_ = run_small(small_config(**plain(FIVE)), "plain", gone)
    masked = run_small(small_config(**FIVE), "masked", gone)
    assert masked.model_sha256 == open_.model_sha256
    assert masked.spending.dp_epsilon == open_.spending.dp_epsilon
    assert masked.spending.bdp_corrected == open_.spending.bdp_corrected


def test_a_node_that_goes_after_its_sum_came_is_in_the_sum(small_config, run_small):
    whole = run_small(small_config(**FIVE), "whole")
    for step in (wire.AGREE, wire.REVEAL):
        late = run_small(small_config(**FIVE), step, Silent(step))
        assert late.model_sha256 == whole.model_sha256


@pytest.mark.law("secure sums: a bad round fails and is charged")
@pytest.mark.parametrize(
    ("step", "settings"),
    [
        (wire.KEYS, FIVE),
        (wire.SHARES, TWICE),
        (wire.MASKED, FIVE),
        (wire.MASKED, TWICE),
        (wire.AGREE, FIVE),
        (wire.REVEAL, TWICE),
    ],
    ids=lambda value: (
        ("nodes'" if value is TWICE else "server's") if value in (FIVE, TWICE) else value
    ),
)
def test_too_few_nodes_fail_the_round_which_is_charged(
    small_config, run_small, tmp_path, step, settings
):
    gone = Silent(step, partitions=(1, 3))
    small = small_config(**{**settings, "tasks__critic__kind": "null"})
    with pytest.raises(NoUsableReply):
        run_small(small, app=gone)
    entries = Ledger.verify(tmp_path / "run" / "ledger.jsonl")
    assert [e.round for e in entries] == [1]
    assert RunDirectory(tmp_path / "run").load_release(1) is None
    if settings is TWICE and step in (wire.MASKED, wire.REVEAL):
        assert run_small(small).rounds == 2  # goes on with nothing spent twice
        assert len(Ledger.verify(tmp_path / "run" / "ledger.jsonl")) == 2


@pytest.mark.law("secure sums: the nodes' noise is what the ledger states")
def test_the_entry_is_on_disk_before_anything_can_be_opened(
    small_config, run_small, tmp_path, monkeypatch
):
    ledger, seen = tmp_path / "run" / "ledger.jsonl", []
    opened = SumCollector.opened

    def watched(collector):
        seen.append((collector._terms.round, [e.round for e in Ledger.verify(ledger)]))
        return opened(collector)

    asked = []

    class Watching:
        def __call__(self, message, context):
            if message.metadata.message_type == wire.REVEAL:
                asked.append([e.round for e in Ledger.verify(ledger)])
            return client_app(message, context)

    monkeypatch.setattr(SumCollector, "opened", watched)
    run_small(small_config(**TWICE), app=Watching())
    assert seen == [(1, [1]), (2, [1, 2])]
    assert asked == [[1]] * 5 + [[1, 2]] * 5


def test_noise_of_nodes_is_accounted_with_the_norms_that_came_with_it(
    small_config, run_small, tmp_path
):
    outcome = run_small(small_config(**DISTRIBUTED))
    same = run_small(small_config(**plain(FIVE)), "plain")
    assert outcome.spending.dp_epsilon == same.spending.dp_epsilon
    assert outcome.spending.rounds_with_norms == 1 and not outcome.spending.warnings
    assert math.isfinite(outcome.spending.bdp_corrected)
    directory = RunDirectory(tmp_path / "run")
    evidence = EvidenceFile(directory.evidence)
    for entry in Ledger.verify(directory.ledger):
        assert evidence.matching(entry) is not None
    with open_store(outcome.store) as store:
        assert store.run(outcome.run_id).status == "finished"


def test_a_changed_histogram_is_no_evidence_any_more(small_config, run_small, tmp_path):
    run_small(small_config(**TWICE))
    directory = RunDirectory(tmp_path / "run")
    text = directory.evidence.read_text()
    changed = text.replace('"counts":[', '"counts":[1', 1)
    assert changed != text
    directory.evidence.write_text(changed)
    first, second = Ledger.verify(directory.ledger)
    evidence = EvidenceFile(directory.evidence)
    assert evidence.matching(first) is None and evidence.matching(second) is not None


def test_a_process_that_dies_between_entry_and_opening_has_paid_and_got_nothing(
    small_config, run_small, tmp_path, monkeypatch
):
    def cut(collector):
        raise KeyboardInterrupt

    config = small_config(**TWICE, privacy__fixed_seed=-1)
    with monkeypatch.context() as patch:
        patch.setattr(SumCollector, "opened", cut)
        with pytest.raises(KeyboardInterrupt):
            run_small(config)
    directory = RunDirectory(tmp_path / "run")
    assert len(Ledger.verify(directory.ledger)) == 1 and directory.load_release(1) is None
    with open_store(directory.default_store) as store:
        (run,) = store.runs()
        assert run.status == "interrupted" and "ε" in run.guarantee
    outcome = run_small(config)
    assert outcome.rounds == len(Ledger.verify(directory.ledger)) == 2
    assert outcome.spending.rounds_with_norms == 1
    assert "missing" in outcome.spending.warnings[0]


class Garbage:
    """One node whose masked sum is random bytes of the right length."""

    def __call__(self, message, context):
        reply = client_app(message, context)
        last = context.node_config["partition-id"] == 4
        if last and message.metadata.message_type == wire.MASKED:
            reply.content = wire.masked_reply(os.urandom(len(wire.read_masked(reply.content))))
        return reply


@pytest.mark.parametrize("settings", [FIVE, DISTRIBUTED], ids=["server", "distributed"])
@pytest.mark.law("secure sums: a bad round fails and is charged")
def test_garbage_from_one_node_fails_the_round_which_is_charged(
    small_config, run_small, tmp_path, settings
):
    with pytest.raises(NoUsableReply, match="total"):
        run_small(small_config(**settings), app=Garbage())
    assert [e.round for e in Ledger.verify(tmp_path / "run" / "ledger.jsonl")] == [1]
    assert RunDirectory(tmp_path / "run").load_release(1) is None


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"aggregation__secure": False}, "aggregation.noise"),
        ({"aggregation__tolerated_dropouts": 2, "aggregation__colluding": 2}, "threshold"),
        ({"aggregation__tolerated_dropouts": 4, "aggregation__colluding": 0}, "threshold"),
        ({"aggregation__colluding": 4}, "aggregation.secure"),
        ({"aggregation__threshold": 3}, "aggregation.threshold"),
        ({"aggregation__threshold": 5}, "aggregation.threshold"),
        ({"data__nodes": 1, "aggregation__tolerated_dropouts": 0}, "aggregation.secure"),
        ({"privacy__unit": "record", "privacy__delta": 1e-5}, "aggregation.secure"),
    ],
)
def test_what_would_protect_less_than_it_says_is_refused(small_config, changes, named):
    with pytest.raises(ConfigError, match=named):
        small_config(**{**DISTRIBUTED, **changes})


def test_the_nodes_noise_is_what_was_asked_for(small_config, run_small, tmp_path, monkeypatch):
    """All five survive and one is taken to collude: the sum has 5/3 of the variance needed."""
    from fedlens.server.round.state import RunState

    found = {}
    load = RunState.load_release

    def kept(state, number):
        found[number] = load(state, number)
        return found[number]

    monkeypatch.setattr(RunState, "load_release", kept)
    config = small_config(**DISTRIBUTED)
    run_small(config, "noised")
    noised = dict(found)
    quiet = small_config(**{**DISTRIBUTED, "tasks__critic__noise_multiplier": 0.0})
    run_small(quiet, "quiet")
    task = config.tasks["critic"]
    z = task.noise_multiplier / math.sqrt(1 - config.privacy.norms_share)
    expected = z * task.clipping_norm / config.data.users * math.sqrt(5 / 3)
    noise = noised[1] - found[1]
    assert np.std(noise) == pytest.approx(expected, rel=5 / math.sqrt(2 * len(noise)))


def test_figures_of_norms_go_by_the_noise_of_all_nodes(small_config):
    changes = {**DISTRIBUTED, "data__users": 100_000, "privacy__delta": 1e-6}
    accounts = [empty_account(small_config(**found)) for found in (changes, plain(changes))]
    config = small_config(**changes)
    task = config.tasks["critic"]
    counts = (1000.0,) * 2 + (0.0,) * 14
    norms = NoisedNorms(task.clipping_norm, round_noise(config, task).norms, counts)
    for account in accounts:
        account.charge(round_event(config, task), norms)
    shared, alone = (account.spending() for account in accounts)
    assert shared.dp_epsilon == alone.dp_epsilon
    assert shared.bdp_corrected > alone.bdp_corrected
    deviations = [release_deviation(small_config(**c), task) for c in (changes, plain(changes))]
    assert deviations[0] == pytest.approx(deviations[1] * math.sqrt(5 / 3))
