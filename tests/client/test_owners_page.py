"""What an owner sees of a store: names beside the pictures, and one page that asks for nothing."""

from __future__ import annotations

import io
import json
import re

import layouts
import numpy as np
import pytest
from PIL import Image

from fedlens.api.nodes import NodePreparation, check_node, prepare_node
from fedlens.cli import main
from fedlens.client.preparing.report import Looks

CONTRACT = """name = "w"
classes = ["<script>alert(1)</script>", "cat & dog"]
tasks = ["frozen", "probe"]
least_noise_multiplier = 2.5
[image]
side = 16
"""
EACH = NodePreparation(owner="each", mapped={"a": "<script>alert(1)</script>", "b": "cat & dog"})


@pytest.fixture
def source(tmp_path):
    """A folder with a record of each class, and one that is left out; and the contract."""
    folder = tmp_path / "set"
    for name, pixels in zip(("a/1.png", "b/2.png"), layouts.pictures(2, 16), strict=True):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(layouts.png(pixels))
    (folder / "a" / "<img src=x>.png").write_bytes(b"nothing")
    (tmp_path / "federation.toml").write_text(CONTRACT)
    return folder


def test_each_class_has_its_name_beside_its_pictures():
    def sheet(*names):
        looks = Looks(names, (1, 16, 16))
        looks.add(0, np.full((1, 16, 16), 200, np.uint8))
        return np.asarray(Image.open(io.BytesIO(looks.png())).convert("L"))

    found, other = sheet("cat", "кошка"), sheet("cat", "dog")
    row = found.shape[0] // 2
    assert found.shape[1] > 8 * row  # eight pictures, and a column of names
    names, others = found[:, : -8 * row], other[:, : -8 * row]
    assert names[:row].min() < 100 and names[row:].min() < 100
    width = min(names.shape[1], others.shape[1])
    assert np.array_equal(names[:row, :width], others[:row, :width])
    assert not np.array_equal(names[row:, :width], others[row:, :width])
    assert sheet("x" * 100).shape[1] < 10 * row + 220


@pytest.mark.law("6: bad files are found while preparing")
def test_the_page_says_all_and_asks_for_nothing(source, tmp_path):
    page = tmp_path / "out.html"
    report, faults = check_node(source, tmp_path / "federation.toml", EACH, page=page)
    text = page.read_text()
    assert page.stat().st_mode & 0o077 == 0
    assert "<script" not in text and "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in text and "cat &amp; dog" in text
    assert re.findall(r'(?:src|href|url)\s*[=(]\s*"?([^":]*):', text) == ["data"]
    assert "default-src &#x27;none&#x27;" in text
    assert faults and all(one.split(":")[0].split(", ")[1] in text for one in faults)
    assert "left out" not in text.split("What is wrong")[0]
    assert "a picture that cannot be decoded" in text or "no picture" in text
    sent = text.split("What will be sent")[1]
    assert "frozen" in sent and "probe" in sent and "annotator" not in sent
    assert "at least 2.5 times" in sent
    assert report.looks and "looks" not in report.to_json()


def test_the_page_of_a_store_shows_what_it_holds(source, tmp_path, capsys):
    contract = str(tmp_path / "federation.toml")
    prepare_node(source, tmp_path / "store", contract, EACH)
    page = tmp_path / "out.html"
    assert main(["node", "check", str(tmp_path / "store"), "--report", str(page), "--json"]) == 0
    assert json.loads(capsys.readouterr().out.strip().splitlines()[-1])["records"] == 2
    text = page.read_text()
    assert (
        "Nothing is wrong" in text
        and "&lt;img src=x&gt;.png" in text
        and "data:image/png;base64," in text
    )
    assert main(["node", "check", str(source), "--report", str(tmp_path / "no" / "x.html")]) == 2
