"""A data card alone is diagnosed: what features hardly show is counted there."""

from __future__ import annotations

import pytest

import fedlens
from fedlens.diagnosis.cards.reader import card_parts, card_places, commonest_records
from fedlens.models.cards.statistics import card_layout

SETTINGS = {
    "data.users": 300,
    "data.samples_per_user": 10,
    "data.records_per_user": 12,
    "privacy.delta": 1e-4,
    "privacy.fixed_seed": 5,  # one sound card in thirty is called suspicious, and is not to be here
    "tasks.card.noise_multiplier": 1.0,
}


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory):
    """What a diagnosis says of cards, by the fault that is planted."""

    def said(fault):
        out = tmp_path_factory.mktemp("cards") / "run"
        planted = {"data.fault": fault} if fault else {}
        fedlens.card(settings={**SETTINGS, **planted}, out=out)
        return fedlens.diagnose(out)

    return said


@pytest.mark.parametrize(("fault", "share"), [("duplicates", 0.2), ("quantise", 0.3)])
def test_a_card_alone_names_a_fault_with_its_share(diagnosed, fault, share):
    found = diagnosed(f"{fault}:{share}")
    first = found.findings[0]
    assert first.fault == fault
    assert first.low <= share <= first.high
    assert found.releases == ("card",)


def test_a_card_of_sound_people_shows_no_fault(diagnosed):
    assert diagnosed("").findings == ()


def test_what_follows_from_how_records_are_dealt_out_is_not_compared():
    shape, classes = (1, 28, 28), 10
    layout, places = card_layout(shape, classes), set(card_places(shape, classes).tolist())
    own = {name: set(range(part.start, part.stop)) for name, part in layout.places.items()}
    for name in ("records", "user_classes", "largest_share"):
        assert not own[name] & places
    assert len(own["duplicates"] & places) == 1
    rest = set(own) - {"records", "user_classes", "largest_share", "duplicates"}
    assert set().union(*(own[name] for name in rest)) < places
    assert len(card_parts(shape, classes)) == len(rest) + 1


def test_how_many_records_users_hold_is_read_to_the_middle_of_a_bin():
    layout = card_layout((1, 28, 28), 10)
    mean = [0.0] * layout.size
    mean[layout.places["records"].start + 4] = 0.5  # 9 to 16
    assert commonest_records(mean, (1, 28, 28), 10) == 12
