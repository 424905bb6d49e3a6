"""``fedlens privatizer attack``: kept and exported filters, from their files alone."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from thorough import some

from fedlens.cli import main
from fedlens.privatizers.attacks import filter_attack
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.attacks.attackers.formula import FORMULA
from fedlens.privatizers.attacks.filter_files import RecordUnits, save_filter
from fedlens.privatizers.attacks.gate import LOOKS
from fedlens.privatizers.export import ExportError, export_filter
from fedlens.privatizers.exported import ExportedFilter
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens_research.pages.curve_tables import BLIND, knows
from fedlens_research.tradeoff.figures import words_of

SHAPE = (1, 28, 28)
DATA = ["--data", "embedded-mnist-thickness"]


@pytest.fixture(scope="module")
def releaser() -> ConvReleaser:
    return ConvReleaser(SHAPE, 2, code=4, output_noise_std=0.1, choices=1).eval()


@pytest.fixture
def kept(tmp_path: Path, releaser: ConvReleaser) -> Path:
    return save_filter(releaser, SHAPE, tmp_path / "kept.safetensors")


@pytest.fixture(autouse=True)
def little_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    least = replace(
        filter_attack.QUICK, draws=1, reader_steps=60, tree_rounds=10, images=300, test=300,
        decoded=50, network_steps=10, decoder_steps=20, scored=2,
    )  # fmt: skip
    monkeypatch.setattr(filter_attack, "QUICK", least)


def _attack(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["privatizer", "attack", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def _json(out: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
    return found


def test_a_kept_filter_is_attacked_with_its_weights(
    capsys: pytest.CaptureFixture[str], kept: Path
) -> None:
    names = ["--attackers", "code", "decode", "logistic", "formula"]
    given = [kept, *DATA, "--quick", "--records", "400", "--releases", "1", "3", *names, "--json"]
    status, out, err = _attack(capsys, *given)
    found = _json(out)
    assert status == 5 and found["verdict"] == "cannot tell", "it claims nothing"
    got = [(one["attacker"], one["releases"]) for one in found["attacks"]]
    one_release = [("code", 1), ("decode", 1), ("logistic", 1), ("formula", 1)]
    assert got == [*one_release, ("code", 3), ("logistic", 3), ("formula", 3)]
    for one in found["attacks"]:
        assert 0 <= one["low"] <= one["balanced"] <= one["high"] <= 1
        assert one["nats_low"] <= one["nats"] <= one["nats_high"]
        assert one["records"] == (400 if "weights" in one["knows"] else 300)
    best = max(found["attacks"], key=lambda one: one["balanced"])
    assert found["strongest"] == best
    assert "decode: left out at 3 releases" in err and "code:" in err
    assert "simulation only" in out and "code x3" in out
    assert "releases of a record have one noise" in err


def test_a_device_without_a_key_is_attacked_by_fresh_noise(
    capsys: pytest.CaptureFixture[str], kept: Path
) -> None:
    given = [kept, *DATA, "--quick", "--records", "400"]
    given += ["--releases", "1", "30", "--attackers", "code"]
    found = []
    for more in ([], ["--fresh-noise"]):
        rows = _json(_attack(capsys, *given, *more, "--json")[1])["attacks"]
        found.append([row["nats"] for row in rows])
    (one, as_one), (again, many) = found
    assert one == as_one == again != many


def test_what_is_attacked_is_said_and_that_the_filter_hides_something_else(
    capsys: pytest.CaptureFixture[str], releaser: ConvReleaser, tmp_path: Path
) -> None:
    given = [*DATA, "--quick", "--records", "300", "--attackers", "logistic", "--json"]
    source = "the sensitive attribute of embedded-mnist-thickness"
    for names, warned in (((), False), (("north", "south"), True)):
        units = RecordUnits(sensitive_names=names)
        path = save_filter(releaser, SHAPE, tmp_path / f"{len(names)}.safetensors", units)
        status, out, err = _attack(capsys, path, *given)
        assert status == 5 and source in out and err.startswith(f"attacked: {source}")
        assert ("NOT WHAT THE FILTER HIDES (north, south)" in err) == warned
        assert _json(out)["data"] == "embedded-mnist-thickness"


@pytest.mark.parametrize("names", [["logistic"], ["formula"]])
def test_who_is_named_attacks_alone(
    capsys: pytest.CaptureFixture[str], kept: Path, names: list[str]
) -> None:
    given = [kept, *DATA, "--quick", "--records", "300", "--attackers", *names, "--json"]
    status, out, _ = _attack(capsys, *given)
    assert status == 5
    assert [one["attacker"] for one in _json(out)["attacks"]] == names


def test_without_names_a_code_is_read_of_one_release_of_many_alike_and_without_noise(
    capsys: pytest.CaptureFixture[str], kept: Path
) -> None:
    status, out, err = _attack(capsys, kept, *DATA, "--quick", "--records", "300", "--json")
    found = _json(out)
    assert status == 5 and found["strongest"]["sees"] == "one release"
    looks = [(one["attacker"], one["sees"]) for one in found["attacks"]]
    assert looks == list(LOOKS)
    sent = [row["sent"] for row in found["table"]]
    assert sent == [
        "nothing", "the true use alone", "the answer alone", "the filter, one release",
        "the filter, ten alike", "the filter, fifty alike", "the filter, noise-free",
    ]  # fmt: skip
    chance, true_use, answer, filtered = found["table"][:4]
    assert chance["secret"] == 0.5 and true_use["use"] == 1.0
    assert 0 <= answer["use"] <= 1 and filtered["use"] == found["use"]
    assert isinstance(found["dominated"], bool)
    assert err.count("\n") > len(LOOKS), "it says how far it is"


def test_nobody_names_records_so_only_the_structure_is_looked_at(
    capsys: pytest.CaptureFixture[str], kept: Path, tmp_path: Path
) -> None:
    status, out, _ = _attack(capsys, kept, "--json")
    found = _json(out)
    assert status == 5 and found["attacks"] == [] and found["data"] == ""
    assert {one["what"] for one in found["checks"]} >= {"noise", "certificate", "records"}
    bare = save_filter(ConvReleaser(SHAPE, 2, code=4, noisy=False), SHAPE, tmp_path / "b.st")
    assert _attack(capsys, bare)[0] == 4, "without noise nothing is hidden from who has it"


@pytest.mark.parametrize("suffix", some([".pt2", ".onnx"], ".onnx"))
def test_of_an_exported_filter_releases_alone_are_seen(
    capsys: pytest.CaptureFixture[str], releaser: ConvReleaser, tmp_path: Path, suffix: str
) -> None:
    if suffix == ".onnx":
        pytest.importorskip("onnxruntime")
        pytest.importorskip("onnxscript")
    path = tmp_path / f"filter{suffix}"
    export_filter(releaser, torch.zeros(SHAPE), path, "onnx" if suffix == ".onnx" else "torch")
    opened = ExportedFilter.open(path, trusted=True)
    assert (opened.shape, opened.noise_shape, opened.choices) == (SHAPE, releaser.noise_shape, 1)
    source = torch.Generator().manual_seed(0)
    images = torch.rand(3, *SHAPE, generator=source) * 2 - 1
    noise = torch.randn(3, *releaser.noise_shape, generator=source)
    torch.testing.assert_close(opened(images, noise), releaser(images, noise), atol=1e-4, rtol=0)
    given = [*DATA, "--quick", "--attackers", "code", "logistic", "--records", "300", "--json"]
    given += ["--trusted"] if suffix == ".pt2" else []
    status, out, err = _attack(capsys, path, *given)
    assert status == 5
    assert [one["attacker"] for one in _json(out)["attacks"]] == ["logistic"]
    assert "code: left out, this filter shows no code" in err
    assert "attack the kept file too" in out


class _Runs:
    """Writes a file as it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_a_program_from_elsewhere_runs_no_code_of_its_maker(
    capsys: pytest.CaptureFixture[str], releaser: ConvReleaser, tmp_path: Path
) -> None:
    made, evil, ran = (tmp_path / name for name in ("made.pt2", "evil.pt2", "ran"))
    export_filter(releaser, torch.zeros(SHAPE), made, "torch")
    with zipfile.ZipFile(made) as own, zipfile.ZipFile(evil, "w") as changed:
        for part in own.infolist():
            content = io.BytesIO(own.read(part))
            if "sample_inputs/" in part.filename:
                content = io.BytesIO()
                torch.save(((_Runs(ran),), {}), content)
            changed.writestr(part.filename, content.getvalue())
    status, _, err = _attack(capsys, evil, "--quick")
    assert status == 2 and "--trusted" in err and "Traceback" not in err
    assert not ran.exists()
    with pytest.raises(ExportError, match="trusted"):
        ExportedFilter.open(made)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (["--data", "mixture:0.4"], "the filter takes (1, 28, 28)"),
        (["--data", "nowhere"], "nowhere"),
        (["--attackers", "nobody"], "nobody"),
        (["--attackers", "prior"], "prior"),
        (["--releases", "0"], "releases [0]"),
        (["--records", "3"], "records 3"),
    ],
)
def test_wrong_use_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], kept: Path, change: list[str], said: str
) -> None:
    status, out, err = _attack(capsys, kept, "--quick", *DATA, *change)
    assert status == 2 and not out
    assert said in err and "Traceback" not in err


@pytest.mark.parametrize("name", ["gone.safetensors", "gone.onnx", "bad.pt2", "bad.safetensors"])
def test_a_file_that_is_no_filter_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    if name.startswith("bad"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
    status, _, err = _attack(capsys, tmp_path / name, "--quick")
    assert status == 2 and name in err and "Traceback" not in err


def test_the_dashboard_says_what_attackers_declare() -> None:
    for name in [*ATTACKERS, FORMULA, "code x10", "code, ten alike"]:
        assert knows(name) == words_of(name), name
    assert {knows(name) for name in BLIND} == {"no record"}


@pytest.mark.parametrize("command", [("attack", "kept"), ("curve", "--method", "cloak")])
def test_without_scikit_learn_it_says_what_to_install(
    command: tuple[str, ...], kept: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = [str(kept) if word == "kept" else word for word in command]
    if command[0] == "curve":
        words += ["--out", str(tmp_path / "curve")]
    with patch.dict(sys.modules, {"sklearn": None}):
        assert main(["privatizer", *words]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "fedlens: attackers need scikit-learn: pip install 'fedlens[attacks]'"
    ]
