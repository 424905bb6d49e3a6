"""What audits need where nodes mask their sums: enough nodes, the real step, a node that lies.

No single reply can be read then. What is audited is what the server opens: the exact total, or with
noise of nodes the noised one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict

from fedlens.client.secure_messages import masked_reply, read_masked
from fedlens.foundation.secure_sum import bits_for, packed, unpacked
from fedlens.server.config.mechanism import NOISE_EXCESS
from fedlens.server.config.tree import Config
from fedlens.server.round.masked_step import SecureStep
from fedlens.simulations.audits.made_up import MadeUpUsers

FEWEST, MOST = 2, 8
"""Nodes of an audit of masked sums: one alone masks nothing, and many take long."""
_EXCESS = 4.0
"""Times the largest norm that a total may have: what cannot have wrapped around."""
Lie = Callable[[RecordDict], RecordDict]
WITHOUT_TRIMMING: dict[str, Any] = {"aggregation.trimmed_share": 0.0}


def audited_aggregation(config: Config) -> dict[str, Any]:
    """How the nodes of an audit's sums are counted: they are fewer than a run's, and all honest.

    Trimmed sums are audited as plain ones: who is in one cannot be read from it.
    """
    alone = dict.fromkeys(("tolerated_dropouts", "colluding", "threshold"), 0)
    masks = {f"aggregation.{key}": value for key, value in alone.items()}
    return {**WITHOUT_TRIMMING, **masks} if config.aggregation.secure else WITHOUT_TRIMMING


def with_empty_nodes(hosts: Sequence[MadeUpUsers]) -> list[MadeUpUsers]:
    """The nodes, and as many that host no one as masks need."""
    first, found = hosts[0], list(hosts)
    while len(found) < FEWEST:
        none = torch.zeros(0, dtype=torch.bool)
        empty = replace(first, images=first.images[:0], labels=first.labels[:0], holds=none)
        found.append(replace(empty, partition=len(found)))
    return found


def lies(step: SecureStep, users: int, clipping_norm: float) -> dict[str, Lie]:
    """What a hostile node makes of its masked sum, which the server must not take.

    Args:
        step: of the audit.
        users: enrolled on all nodes.
        clipping_norm: C.
    """
    layout, bits = step.plan.layout, bits_for(step.plan.layout.largest)
    part, parties = layout.update, step.plan.parties
    noise = part.scale * part.pitch * math.sqrt(parties) * (math.sqrt(part.size) + NOISE_EXCESS)
    each = _EXCESS * (users * clipping_norm + noise) / math.sqrt(part.size) / part.pitch
    shift = np.zeros(layout.size, dtype=np.int64)
    shift[: part.size] = round(each)

    def longer(content: RecordDict) -> RecordDict:
        words = unpacked(read_masked(content), layout.size, bits)
        return masked_reply(packed(words + shift.view(np.uint64), bits))

    def shorter(content: RecordDict) -> RecordDict:
        return masked_reply(read_masked(content)[: -(bits // 8)])

    return {"far too long": longer, "of another shape": shorter}
