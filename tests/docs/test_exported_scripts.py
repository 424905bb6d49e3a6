"""The scripts that run an exported filter without fedlens do what the page says they do."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from fedlens.api import privatizer
from fedlens.privatizers.attacks.filter_files import save_filter
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser

PAGE = "docs/how-to/train-a-privatizer.md"
SHAPE = (3, 16, 16)
STRANGERS = ("fedlens", "fedlens_research")
GUARD = """
import sys
class Guard:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError("reached for " + name)
sys.meta_path.insert(0, Guard())
"""


def scripts(repository: Path) -> dict[str, str]:
    """The page's whole scripts by the library that they import."""
    every = re.findall(r"```python\n(.*?)```", (repository / PAGE).read_text(), re.DOTALL)
    blocks = [one for one in every if "sys.argv" in one]
    found = {("onnx" if "onnxruntime" in one else "torch"): one for one in blocks}
    assert len(blocks) == len(found) == 2
    return found


def run_script(text: str, kind: str, folder: Path, pictures: np.ndarray) -> np.ndarray:
    """What the script writes, in a process to which this package is closed."""
    np.save(folder / "in.npy", pictures)
    forbidden = (*STRANGERS, *(("torch",) if kind == "onnx" else ()))
    script = GUARD.format(names=set(forbidden)) + text
    suffix = {"onnx": ".onnx", "torch": ".pt2"}[kind]
    arguments = [str(folder / f"filter{suffix}"), str(folder / "in.npy"), str(folder / "out.npy")]
    subprocess.run(
        [sys.executable, "-I", "-c", script, *arguments], check=True, cwd=folder, timeout=120
    )
    return np.load(folder / "out.npy")


@pytest.mark.parametrize("kind", ["onnx", "torch"])
def test_a_script_without_fedlens_releases_what_the_filter_does(
    kind: privatizer.Kind, tmp_path: Path, repository: Path
) -> None:
    if kind == "onnx":
        pytest.importorskip("onnxruntime")
    keep = torch.zeros(SHAPE, dtype=torch.bool)
    keep[:, :8] = True
    net = MaskFilter(torch.full(SHAPE, 0.1), keep, torch.full(SHAPE, 0.5))
    kept = save_filter(net, SHAPE, tmp_path / "filter.safetensors")
    privatizer.export(kept, kind=kind)
    pictures = np.full((4, *SHAPE), 100, np.uint8)
    sent = run_script(scripts(repository)[kind], kind, tmp_path, pictures)
    assert sent.shape == pictures.shape and sent.dtype == np.uint8
    assert (sent[:, :, 8:] == 191).all(), "0.5 of [-1, 1] stands for what is not sent"
    assert abs(sent[:, :, :8].mean() - 100) < 2 and 8 < sent[:, :, :8].std() < 18
    assert not np.array_equal(sent[0], sent[1]), "each record has noise of its own"


def test_a_filter_without_noise_gives_the_filter_s_own_answer(
    tmp_path: Path, repository: Path
) -> None:
    pytest.importorskip("onnxruntime")
    net = ConvReleaser(SHAPE, 2, code=4, noisy=False).eval()
    kept = save_filter(net, SHAPE, tmp_path / "filter.safetensors")
    privatizer.export(kept, kind="onnx", unsafe=True)
    pictures = np.random.default_rng(0).integers(0, 256, (3, *SHAPE), dtype=np.uint8)
    sent = run_script(scripts(repository)["onnx"], "onnx", tmp_path, pictures)
    records = torch.from_numpy(pictures.astype(np.float32)) / 127.5 - 1
    with torch.no_grad():
        wanted = (net(records, records.new_zeros(3, 0)) + 1) * 127.5
    assert float((torch.from_numpy(sent).float() - wanted).abs().max()) <= 0.51
