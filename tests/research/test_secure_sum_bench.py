"""The benchmark of secure sums carries out whole rounds, and they are exact."""

from __future__ import annotations

import pytest

from benchmarks.secure_sum import DROPOUTS, PARTIES, SIZE, one_round


def test_a_small_round_of_several_processes_is_exact():
    found = one_round(5, 0.2, 1000, 2)
    assert found.exact and found.server > 0 and found.parties > 0


@pytest.mark.slow
def test_a_round_of_64_parties_of_which_a_fifth_drop_out_is_exact_and_quick():
    """Processor seconds on two cores, so other work on the machine hardly counts."""
    found = min(
        (one_round(PARTIES, DROPOUTS, SIZE, 2) for _ in range(2)), key=lambda f: f.shared(2)
    )
    assert found.exact and found.shared(2) < 4  # 1.5 s were measured
