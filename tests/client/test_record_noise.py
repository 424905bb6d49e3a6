"""A record's own noise: the same again bit for bit, apart between records and keys, normal."""

from __future__ import annotations

import math

import pytest
import torch

from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.protocol import PrivatizerError
from fedlens.privatizers.record_noise import device_key, record_noise, records_noise

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))


def images(n: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, 1, 8, 8, generator=torch.Generator().manual_seed(seed)) * 2 - 1


@pytest.mark.law("7: a filter's certificate holds by construction")
def test_a_record_that_is_released_again_is_released_the_same() -> None:
    net = ConvReleaser((1, 8, 8), 2, code=3, output_noise_std=0.1).eval()
    records = images(4)
    with torch.no_grad():
        once, again = (net(records, records_noise(KEY, records, net.noise_shape)) for _ in "ab")
        late = net(records[2:3], records_noise(KEY, records[2:3].clone(), net.noise_shape))
    assert torch.equal(once, again), "ten releases tell what one tells"
    torch.testing.assert_close(late, once[2:3])  # whatever it is released beside


def test_another_record_or_key_has_another_noise() -> None:
    record = images(1)[0]
    noise = record_noise(KEY, record, (4096,))
    near = record.clone()
    near[0, 0, 0] = torch.nextafter(near[0, 0, 0], torch.tensor(2.0))
    others = [
        record_noise(OTHER, record, (4096,)),
        record_noise(KEY, near, (4096,)),
        record_noise(KEY, record.reshape(8, 8), (4096,)),
    ]
    for other in others:
        joint = torch.corrcoef(torch.stack([noise, other]))[0, 1]
        assert abs(float(joint)) < 5 / math.sqrt(4096)
    zeros = torch.zeros(4)
    assert torch.equal(record_noise(KEY, zeros, (6,)), record_noise(KEY, -zeros, (6,)))


def test_noise_is_standard_normal() -> None:
    noise = record_noise(KEY, images(1)[0], (100_001,)).double()
    assert float(noise.mean()) == pytest.approx(0, abs=5 / math.sqrt(1e5))
    assert float(noise.var()) == pytest.approx(1, abs=5 * math.sqrt(2 / 1e5))
    for edge in (-2.0, -1.0, 0.0, 0.5, 1.5, 3.0):
        wanted = 0.5 * (1 + math.erf(edge / math.sqrt(2)))
        deviation = math.sqrt(wanted * (1 - wanted) / 1e5)
        assert float((noise < edge).double().mean()) == pytest.approx(wanted, abs=5 * deviation)
    pairs = noise[:-1].reshape(-1, 2)
    assert abs(float(torch.corrcoef(pairs.T)[0, 1])) < 5 / math.sqrt(5e4)


def test_shapes_are_the_filters() -> None:
    assert record_noise(KEY, images(1)[0], (5, 3)).shape == (5, 3)
    assert record_noise(KEY, images(1)[0], ()).shape == ()
    assert records_noise(KEY, images(0), (7,)).shape == (0, 7)
    longer, short = (record_noise(KEY, images(1)[0], (n,)) for n in (9, 5))
    assert torch.equal(longer[:5], short)


def test_keys_are_long_secret_and_never_the_same() -> None:
    assert device_key() != device_key() and len(device_key()) == 32
    for key in (b"", b"short", bytes(65)):
        with pytest.raises(PrivatizerError, match=f"key has {len(key)} bytes"):
            record_noise(key, images(1)[0], (3,))
    for record in (images(1)[0].double(), torch.tensor([math.nan])):
        with pytest.raises(PrivatizerError, match="give finite float32"):
            record_noise(KEY, record, (3,))
