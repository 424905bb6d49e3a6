"""What could be diagnosed on one side of a private split, whose share of the users is a guess."""

from __future__ import annotations

import math

import pytest

from fedlens.api.diagnoses import public_reference
from fedlens.api.presets import preset_config
from fedlens.diagnosis.hypotheses import library
from fedlens.diagnosis.power import power_of

SIDE = {"split.side": "below", "split.model": "/a/run"}


@pytest.fixture(scope="module")
def shares():
    """The smallest share of users whose images are turned that would be found."""
    config = preset_config("demo").updated(
        {
            "schedule": "warmup",
            "release.agreement": 0.0,
            "data.records_per_user": 10,
            "privacy.delta": 1e-5,
        }
    )
    reference = public_reference("embedded", config, 800)

    def turned(shape, classes):
        kept = ("rotate90", "mirror", "dim")
        found = library(shape, classes)
        return [one for one in found if one.fault.name in kept and not one.variant.chosen]

    def share(users: int, **split: object) -> float:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fedlens.diagnosis.power.library", turned)
            changed = config.updated({key.replace("__", "."): v for key, v in split.items()})
            rows = power_of(changed, reference, [users], [2.0])
        return next(row.share for row in rows if row.fault == "rotate90")

    return share


@pytest.mark.thorough
def test_a_guessed_share_hides_more_and_half_the_users_are_half_of_them(shares):
    side = {key.replace(".", "__"): value for key, value in SIDE.items()}
    whole, all_on_it = shares(1000), shares(1000, **side, split__share=1.0)
    assert math.isfinite(all_on_it) and all_on_it > 1.01 * whole
    half = shares(2000, **side, split__share=0.5)
    assert half == pytest.approx(all_on_it, rel=1e-6)
    assert half > 1.2 * shares(2000, **side, split__share=1.0)
