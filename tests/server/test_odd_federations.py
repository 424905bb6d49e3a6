"""Odd data and odd replies in runs of several tasks, through the in-process transport."""

from __future__ import annotations

import numpy as np
import pytest
from run_tasks import FOCUSED, RECORD_ANNOTATED, WARM

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client.app import build_client_app
from fedlens.client.messages import TrainReply
from fedlens.client.users.protocol import ArrayUsers, DataOrigin
from fedlens.models.shapes import ShapeError
from fedlens.server.config.schedule import total_rounds
from fedlens.server.round.step import NoUsableReply
from fedlens.server.run.directory import RunDirectory
from fedlens.simulations.federation.apps import client_app, open_simulated_users
from fedlens.store import SampleFilter, open_store


class Federation:
    """A ClientApp over made-up users, a user's images and labels at a time."""

    def __init__(self, users, shape=(1, 28, 28), classes=10):
        images = [np.asarray(i, np.uint8) for i, _ in users]
        sizes = [len(labels) for _, labels in users]
        self._arrays = {
            "images": np.concatenate(images) if sum(sizes) else np.zeros((0, *shape), np.uint8),
            "labels": np.concatenate([np.asarray(labels, np.int64) for _, labels in users]),
            "indices": np.arange(sum(sizes)),
        }
        self._bounds = np.concatenate([[0], np.cumsum(sizes)])
        self._shape, self._classes = shape, classes
        self._app = build_client_app(self._open)

    def _open(self, context):
        number, nodes = (context.node_config[k] for k in ("partition-id", "num-partitions"))
        ends = np.linspace(0, len(self._bounds) - 1, nodes + 1).astype(int)
        offsets = self._bounds[ends[number] : ends[number + 1] + 1]
        return ArrayUsers(
            **self._arrays, offsets=offsets, shape=self._shape,
            classes=self._classes, partition=number, origin=DataOrigin(own=False),
        )  # fmt: skip

    def __call__(self, message, context):
        return self._app(message, context)


def some_users(count, labels_of, shape=(1, 28, 28)):
    source = np.random.default_rng(3)
    made = []
    for user in range(count):
        labels = labels_of(user)
        made.append((source.integers(0, 256, (len(labels), *shape)), labels))
    return made


CASES = {
    "a class that no user holds": some_users(40, lambda user: [user % 9, (user + 1) % 9]),
    "users of one class each": some_users(40, lambda user: [user % 10] * 3),
    "one user for all, many with none": some_users(40, lambda user: range(10) if not user else []),
    "no user holds anything": some_users(40, lambda user: []),
    "one class alone": some_users(40, lambda user: [4, 4]),
}


SCATTERED = {**FOCUSED, "tasks.annotator.features": "scattering"}


MODES = {"user": {}, "record": RECORD_ANNOTATED}
KINDS = {"frozen": {}, "focused": SCATTERED, "wgan": WARM}
PAIRS = [
    (case, list(KINDS)[(2 * number + place) % 3], mode)
    for number, case in enumerate(CASES)
    for place, mode in enumerate(MODES)
]
"""Every case in both modes, and every kind in both: what meets a third time meets there."""


@pytest.mark.parametrize(("case", "kind", "mode"), PAIRS)
def test_odd_federations_train_to_finite_models_and_samples_of_every_class(
    annotated, run_small, tmp_path, case, kind, mode
):
    config = annotated(KINDS[kind], MODES[mode], release__agreement=0.4)
    outcome = run_small(config, app=Federation(CASES[case]))
    assert outcome.rounds == total_rounds(config) and outcome.stopped is None
    snapshot = RunDirectory(tmp_path / "run").load_state()
    floats = [v for v in snapshot.arrays.values() if np.issubdtype(v.dtype, np.floating)]
    assert all(np.isfinite(value).all() for value in floats)
    with open_store(outcome.store) as store:
        released = store.samples(SampleFilter(run_id=outcome.run_id, purpose="curated"), 0, 100)
        assert sorted(s.requested_class for s in released) == list(range(10))


@pytest.mark.parametrize(
    ("shape", "mode", "kind"),
    [
        ((3, 32, 32), "record", "focused"),
        ((3, 32, 32), "user", "wgan"),
        ((3, 28, 28), "record", "wgan"),
        ((3, 28, 28), "user", "frozen"),
        ((1, 32, 32), "user", "focused"),
    ],
)
def test_colour_and_larger_images_train_through_all_tasks(annotated, run_small, shape, mode, kind):
    users = some_users(40, lambda user: [user % 4, 1], shape)
    app = Federation(users, shape, classes=4)
    chosen = FOCUSED if kind == "focused" else KINDS[kind]
    assert run_small(annotated(chosen, MODES[mode]), app=app).stopped is None


@pytest.mark.parametrize("shape", [(1, 14, 14), (2, 28, 28), (1, 28, 32)])
def test_images_that_no_network_is_built_for_are_refused_before_anything_is_begun(
    annotated, run_small, tmp_path, shape
):
    app = Federation(some_users(40, lambda user: [1], shape), shape)
    with pytest.raises(ShapeError):
        run_small(annotated(), app=app)
    assert not (tmp_path / "run" / "ledger.jsonl").exists()


# Bad replies


class Spoiled:
    """A ClientApp whose replies of one round on are spoiled on some nodes."""

    def __init__(self, change, rounds, partitions=(1,)):
        self._change, self._rounds, self._partitions = change, rounds, partitions
        self._honest = build_client_app(open_simulated_users)

    def __call__(self, message, context):
        reply = self._honest(message, context)
        mine = context.node_config["partition-id"] in self._partitions
        trained = message.metadata.message_type == "train"
        if mine and trained and message.content["config"]["round"] in self._rounds:
            sound = TrainReply.from_record(reply.content)
            reply.content = TrainReply(self._change(sound.total), sound.norms).to_record()
        return reply


@pytest.mark.parametrize(
    ("change", "mode"),
    [(lambda x: x * 1e6, {}), (lambda x: x * np.nan, RECORD_ANNOTATED), (lambda x: x[:-1], {})],
    ids=["too large", "NaN, records", "short"],
)
def test_a_bad_reply_in_any_task_is_left_out_and_a_failed_round_is_charged(
    annotated, run_small, tmp_path, change, mode
):
    config = annotated(mode)
    assert run_small(config, "one", Spoiled(change, (1, 2, 3))).rounds == 3
    with pytest.raises(NoUsableReply, match="round 2"):
        run_small(config, "both", Spoiled(change, (2,), (0, 1)))
    assert len(Ledger.verify(tmp_path / "both" / "ledger.jsonl")) == 2
    assert run_small(config, "both", client_app).rounds == 3


def test_an_honest_silo_of_several_times_the_declared_records_is_not_refused(
    annotated, run_small, caplog
):
    config = annotated(
        RECORD_ANNOTATED, data__records_per_node=40, tasks__critic__noise_multiplier=0.5
    )
    run_small(config)  # each node has 100
    assert "refused" not in caplog.text
