"""The gate catches filters that were tampered with, and lets sound ones through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from benchmarks import leaky_filters
from benchmarks.leaky_filters import Trained, judge, mutants, train
from fedlens.privatizers.attacks.structure import Verdict, check_structure, overall
from fedlens.privatizers.export import one_thread

FEW = replace(leaky_filters.EFFORT, reader_steps=150, tree_rounds=20, draws=1, network_steps=60)
ATTACKED = (
    "weights before it learned to hide",
    "encoder as before any training",
    "a number of the code that reads the secret",
)
"""Sound by their structure: attackers, or the use that is gone, say what they are."""


@pytest.fixture(scope="module", autouse=True)
def on_one_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def made(on_one_thread: None) -> Trained:
    return train(0, 20.0, FEW)


@pytest.mark.law("7: filters are judged by attackers who have them")
def test_what_is_wrong_with_noise_bound_or_code_is_seen_without_an_attack(made: Trained) -> None:
    shape, records = (1, 28, 28), leaky_filters.split().test.records
    every = mutants(made)
    assert len(every) == 40
    missed = [
        name
        for name, network in every.items()
        if overall(check_structure(network, shape, made.claims, records)) != Verdict.FALLS
    ]
    assert set(missed) <= {
        *ATTACKED,
        "weights half way back",
        "weights three quarters back",
        "encoder's last layer as before any training",
    }
    for claims in (made.claims, None):
        checks = check_structure(made.filter, shape, claims, records)
        assert overall(checks) == Verdict.HOLDS, checks


@pytest.mark.law("7: filters are judged by attackers who have them")
@pytest.mark.parametrize("name", ATTACKED)
def test_wrong_weights_are_found_by_attackers_or_by_the_use_that_is_gone(
    made: Trained, name: str
) -> None:
    checks, reads = judge(mutants(made)[name], made.claims, FEW)
    assert overall(checks) == Verdict.FALLS and reads, checks


def test_a_filter_that_is_what_it_claims_holds(made: Trained) -> None:
    checks, _ = judge(made.filter, made.claims, FEW)
    assert overall(checks) == Verdict.HOLDS, checks
