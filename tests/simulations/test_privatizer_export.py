"""The command that exports a kept filter keeps the filter's opt-in bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from fedlens.cli import main
from privatizers.classifiers import choices_of
from privatizers.export import Kind, load_filter
from privatizers.networks.fader import Chained, FaderNet
from privatizers.networks.filters import UNet
from studies.tradeoff.filter_files import save_filter


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
