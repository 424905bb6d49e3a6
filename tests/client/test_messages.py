"""What travels: everything comes back as it was sent, and nothing else is read."""

from __future__ import annotations

import resource
import struct
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from pydantic import ValidationError

from fedlens.client.messages import (
    Description,
    FilterSettings,
    ReplyError,
    TrainReply,
    TrainRequest,
    failure,
)
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.settings import FrozenSettings
from fedlens.foundation.secure_sum.unguessable import turned

DESCRIBED = Description(partition=0, users=7, shape=(1, 28, 28), classes=10)
FILTER = FilterSettings(
    network="dense",
    width=4,
    consenting=0.0,
    output_noise_std=0.1,
    capacity=6.0,
    highest_frequency=0,
    sensitive_attribute="thickness",
    pairs=True,
)


def changed(record: RecordDict, **fields: object) -> RecordDict:
    """The record with fields in place of its own; None leaves one out."""
    config = dict(record.config_records["config"])
    config.update({key.replace("__", "."): value for key, value in fields.items()})
    kept = {key: value for key, value in config.items() if value is not None}
    return RecordDict({**record, "config": ConfigRecord(kept)})


@pytest.mark.parametrize("kind", ["frozen", "wgan", "annotator"])
@pytest.mark.parametrize("filter_", [None, FILTER])
def test_a_request_comes_back_as_it_was_sent(make_request, kind, filter_):
    sent = replace(make_request(0, 3, kind=kind, fixed_seed=5), filter=filter_)
    read = TrainRequest.from_record(sent.to_record())
    weights = {name: value.tolist() for name, value in sent.weights.items()}
    assert {name: value.tolist() for name, value in read.weights.items()} == weights
    assert replace(read, weights={}) == replace(sent, weights={})


@pytest.mark.parametrize(
    "fields",
    [
        {"round": None},
        {"kind": None},
        {"cohort": None},
        {"cohort": b"12"},
        {"cohort": b"\xff"},
        {"key": None},
        {"records_per_user": None},
        {"seed": None},
        {"mechanism__clipping_norm": None},
        {"mechanism__clipping_norm": "0.3"},
        {"mechanism__unit": "household"},
        {"mechanism__trust": True},
        {"mechanism__steps": None},
        {"filter__network": "dense"},
        {"filter__pairs": 1},
        {"filter__secret": 3},
    ],
    ids=str,
)
def test_a_request_with_a_field_that_lacks_is_new_or_of_another_type_is_refused(
    make_request, fields
):
    record = replace(make_request(0), filter=FILTER).to_record()
    if fields == {"filter__network": "dense"}:  # alone, without the others
        record = make_request(0).to_record()
    with pytest.raises(ReplyError, match="lacks a field or has one of another kind"):
        TrainRequest.from_record(changed(record, **fields))


def test_a_request_without_weights_is_refused(make_request):
    record = make_request(0).to_record()
    del record["weights"]
    with pytest.raises(ReplyError, match="lacks a field"):
        TrainRequest.from_record(record)


@pytest.mark.parametrize(
    "settings",
    [{}, {"feature_seed": "123"}, {"feature_seed": 1.5}, {"feature_seed": 1, "width": 8}],
    ids=str,
)
def test_a_task_reads_the_settings_of_its_kind_alone(users, make_request, settings):
    request = replace(make_request(0), settings=settings)
    with pytest.raises(ValidationError, match="FrozenSettings"):
        CLIENT_TASKS["frozen"](users, request)
    assert FrozenSettings.model_validate({"feature_seed": 1}).feature_seed == 1


def test_a_description_comes_back_and_need_not_name_a_sensitive_attribute():
    assert Description.from_record(DESCRIBED.to_record()) == DESCRIBED
    bare = changed(DESCRIBED.to_record(), sensitive_attribute=None, sensitive_classes=None)
    assert Description.from_record(bare) == DESCRIBED
    named = DESCRIBED.model_copy(update={"sensitive_attribute": "age", "sensitive_classes": 3})
    assert Description.from_record(named.to_record()) == named


@pytest.mark.parametrize(
    "fields",
    [
        {"users": None},
        {"users": -1},
        {"users": 7.0},
        {"shape": [1, 28]},
        {"shape": [1, 28, -28]},
        {"shape": 28},
        {"classes": "10"},
        {"sensitive_attribute": 3},
        {"sensitive_attribute": "x" * 65},
        {"sensitive_classes": -1},
        {"mean_age": 47.5},
    ],
    ids=str,
)
def test_a_description_with_another_field_or_type_is_refused(fields):
    with pytest.raises(ReplyError, match="lacks a field or has one of another kind") as refusal:
        Description.from_record(changed(DESCRIBED.to_record(), **fields))
    assert refusal.value.__cause__ is None, "a peer's values are not quoted"


def test_a_reply_comes_back_and_a_failure_is_told_from_it():
    reply = TrainReply(np.arange(3.0), np.arange(2))
    read = TrainReply.from_record(reply.to_record())
    assert read.total.tolist() == [0, 1, 2] and read.norms.tolist() == [0, 1]
    for kind in (TrainReply, Description):
        with pytest.raises(ReplyError, match="the node reported a failure"):
            kind.from_record(failure())
        with pytest.raises(ReplyError, match="lacks its config record"):
            kind.from_record(RecordDict({}))


@pytest.mark.parametrize("total", [np.arange(3), np.arange(3, dtype=np.float32)])
def test_a_reply_of_another_dtype_is_refused(total):
    with pytest.raises(ReplyError, match="another dtype"):
        TrainReply.from_record(TrainReply(total, np.arange(2)).to_record())


def test_no_array_is_read_as_the_name_of_another_in_a_requests_digest(make_request):
    text = b"sixteen letters!"  # bytes of an array that are text
    value = np.ones(1, np.float32)
    two = replace(make_request(0), weights={"a": np.frombuffer(text, "<f4"), "m": value})
    one = replace(make_request(0), weights={f"a <f4 (4,){text.decode()}m": value})
    assert two.digest() != one.digest()


@pytest.mark.law("input: no file crashes, hangs or runs code")
@pytest.mark.parametrize("claimed", [2**33, 2**45, 2**62, -1])
def test_an_array_that_claims_more_than_the_message_has_is_refused(claimed):
    """Nothing is made of the claim: memory is asked for, and not used, or not to be had."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({claimed},), }}".encode()
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", 118) + head.ljust(117) + b"\n" + bytes(8)
    array = Array(np.frombuffer(turned(content), dtype=np.uint8))
    record = TrainReply(np.ones(1), np.zeros(1, np.int64)).to_record()
    record["arrays"] = ArrayRecord({"total": array, "norms": array})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ReplyError, match="cannot be read"):
        TrainReply.from_record(record)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB
