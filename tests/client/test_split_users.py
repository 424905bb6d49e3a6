"""Which users a node takes to be on which side of a private split."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedlens.client.messages import ReplyError, SplitSettings, TrainRequest, UserSplit
from fedlens.client.node.policy import NodePolicy, RequestRefused
from fedlens.client.train import train
from fedlens.client.users.protocol import DataOrigin, LocalData, NodeDataError
from fedlens.client.users.views import score_users, take_side
from fedlens.models.annotators import Annotator
from fedlens.models.weights import to_vector

SHAPE, CLASSES, MOST = (1, 28, 28), 3, 12


class Told:
    """Users whose labels are given; the model below names everything 0, so that is what counts."""

    shape, classes, partition = SHAPE, CLASSES, 0
    sensitive_attribute, sensitive_classes, slice, people = "", 0, "", None
    origin = DataOrigin()

    def __init__(self, *labels: list[int]) -> None:
        self.labels = labels
        self.read = 0

    def __len__(self):
        return len(self.labels)

    def user_id(self, position):
        return position

    def held(self, position):
        return len(self.labels[position])

    def user(self, position, rows=None):
        own = torch.tensor(self.labels[position], dtype=torch.int64)
        own = own if rows is None else own[torch.from_numpy(rows)]
        self.read += len(own)
        return LocalData(torch.zeros(len(own), *SHAPE), own)


def split(side: str = "below", classes: int = CLASSES, **changes: object) -> UserSplit:
    told = {"rule": "recognised", "threshold": 0.7, "records": MOST, "components": 4, **changes}
    settings = SplitSettings(side=side, features="orientations", **told)
    return UserSplit(settings, to_vector(Annotator(SHAPE, classes, 4, "orientations")))


def share(hits: int, held: int) -> list[int]:
    return [0] * hits + [1] * (held - hits)


@pytest.mark.parametrize("held", range(1, MOST + 1))
def test_a_user_exactly_at_the_threshold_is_at_it_and_not_below(held):
    users = Told(*(share(hits, held) for hits in range(held + 1)))
    for hits in range(1, held + 1):
        high = take_side(users, split("from", threshold=hits / held)).inside
        low = take_side(users, split("below", threshold=hits / held)).inside
        assert list(high) == [one >= hits for one in range(held + 1)]
        assert list(low) == list(~high)


def test_confidence_is_the_mean_probability_and_lies_on_one_side_too():
    users = Told(share(1, 2), [])
    found = score_users(users, split(rule="confidence"))
    assert found == pytest.approx([1 / 3, 0])  # a model that is sure of nothing; no records
    exact = float(found[0])
    assert list(take_side(users, split("from", rule="confidence", threshold=exact)).inside) == [
        True,
        False,
    ]


def test_more_records_than_count_are_drawn_alike_for_both_sides_and_otherwise_by_other_splits():
    users = Told(*(share(50, 100) for _ in range(12)))
    low, high = score_users(users, split("below")), score_users(users, split("from"))
    assert np.array_equal(low, high)
    assert not np.array_equal(low, score_users(users, split("below", threshold=0.71)))
    assert len(set(low)) > 1


def test_reading_is_the_same_on_both_sides_and_no_more_than_the_cap(make_request):
    users = Told(share(0, 40), share(40, 40))
    for side in ("below", "from"):
        request = replace(
            make_request(0, 1, enrolled=2, records_per_user=5), weights={}, split=split(side)
        )
        users.read = 0
        reply = train(users, request)
        assert users.read == 2 * MOST + 2 * 5 and reply.norms.sum() == 1


def test_it_is_found_out_once_and_for_all_users_drawn_or_not(make_request):
    users = Told(*(share(n % 3, 3) for n in range(20)))
    request = replace(make_request(enrolled=20), weights={}, split=split())
    nothing = train(users, request)
    assert not nothing.total.any() and users.read == 20 * 3  # though none is drawn
    train(users, replace(request, round=2))
    assert users.read == 20 * 3


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(split(classes=CLASSES + 1), id="of more classes"),
        pytest.param(split(components=5), id="of another size"),
    ],
)
def test_a_model_that_does_not_fit_is_refused_by_the_node(make_request, wrong):
    request = replace(make_request(0, enrolled=1), weights={}, split=wrong)
    with pytest.raises(NodeDataError, match="does not fit this node's data"):
        train(Told([0]), request)


def test_a_request_that_comes_although_its_node_forbids_it_is_refused(make_request):
    request = replace(make_request(0), split=split())
    assert NodePolicy().accept(request).split is request.split
    with pytest.raises(RequestRefused, match="forbid-splits"):
        NodePolicy(forbid_splits=True).accept(request)


def test_record_mode_has_no_sides(make_request):
    request = replace(make_request(unit="record", enrolled=1), split=split())
    with pytest.raises(NodeDataError, match="a split is of users as they are"):
        train(Told([0]), request)


def test_what_travels_comes_back_and_is_part_of_the_identity_but_for_the_side(make_request):
    sent = replace(make_request(0), split=split("from"))
    read = TrainRequest.from_record(sent.to_record())
    assert read.split.settings == sent.split.settings and "split" not in read.weights
    assert read.split.identity == sent.split.identity == split("below").identity
    others = [
        split(threshold=0.7000000001),
        split(records=MOST - 1),
        split(rule="confidence"),
        replace(split(), model=split().model + np.float32(1e-6)),
    ]
    assert len({sent.split.identity, *(one.identity for one in others)}) == 5


@pytest.mark.parametrize("gone", ["split.side", "split.threshold", "model"])
def test_a_split_that_lacks_something_is_refused(make_request, gone):
    record = replace(make_request(0), split=split()).to_record()
    if gone == "model":
        del record.array_records["weights"]["split"]
    else:
        del record.config_records["config"][gone]
    with pytest.raises(ReplyError):
        TrainRequest.from_record(record)
