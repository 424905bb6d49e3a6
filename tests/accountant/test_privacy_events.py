import json
import math
from dataclasses import FrozenInstanceError, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedlens.accountant.events import EventError, SubsampledGaussian

EVENT = SubsampledGaussian("user", "poisson", "add-remove", 0.1, 2.0, 0.35)


@settings(deadline=None, max_examples=60)
@given(
    rate=st.floats(1e-9, 1),
    noise=st.just(0.0) | st.floats(1e-6, 1e6),
    clip=st.floats(1e-6, 1e6),
    count=st.integers(1, 10**9),
    released=st.text(max_size=200),
)
def test_an_event_survives_json(rate, noise, clip, count, released):
    event = SubsampledGaussian(
        "record", "poisson", "add-remove", rate, noise, clip, count, released
    )
    assert SubsampledGaussian.from_json(json.loads(json.dumps(event.to_json()))) == event


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("unit", "household"),
        ("sampler", "shuffle"),
        ("sampler", "none"),  # with a sampling rate below 1
        ("adjacency", "replace-one"),
        ("sampler", "without-replacement"),
        ("sampling_rate", 0.0),
        ("sampling_rate", 1.1),
        ("sampling_rate", math.nan),
        ("sampling_rate", True),
        ("sampling_rate", "0.1"),
        ("clipping_norm", 10**400),
        ("noise_multiplier", -1.0),
        ("noise_multiplier", 1e-9),
        ("noise_multiplier", math.inf),
        ("noise_multiplier", math.nan),
        ("clipping_norm", 0.0),
        ("clipping_norm", math.inf),
        ("count", 0),
        ("count", 1.5),
        ("count", True),
        ("released", "x" * 201),
        ("released", None),
    ],
)
def test_what_cannot_be_accounted_for_is_refused_by_name(field, value):
    with pytest.raises(
        EventError,
        match={"none": "sampling_rate"}.get(value, field),
    ):
        replace(EVENT, **{field: value})


def test_foreign_json_is_refused():
    data = EVENT.to_json()
    for wrong in ({**data, "mechanism": "laplace"}, {**data, "extra": 1}, {}):
        with pytest.raises(EventError):
            SubsampledGaussian.from_json(wrong)
    del data["clipping_norm"]
    with pytest.raises(EventError, match="clipping_norm"):
        SubsampledGaussian.from_json(data)


def test_an_event_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        EVENT.noise_multiplier = 9.0
