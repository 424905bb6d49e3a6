"""What is said before a budget is spent, held against what runs of this size came to."""

from __future__ import annotations

import pytest

from fedlens.api.simulations import chosen_config
from fedlens.server.learning.forecast import expectation, expected_signals


def demo(users: int, epsilon: float):
    return chosen_config("demo", settings={"data.users": users}, epsilon=epsilon)


MEASURED = [
    # users, classes, records of a user, epsilon, signal that a run had: writers' digits, Arabic
    # digits, clothes, ultrasound and cells of few patients
    (539, 10, 12, 2.0, 0.52), (150, 10, 12, 10.0, 0.68), (2000, 10, 12, 0.5, 0.76),
    (546, 2, 1, 2.0, 0.47), (546, 2, 1, 10.0, 0.93), (40, 2, 12, 10.0, 0.11),
]  # fmt: skip


@pytest.mark.parametrize(("users", "classes", "records", "epsilon", "signal"), MEASURED)
def test_runs_lie_between_the_two_ends(users, classes, records, epsilon, signal):
    hard, easy = expected_signals(demo(users, epsilon), classes, records)
    assert hard - 0.1 <= signal <= easy + 0.15


def test_more_users_or_less_noise_give_more_signal():
    few = expected_signals(demo(100, 2), 10, 10)
    assert all(a < b for a, b in zip(few, expected_signals(demo(400, 2), 10, 10), strict=True))
    assert all(a < b for a, b in zip(few, expected_signals(demo(100, 9), 10, 10), strict=True))


def test_the_words_name_what_would_do():
    words = expectation(demo(40, 1), 2, 12)
    assert words.startswith("expect noise: 40 users are too few for 2 classes")
    asked = int(words.split("about ")[1].split(" ")[0].replace(",", ""))
    assert expected_signals(demo(asked, 1), 2, 12)[1] >= 0.25
    assert expectation(demo(20_000, 2), 2, 12).startswith("expect more than noise")


def test_nothing_is_said_of_what_cannot_be_reckoned():
    assert expectation(chosen_config("wgan"), 10, 10) == ""
    assert expectation(demo(1000, 2), 1, 10) == ""
