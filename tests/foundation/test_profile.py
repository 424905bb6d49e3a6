"""Profiles count every second once, for the part that was at work."""

from __future__ import annotations

import time

import pytest

from fedlens.foundation.profile import REST, profiled, span, timed


@timed("inner")
def inner():
    time.sleep(0.02)
    return "made"


def test_a_parts_seconds_are_its_own():
    started = time.perf_counter()
    with profiled() as profile:
        with span("outer"):
            time.sleep(0.03)
            assert inner() == "made"
        seconds = profile.seconds()
    whole = time.perf_counter() - started
    assert seconds["inner"] >= 0.02 and seconds["outer"] >= 0.03
    assert 0.05 <= sum(seconds.values()) <= whole, "no second is counted in two parts"
    assert list(seconds)[-1] == REST


def test_a_part_that_fails_is_left_and_without_a_profile_nothing_is_kept():
    with profiled() as profile:
        with pytest.raises(ValueError, match="broken"), span("outer"):
            raise ValueError("broken")
        time.sleep(0.01)
    assert profile.seconds()[REST] >= 0.01
    before = profile.seconds()
    assert inner() == "made"
    assert "inner" not in before
