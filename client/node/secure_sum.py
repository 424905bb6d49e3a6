"""A node's side of a secure sum: what it keeps between messages, and what it refuses.

The state of a sum lies in the node's own context (it never travels) from its keys to its reveal,
and is gone then. Each step is taken once; a message of another sum, or out of order, is refused.
What cannot be done is a failure without a word, as everywhere: `fedlens.client.app`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from flwr.app import ConfigRecord, Context, RecordDict

from fedlens.accountant.bayesian.noised_norms import PUBLIC_BINS
from fedlens.accountant.noise import chosen, most_chosen, private_source
from fedlens.client import secure_messages as wire
from fedlens.client.messages import Mechanism, TrainReply, TrainRequest
from fedlens.client.node.members import named_users
from fedlens.client.node.policy import NodePolicy, RequestRefused
from fedlens.client.node.replay_guard import forget_old_marks, take_once
from fedlens.client.train import train
from fedlens.client.users.protocol import LocalUsers, is_simulated
from fedlens.foundation.secure_sum import Identity, KeyRoster, SumParty, bits_for, encoded, packed

logger = logging.getLogger(__name__)

_STATE, _SIGNER = "fedlens.secure_sum", "fedlens.secure_sum.signer"
_COHORT, _NOISE, _NORMS = 11, 12, 13
"""Uses of a fixed seed, in tests."""
LEAST_HONEST = {"server": 2, "distributed": 1}
"""Honest nodes that a sum must be sure to have: without noise in it, one's total would be its own.
"""


def advertise(content: RecordDict, context: Context, policy: NodePolicy) -> RecordDict:
    """Step 1: fresh keys for a sum whose terms the node's policy allows.

    A node with a long-term key has one seat in a sum, whichever of Flower's runs asks: each run has
    a context of its own, so the seat is marked on the disk.

    Raises:
        RequestRefused: they presume fewer colluding nodes than the policy does.
        SecureSumError: terms that protect nothing, or an identity that cannot be read.
        TakenBefore: the node has a seat in this sum.
    """
    terms, index = wire.read_keys_request(content)
    if terms.colluding < policy.least_colluding:
        raise RequestRefused(
            f"the sum presumes {terms.colluding} colluding nodes: least-colluding = "
            f"{policy.least_colluding}"
        )
    identity = _own(policy) or Identity.new()
    if not is_simulated(context):
        forget_old_marks()
        take_once(identity.secret + terms.session, "seat")
    party = SumParty.new(terms, index, identity)
    advert = party.advertise()
    context.state[_SIGNER] = ConfigRecord({} if policy.identity else {"key": identity.secret})
    _keep(party, context)
    return wire.advert_reply(advert)


def share(content: RecordDict, context: Context, policy: NodePolicy) -> RecordDict:
    """Step 2: shares of the node's secrets for parties whose long-term keys it knows.

    Raises:
        SecureSumError: a party is not on the roster, or its keys are not its own.
    """
    party = _party(content, context, policy)
    roster = KeyRoster.load(Path(policy.roster)) if policy.roster else None
    if roster is None and "data" in context.node_config:
        logger.warning("no roster: other nodes' keys are taken on the server's word")
    sealed = party.share(wire.read_adverts(content), roster)
    _keep(party, context)
    return wire.shares_reply(sealed)


def masked(
    content: RecordDict,
    context: Context,
    policy: NodePolicy,
    open_users: Callable[[Context], LocalUsers],
) -> RecordDict:
    """Step 3: train as asked, add the node's share of noise where nodes do, and mask the sum.

    Raises:
        RequestRefused: the policy forbids it, or it is not what the sum's terms were for.
        OffLattice: the sum is not made of clipped contributions.
    """
    party, settings = _party(content, context, policy), wire.read_settings(content)
    request = TrainRequest.from_record(content)
    mechanism, terms = request.mechanism, party.terms
    agreed = settings.summed(mechanism) == terms.summed and request.round == terms.round
    if not agreed or settings.kind != request.kind or mechanism.unit != "user":
        raise RequestRefused("the request is not the one that the sum's terms are for")
    honest = terms.least - terms.colluding
    if honest < (least := LEAST_HONEST[settings.noise]):
        raise RequestRefused(f"a sum of {honest} honest nodes: at least {least} are needed")
    asked, request = request.digest(), policy.accept(request, settings.noise)
    torch.set_num_threads(policy.threads)
    everyone = open_users(context)
    users = named_users(everyone, request.enrolled, context)
    at_least = 0
    if settings.noise == "distributed":
        request = replace(request, users=_own_cohort(mechanism, len(users), party))
        # the server does not know how many were drawn, and must not see it by the clock
        at_least = most_chosen(len(users), mechanism.sampling_rate)
    reply = train(users, request, at_least)
    policy.check_length(len(reply.total))
    words = _words(reply, mechanism, settings, party)
    sent = party.masked(words, wire.read_sealed(content), asked)
    _keep(party, context)
    return wire.masked_reply(packed(sent, terms.bits))


def _own_cohort(mechanism: Mechanism, users: int, party: SumParty) -> tuple[int, ...]:
    """The users that take part, drawn by the node: then the server does not know them either."""
    source = private_source(mechanism.fixed_seed, party.terms.round, _COHORT, party.index)
    return tuple(chosen(users, mechanism.sampling_rate, source).tolist())


def _words(
    reply: TrainReply, mechanism: Mechanism, settings: wire.SumSettings, party: SumParty
) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    terms, seed = party.terms, mechanism.fixed_seed
    honest = terms.least - terms.colluding
    size = len(reply.total)
    layout = wire.layout_of(mechanism, settings, size, parties=terms.parties, honest=honest)
    if layout.size != terms.size or bits_for(layout.largest) != terms.bits:
        raise RequestRefused("the sum is of another layout than its terms")
    norms = reply.norms
    if settings.noise == "distributed":
        norms = norms.reshape(PUBLIC_BINS, -1).sum(axis=1)[: layout.norms.size]
    sources = [private_source(seed, terms.round, use, party.index) for use in (_NOISE, _NORMS)]
    return encoded(layout.encoded(reply.total, norms, *sources), terms.bits)


def agree(content: RecordDict, context: Context, policy: NodePolicy) -> RecordDict:
    """Step 4: sign who survived, once."""
    party = _party(content, context, policy)
    signature = party.agree(wire.read_survivors(content))
    _keep(party, context)
    return wire.agree_reply(signature)


def reveal(content: RecordDict, context: Context, policy: NodePolicy) -> RecordDict:
    """Step 5: give up one share of each party; the sum's state is gone before the reply leaves."""
    party = _party(content, context, policy)
    for record in (_STATE, _SIGNER):
        context.state.config_records.pop(record, None)
    shares = party.reveal(wire.read_signatures(content))
    _take(party, context)
    return wire.reveal_reply(shares)


def _party(content: RecordDict, context: Context, policy: NodePolicy) -> SumParty:
    records = context.state.config_records
    kept, signer = records.get(_STATE), records.get(_SIGNER)
    known = kept is not None and kept["terms.session"] == wire.session_of(content)
    if kept is None or signer is None or not known:
        raise RequestRefused("a message of a secure sum that this node is not in")
    identity = _own(policy) or Identity.from_secret(cast(bytes, signer["key"]))
    return SumParty.restored(kept, identity)


def _own(policy: NodePolicy) -> Identity | None:
    """The node's long-term key, read from its file at each step: it is kept nowhere else."""
    return Identity.load(Path(policy.identity)) if policy.identity else None


def _keep(party: SumParty, context: Context) -> None:
    _take(party, context)
    context.state[_STATE] = ConfigRecord(party.kept())


def _take(party: SumParty, context: Context) -> None:
    """Take the party's step; simulated nodes answer one message after another and need no mark."""
    if not is_simulated(context):
        take_once(party.channel, party.step)
