"""Filters of a study as files: built again as they were, and attacked from the file alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from fedlens.cli import main
from fedlens.cli.output import status_of
from fedlens.data.attributes import load_private
from fedlens.privatizers.attacks import filter_attack
from fedlens.privatizers.attacks.filter_files import load_filter, save_filter
from fedlens.privatizers.networks.fader import Chained, FaderNet
from fedlens.privatizers.networks.filters import UNet
from fedlens.privatizers.networks.spectral import LowFrequencies, SpectralReleaser
from fedlens.privatizers.private_data import Split
from fedlens.privatizers.protocol import PrivatizerError
from fedlens_research.framework.study import run_seeds
from fedlens_research.papers import STUDIES, attributes
from fedlens_research.tradeoff.certified import certify

SHAPE = (1, 28, 28)


def _spectral() -> SpectralReleaser:
    source = torch.Generator().manual_seed(3)
    features = LowFrequencies(SHAPE, 6)
    features.centre.copy_(torch.rand(features.size, generator=source))
    features.scale.copy_(0.1 + torch.rand(features.size, generator=source))
    return SpectralReleaser(features, 9, code=4, capacity=3.0, choices=1, generator=source).eval()


def _fader() -> FaderNet:
    source = torch.Generator().manual_seed(4)
    limits = (-1.0, 1.0)
    return FaderNet(SHAPE, torch.tensor([0.3, 0.7]), 2, drawn=True, limits=limits, generator=source)


def _chained() -> Chained:
    return Chained(_fader(), UNet(SHAPE, 2, noise=2, limits=(-1.0, 1.0)))


@pytest.mark.parametrize("made", [_spectral, _fader, _chained])
def test_a_filter_is_built_again_as_it_was(made: type, tmp_path: Path) -> None:
    net: nn.Module = made().eval()
    again, shape = load_filter(save_filter(net, SHAPE, tmp_path / "one.safetensors"))
    assert type(again) is type(net) and shape == SHAPE
    source = torch.Generator().manual_seed(0)
    images = torch.rand(5, *SHAPE, generator=source) * 2 - 1
    noise = torch.randn(5, *net.noise_shape, generator=source)
    with torch.no_grad():
        assert torch.equal(again(images, noise), net(images, noise))


def test_the_code_of_low_frequencies_keeps_its_certificate_and_its_noise(tmp_path: Path) -> None:
    net = _spectral()
    again, _ = load_filter(save_filter(net, SHAPE, tmp_path / "one.safetensors"))
    assert isinstance(again, SpectralReleaser)
    assert (again.repeats_noise, again.choices, again.radius) == (True, 1, net.radius)
    assert certify(again, torch.zeros(1, *SHAPE)).nats == pytest.approx(3.0)


def test_a_part_of_a_kind_without_a_file_is_refused_by_name(tmp_path: Path) -> None:
    class Odd(UNet):
        pass

    net = Chained(_fader(), Odd(SHAPE, 2, noise=2))
    with pytest.raises(PrivatizerError, match="kind Odd have no file"):
        save_filter(net, SHAPE, tmp_path / "one.safetensors")
    assert not list(tmp_path.iterdir())


def test_what_a_study_keeps_is_attacked_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def few(name: str, data_dir: Path | None = None, seed: int = 0) -> Split:
        split = load_private(name, data_dir, seed)
        parts = (split.train, split.attack, split.test)
        return Split(*(part.take(slice(0, 300)) for part in parts))

    monkeypatch.setattr(attributes, "load_private", few)
    least = replace(
        filter_attack.QUICK, draws=1, reader_steps=20, tree_rounds=10, images=300, test=300
    )
    monkeypatch.setattr(filter_attack, "QUICK", least)
    settings = replace(
        STUDIES["attributes"].settings(quick=True), data=("embedded-mnist-thickness",), width=2,
        reading_steps=5, copying_steps=2, meeting_steps=1, steps=2, baselines=("fader",),
        fader_width=2, fader_steps=2, attackers=("logistic",), attacker_steps=5, code_steps=12,
    )  # fmt: skip
    plan = {"seeds": [0, 1], "data_dir": None, "out": tmp_path, "report": lambda _: None}
    run_seeds(STUDIES["attributes"], settings, **plan)
    kept = sorted(path.name for path in (tmp_path / "filters").iterdir())
    assert len(kept) == 4 and len({name.rpartition("-")[2] for name in kept}) == 2
    for name, leads in (("code-b-0.022-seed-1", "code"), ("fader-seed-1", "logistic")):
        (path,) = (tmp_path / "filters").glob(f"*{name}*")
        given = ["--quick", "--records", "300", "--attackers", "code", "logistic", "--json"]
        status = main(["privatizer", "attack", str(path), *given])
        captured = capsys.readouterr()
        found = json.loads(captured.out.strip().splitlines()[-1])
        assert status == status_of([found["verdict"]]), captured.err
        assert found["claims"]["data"] == "embedded-mnist-thickness"
        assert found["claims"]["reads"].keys() >= {"one release"}
        assert next(one["attacker"] for one in found["attacks"]) == leads
