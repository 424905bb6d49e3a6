"""Faults put into the real functions are caught; the code as it is raises no alarm."""

from __future__ import annotations

import pytest
from thorough import some

from harness.audit_mutants import ALL, MUTANTS, NOTHING
from harness.audit_power import first_alarm, score

EVERYWHERE = {
    "no clip of dense updates": "clipping",
    "no clip of updates in blocks": "clipping",
    "no clip of outer products": "clipping",
    "no clip of a privatizer's blocks": "clipping",
}
"""Mutants that are tried on each of their subjects; the others on one that stands for all."""

CARD = "card, user"
"""It asks everyone, so faults of sampling are none of it; its clip is tried by itself."""
ELSEWHERE = [mutant for mutant in MUTANTS if mutant.name not in EVERYWHERE]


@pytest.mark.law("audits: every fault of the suite is found")
def test_there_are_twenty_mutants_over_every_task_and_both_units():
    assert len(MUTANTS) >= 20
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert {name for mutant in MUTANTS for name in mutant.subjects} >= set(ALL)


@pytest.mark.parametrize("subject", some((*ALL, CARD), "annotator, user", "frozen, record"))
@pytest.mark.law("audits: correct code is rarely accused")
def test_the_code_as_it_is_raises_no_alarm(known, verdicts, subject):
    found = verdicts(known[subject])
    assert "alarm" not in found.values()
    assert {"clipping", "noise", "sampling", "one-run"} <= set(found)


@pytest.mark.parametrize(
    ("mutant", "subject"),
    [
        pytest.param(mutant, subject, id=f"{mutant.name}: {subject}")
        for mutant in MUTANTS
        if mutant.name in EVERYWHERE
        for subject in mutant.subjects
    ],
)
@pytest.mark.law("audits: every fault of the suite is found")
def test_a_missing_clip_is_caught_of_each_task_by_its_own_canary(known, mutant, subject):
    assert first_alarm(known[subject], mutant) == EVERYWHERE[mutant.name]


def test_a_card_without_its_clip_or_its_noise_is_caught(known):
    named = {mutant.name: mutant for mutant in MUTANTS}
    assert first_alarm(known[CARD], named["no clip of dense updates"]) == "clipping"
    assert first_alarm(known[CARD], named["noise / 3"]) == "noise"


@pytest.mark.parametrize("mutant", some(ELSEWHERE, *ELSEWHERE[::3]), ids=lambda mutant: mutant.name)
@pytest.mark.law("audits: every fault of the suite is found")
def test_a_fault_is_caught(known, mutant):
    quick = sorted(mutant.subjects, key=lambda name: ("annotator" not in name, "wgan" in name))
    assert first_alarm(known[quick[0]], mutant)


def test_a_score_counts_what_was_missed(known):
    found = score(NOTHING, dict.fromkeys(ALL, known["annotator, user"]), 2)
    assert (found.audits, found.caught, sum(found.missed.values())) == (2, 0, 2)
