"""The command that exports a kept filter keeps the filter's opt-in bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fedlens.api.filter_noise import KeyedNoise
from fedlens.cli import main
from fedlens.privatizers.attacks.filter_files import save_filter
from fedlens.privatizers.classifiers import choices_of
from fedlens.privatizers.export import Kind, load_filter
from fedlens.privatizers.networks.fader import Chained, FaderNet
from fedlens.privatizers.networks.filters import UNet
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.noise_field import NoiseField
from fedlens.privatizers.record_noise import record_noise


def heeding() -> UNet:
    """Adds half of its noise, where that is above 0, to records of whoever set the bit."""
    net = UNet((1, 8, 8), 2, noise=1, choices=1)
    with torch.no_grad():
        for value in net.parameters():
            value.zero_()
        net.enter.weight[0, 1, 1, 1] = 1  # the bit's plane, kept in channel 0 all the way down
        for layer in (net.down1, net.down2, net.up1, net.up2):
            layer.weight[0, 0, 1, 1] = 1
        net.bottom.weight[0, 0, 1, 1], net.bottom.bias[0] = 10, -10
        net.bottom.weight[0, 8, 1, 1] = 1  # the noise, cut off below 0 where the bit is 0
        net.correct.weight[0, 0, 1, 1] = 0.5
    return net.eval()


def inputs_of(path: Path, kind: Kind) -> int:
    if kind == "torch":
        return len(torch.export.load(path).graph_signature.user_inputs)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["records", "noise", "choice"]
    return 3


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_the_file_of_a_filter_with_a_choice_takes_it(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = save_filter(heeding(), (1, 8, 8), tmp_path / "kept.safetensors")
    assert main(["privatizer", "export", str(kept), "--kind", kind, "--json"]) == 0
    printed = capsys.readouterr().out
    found = json.loads(printed.splitlines()[-1])
    assert found["choices"] == 1 and "choice is an input" in printed
    call = load_filter(Path(found["path"]), kind)
    record, noise = torch.rand(1, 1, 8, 8), torch.full((1, 1, 2, 2), 0.6)
    openly, hidden = (call(record, noise, torch.full((1, 1), bit)) for bit in (0.0, 1.0))
    assert torch.allclose(openly, record, atol=1e-6)
    assert torch.allclose(hidden, record + 0.3, atol=1e-6)
    assert inputs_of(Path(found["path"]), kind) == 3


def test_the_number_of_bits_is_the_filter_s_own() -> None:
    plain, asking = UNet((1, 8, 8), 2), UNet((1, 8, 8), 2, choices=1)
    fader = FaderNet((1, 8, 8), torch.tensor([0.5, 0.5]), 2)
    assert [choices_of(net) for net in (plain, asking, fader)] == [0, 1, 0]
    assert choices_of(Chained(fader, asking)) == 1


def test_a_filter_without_a_choice_has_no_such_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = save_filter(UNet((1, 8, 8), 2), (1, 8, 8), tmp_path / "kept.safetensors")
    assert main(["privatizer", "export", str(kept), "--json"]) == 0
    printed = capsys.readouterr().out
    assert json.loads(printed.splitlines()[-1])["choices"] == 0
    assert "choice is an input" not in printed


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_a_bounded_code_comes_in_a_file_of_its_own_from_which_a_device_makes_its_noise(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    net = ConvReleaser((1, 8, 8), 2, code=3, output_noise_std=0.1).eval()
    kept = save_filter(net, (1, 8, 8), tmp_path / "kept.safetensors")
    assert main(["privatizer", "export", str(kept), "--kind", kind, "--json"]) == 0
    printed = capsys.readouterr().out
    found, key, record = json.loads(printed.splitlines()[-1]), b"k" * 32, torch.rand(1, 1, 8, 8)
    assert f"{found['encoder']}: the clean code" in printed
    code = load_filter(Path(found["encoder"]), kind)(record)
    noise = record_noise(key, record[0], net.noise_shape)[None]
    noise[:, :3] = NoiseField(key, 3).noise(code, record)
    released = load_filter(Path(found["path"]), kind)(record, noise)
    own = KeyedNoise(net, key)
    own._key, own.field = key, NoiseField(key, 3)  # a device's key for this filter
    with torch.no_grad():
        wanted = net(record, own(record, net.noise_shape))
    assert torch.allclose(released, wanted, atol=2e-3), "as `apply --key` with that key"


def test_the_name_of_the_file_says_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = save_filter(UNet((1, 8, 8), 2), (1, 8, 8), tmp_path / "kept.safetensors")
    assert main(["privatizer", "export", str(kept), "--out", str(tmp_path / "x.onnx")]) == 0
    assert inputs_of_onnx(tmp_path / "x.onnx") == ["records", "noise"]
    assert main(["privatizer", "export", str(kept), "--out", str(tmp_path / "x.pt2")]) == 0
    assert len(torch.export.load(tmp_path / "x.pt2").graph_signature.user_inputs) == 2
    capsys.readouterr()
    for arguments, message in (
        (["--kind", "onnx", "--out", "y.pt2"], "files of kind onnx end in .onnx"),
        (["--kind", "torch", "--out", "y.onnx"], "files of kind torch end in .pt2"),
        (["--out", "y.bin"], "end in .pt2 or .onnx"),
    ):
        arguments[-1] = str(tmp_path / arguments[-1])
        assert main(["privatizer", "export", str(kept), *arguments]) == 2
        assert message in capsys.readouterr().err and not Path(arguments[-1]).exists()


def inputs_of_onnx(path: Path) -> list[str]:
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [one.name for one in session.get_inputs()]


def test_a_folder_without_a_filter_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    save_filter(UNet((1, 8, 8), 2), (1, 8, 8), tmp_path / "curve" / "filters" / "a.safetensors")
    for place, message in (
        ("empty", "neither a run (it has no config.toml) nor a curve"),
        ("curve", "is the folder of a curve or study; give one of its files, such as"),
        ("nowhere", "there is no such file; give one of the folder filters/ of a curve or"),
    ):
        assert main(["privatizer", "export", str(tmp_path / place)]) == 2
        error = capsys.readouterr().err
        assert message in error and len(error.strip().splitlines()) == 1
