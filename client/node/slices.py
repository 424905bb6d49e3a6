"""A node's users of one slice: those whose declared public attribute has the value that is asked.

Users have one value of an attribute each, so slices by one attribute share no user. Membership
comes from what a node's operator declares, never from records: who is in a slice is as public as
who is enrolled. A node says which slice it answers for, so that a server which books a run to a
slice knows that its nodes leave all other users out.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fedlens.client.messages import Scalar
from fedlens.client.users.protocol import ArrayUsers, NodeDataError
from fedlens.foundation.toml import parse_toml

WANTED = "data.slice"


def wanted_slice(run_config: Mapping[str, Scalar]) -> str:
    """The slice that a run asks for: its setting, or what ``run.settings`` puts over it.

    Raises:
        NodeDataError: ``run.settings`` is not TOML.
    """
    try:
        more = parse_toml(str(run_config.get("run.settings", "")))
    except tomllib.TOMLDecodeError:
        raise NodeDataError("run.settings of the run is not TOML") from None
    data = more.get("data", {})
    over = data.get("slice") if isinstance(data, dict) else None
    return str(more.get(WANTED, run_config.get(WANTED, "")) if over is None else over)


def in_slice(users: ArrayUsers, wanted: str) -> ArrayUsers:
    """The users of a slice, ``attribute=value``; all of them where none is wanted.

    Raises:
        NodeDataError: the node declares no such attribute of its users.
    """
    if not wanted:
        return users
    attribute, _, value = wanted.partition("=")
    if attribute not in users.declared:
        raise NodeDataError(
            f"the run is about users with {wanted}, and this node declares no {attribute!r}: give "
            f'declared="{attribute}=VALUE" in its configuration, or the array \'declared_'
            f"{attribute}' in its file"
        )
    members = np.flatnonzero(users.declared[attribute] == value)
    firsts = users.offsets[members]
    sizes = users.offsets[members + 1] - firsts
    ends = np.cumsum(sizes)
    # each member's stretch of the index, one after the other
    places = np.repeat(firsts - (ends - sizes), sizes) + np.arange(int(sizes.sum()))
    return replace(
        users,
        indices=users.indices[places],
        offsets=np.concatenate([[0], ends]).astype(np.int64),
        hides=None if users.hides is None else users.hides[members],
        people=None if users.people is None else users.people[members],
        ids=members.astype(np.int64) if users.ids is None else users.ids[members],
        declared={name: values[members] for name, values in users.declared.items()},
        slice=wanted,
    )
