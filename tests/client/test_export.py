"""An exported filter does what the filter does, or there is no file."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fedlens.privatizers import export
from fedlens.privatizers.export import (
    ExportError,
    Kind,
    example_inputs,
    export_filter,
    latency_ms,
    load_filter,
    release,
)
from fedlens.privatizers.networks.filters import UNet
from fedlens.privatizers.networks.masks import MaskFilter, NoiseMap, masked
from fedlens.privatizers.networks.releasers import LstmReleaser

KINDS: tuple[Kind, ...] = ("torch", "onnx")


def noise_map(shape: tuple[int, ...]) -> NoiseMap:
    found = NoiseMap(shape)
    with torch.no_grad():
        found.rho.copy_(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    return found


def mask(shape: tuple[int, ...]) -> MaskFilter:
    return masked(noise_map(shape), 0.75, "trained")


FILTERS: dict[str, tuple[nn.Module, tuple[int, ...], int]] = {
    "mask": (mask((3, 16, 16)), (3, 16, 16), 0),
    "mask with a choice": (mask((1, 12, 12)), (1, 12, 12), 1),
    "u-net with choices": (UNet((3, 16, 16), 4, choices=2), (3, 16, 16), 2),
    "lstm": (LstmReleaser(hidden=8, layers=1, steps=8), (8, 1), 0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", FILTERS)
def test_a_file_does_what_the_filter_does(name: str, kind: Kind, tmp_path: Path) -> None:
    filter_, shape, choices = FILTERS[name]
    source = torch.Generator().manual_seed(1)
    record = torch.rand(shape, generator=source)
    made = export_filter(filter_, record, tmp_path / "deep" / "filter.bin", kind, choices=choices)
    assert made.path.stat().st_size == made.size > 0
    assert [made.path] == list(made.path.parent.iterdir())
    call = load_filter(made.path, kind)
    noise = torch.randn(2, 1, *filter_.noise_shape, generator=source)  # type: ignore[misc]
    bits = [torch.ones(1, choices)] if choices else []
    with torch.no_grad():
        for draw in noise:
            wanted = filter_(record[None], draw, *bits)
            assert torch.allclose(call(record[None], draw, *bits), wanted, atol=1e-5)
    one, two = (call(record[None], draw, *bits) for draw in noise)
    assert not torch.allclose(one, two, atol=1e-4)  # the noise is an input and is used


class Plain(nn.Module):
    """A filter without noise."""

    noise_shape = ()

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        return 2 * records


@pytest.mark.parametrize("kind", KINDS)
def test_a_filter_without_noise_has_no_such_input(kind: Kind, tmp_path: Path) -> None:
    made = export_filter(Plain(), torch.ones(3), tmp_path / "filter", kind)
    out = load_filter(made.path, kind)(torch.ones(1, 3))
    assert out.tolist() == [[2.0, 2.0, 2.0]]
    assert release(Plain(), torch.ones(2, 3), torch.Generator()).tolist() == [[2.0] * 3] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_export_that_is_off_is_refused_and_leaves_no_file(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(online: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> None:
        faulty = export._Online(mask_moved, noisy=True)
        writer(faulty, inputs, path)

    writer = export._WRITERS[kind]
    right, mask_moved = mask((1, 12, 12)), mask((1, 12, 12))
    with torch.no_grad():
        mask_moved.values += 0.01
    monkeypatch.setitem(export._WRITERS, kind, other)
    with pytest.raises(ExportError, match=r"off by 0\.01.*nothing was written"):
        export_filter(right, torch.zeros(1, 12, 12), tmp_path / "filter", kind)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "filter").write_text("the one before")
    with pytest.raises(ExportError):
        export_filter(right, torch.zeros(1, 12, 12), tmp_path / "filter", kind)
    assert (tmp_path / "filter").read_text() == "the one before"


class Secretive(nn.Module):
    """Draws its own noise."""

    noise_shape = (3,)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        return records + torch.randn_like(records)


class Stubborn(nn.Module):
    """Branches on its data, which no exporter can follow."""

    noise_shape = (3,)

    def forward(self, records: Tensor, noise: Tensor, choice: Tensor | None = None) -> Tensor:
        return records if float(records.sum()) > 0 else records + noise


@pytest.mark.parametrize(
    ("filter_", "record", "says"),
    [
        (Secretive(), torch.zeros(3), "draws numbers of its own"),
        (Stubborn(), torch.zeros(3), "cannot be exported"),
        (UNet((1, 28, 28), 4), torch.zeros(3, 28, 28), "does not take a record"),
        (nn.Identity(), torch.zeros(3), "no noise_shape"),
    ],
)
def test_what_is_no_filter_is_refused(
    filter_: nn.Module, record: Tensor, says: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=says):
        export_filter(filter_, record, tmp_path / "filter", "torch")
    with pytest.raises(ExportError, match="unknown"):
        export_filter(filter_, record, tmp_path / "filter", "tflite")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_the_filter_itself_is_left_as_it_was(tmp_path: Path) -> None:
    filter_ = mask((1, 12, 12))
    filter_.train()
    export_filter(filter_, torch.zeros(1, 12, 12), tmp_path / "filter", "torch")
    assert filter_.training
    assert all(value.requires_grad for value in filter_.parameters())


def test_release_draws_fresh_noise_from_the_generator_alone() -> None:
    filter_, records = noise_map((1, 12, 12)), torch.zeros(2, 1, 12, 12)
    before = torch.get_rng_state()
    one, two = (release(filter_, records, torch.Generator().manual_seed(seed)) for seed in (1, 1))
    assert torch.equal(one, two)
    assert not torch.equal(one[0], one[1])
    assert torch.equal(before, torch.get_rng_state())
    assert not one.requires_grad


def test_a_mask_takes_well_under_a_millisecond() -> None:
    filter_ = mask((3, 64, 64))
    inputs = example_inputs(filter_, torch.zeros(3, 64, 64))
    threads = torch.get_num_threads()
    assert 0 < latency_ms(filter_, inputs, runs=50) < 1.0
    assert torch.get_num_threads() == threads
