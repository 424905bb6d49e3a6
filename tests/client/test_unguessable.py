"""What travels of users cannot be found out by its hash, nor by what is left out as sent before."""

from __future__ import annotations

import io

import numpy as np
import pytest
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
)
from flwr.supercore.object_store.in_memory_object_store import InMemoryObjectStore

from fedlens.client.messages import Description, ReplyError, TrainReply, TrainRequest
from fedlens.client.private_arrays import SALT
from fedlens.foundation.secure_sum.unguessable import KEY_BYTES, turned, turned_back

EMPTY = TrainReply(np.zeros(9), np.zeros(64, dtype=np.int64))


def objects(content) -> set[str]:
    return set(get_all_nested_objects(content))


def test_two_nodes_equal_sums_are_both_sent():
    """Flower asks a sender for what it has not got yet: so the size of what travels would tell."""
    store, missing = InMemoryObjectStore(), []
    for _ in range(2):
        reply = EMPTY.to_record()
        tree = get_object_tree(reply)
        missing.append(len(store.preregister(1, tree)))
        for name, held in get_all_nested_objects(reply).items():
            store.put(name, held.deflate())
    whole = len(list(iterate_object_tree(tree)))
    plain = 1  # the record that says "done", which every reply has
    assert missing[0] == whole and missing[1] == whole - plain


@pytest.mark.law("6: messages tell nothing")
def test_no_part_of_a_reply_has_the_hash_that_it_is_guessed_to_have():
    """Any node may ask Flower for what it names by its hash: a histogram has few possibilities."""
    first, again = objects(EMPTY.to_record()), objects(EMPTY.to_record())
    (done,) = first & again
    assert b"total" not in get_all_nested_objects(EMPTY.to_record())[done].deflate()


def test_no_part_of_a_request_that_names_users_can_be_guessed(make_request):
    request = make_request(0, 2)
    common = objects(request.to_record()) & objects(request.to_record())
    held = get_all_nested_objects(request.to_record())
    assert not any(b"cohort" in held[name].deflate() for name in common)
    assert len(common) >= len(request.weights)  # weights are the same for all, and sent once
    assert request.digest() == TrainRequest.from_record(request.to_record()).digest()


def test_a_reply_comes_back_as_it_was_and_one_of_other_bytes_is_refused():
    given = TrainReply(np.arange(5.0), np.arange(64))
    found = TrainReply.from_record(given.to_record())
    assert (found.total == given.total).all() and (found.norms == given.norms).all()
    assert turned_back(turned(b"x")) == b"x" and turned(b"x") != turned(b"x")
    with pytest.raises(ValueError, match="no key"):
        turned_back(bytes(KEY_BYTES - 1))
    from flwr.app import Array, ArrayRecord

    archive = io.BytesIO()
    np.savez(archive, total=np.zeros(3))
    sealed = np.frombuffer(turned(archive.getvalue()), dtype=np.uint8)
    for odd in (sealed, np.zeros(3), np.zeros(80, dtype=np.uint8), np.zeros(0, dtype=np.uint8)):
        record = given.to_record()
        record["arrays"] = ArrayRecord({"total": Array(odd), "norms": Array(odd)})
        with pytest.raises(ReplyError, match="cannot be read"):
            TrainReply.from_record(record)


def test_whom_a_node_enrols_cannot_be_confirmed_by_one_that_has_the_same_key():
    """Nodes share the key of members, so each can tell what another says of one person's device."""
    told = Description(partition=0, users=1, shape=(1, 8, 8), classes=10, members=bytes(8))
    assert not objects(told.to_record()) & objects(told.to_record())
    assert Description.from_record(told.to_record()) == told
    earlier = told.to_record()  # as an earlier version sent it, whose replies cannot be read either
    del earlier["config"][SALT]
    with pytest.raises(ReplyError, match="lacks a field"):
        Description.from_record(earlier)
