"""A first look at a run's sums, seconds after it is asked for: what stands out, by few images.

It is no finding. It reads the sums that are quick to expect, tries each fault in its first amount,
and knows nothing of what no fault explains. The whole answer follows, and may be another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fedlens.diagnosis.evidence import Observed
from fedlens.diagnosis.fitting import joint_shares, strongest
from fedlens.diagnosis.hypotheses import Hypothesis
from fedlens.diagnosis.inquiry import Inquiry
from fedlens.diagnosis.reference import LEAST_USERS, Reference

IMAGES = 500
"""Of the reference."""
QUICK = ("frozen", "focused")
"""Kinds of tasks whose features are quick to compute."""


def first_look(
    observed: Observed, reference: Reference, records: int, tried: Sequence[Hypothesis]
) -> str:
    """What stands out, in words; empty where no sums are quick to expect.

    Args:
        observed: all releases.
        reference: all of it.
        records: that a user holds.
        tried: all hypotheses.
    """
    kept = tuple(one for one in observed.evidence if one.first.request.kind in QUICK)
    if not kept:
        return ""
    few = reference.first(max(IMAGES, LEAST_USERS * records))
    first = [one for one in tried if _is_first(one)]
    inquiry = Inquiry(replace(observed, evidence=kept), few, records, first, surprised=False)
    model = inquiry.model()
    found = strongest(model, [one.fault.name for one in first], [], len(first))
    if found is None:
        return "nothing stands out yet"
    share = min(1.0, max(0.0, float(joint_shares(model, [found[0]]).values[0])))
    return f"looks like {first[found[0]].fault.says}, in about {share:.0%} of users"


def _is_first(one: Hypothesis) -> bool:
    """Whether it is its fault in the first amount; where classes matter, all of them are tried."""
    return one.variant.amount == one.fault.amounts[0]
