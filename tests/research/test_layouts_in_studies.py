"""The papers' picture sets run through the study of attribute pairs, one command each."""

from __future__ import annotations

import json
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedlens.cli import main

FEW = {
    "network": '"unet"', "width": 2, "noise": 1, "copying_steps": 1, "reading_steps": 3,
    "meeting_steps": 1, "steps": 2, "adversary_steps": 1, "fader_width": 2, "fader_steps": 2,
    "attackers": '["logistic"]', "attacker_steps": 2, "batch": 8,
}  # fmt: skip


def picture(path: Path, value: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(value).integers(0, 256, (20, 20, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def celeba(root: Path) -> str:
    """Gender kept and smile hidden (Bertran et al. 2019, section 5.2)."""
    lines, parts = [], []
    for number in range(90):
        file = f"{number:06d}.jpg"
        picture(root / "img_align_celeba" / file, number)
        lines.append(f"{file} {2 * (number % 2) - 1} {2 * (number // 2 % 2) - 1}")
        parts.append(f"{file} {number // 30}")
    (root / "list_attr_celeba.txt").write_text("\n".join(["90", "Male Smiling", *lines]))
    (root / "list_eval_partition.txt").write_text("\n".join(parts))
    return f"celeba:{root},utility=Male,sensitive=Smiling,side=16"


def facescrub(root: Path) -> str:
    """Person kept and gender hidden (section 5.3)."""
    for folder, names in (("actors", "AB"), ("actresses", "CD")):
        for name in names:
            for number in range(20):
                picture(root / folder / "faces" / name / f"{number}.png", ord(name) * number)
    return f"facescrub:{root},side=16"


def utkface(root: Path) -> str:
    """Gender kept and race hidden, which has five values."""
    for number in range(100):
        picture(root / f"{20 + number % 40}_{number % 2}_{number % 5}_{number}.jpg", number)
    return f"utkface:{root},side=16"


def cifar100(root: Path) -> str:
    """Super-class kept and class hidden."""
    source = np.random.default_rng(0)
    for file, count in (("train.bin", 2000), ("test.bin", 200)):
        records = source.integers(0, 256, (count, 3074), dtype=np.uint8)
        records[:, 1] = np.arange(count) % 100
        records[:, 0] = records[:, 1] // 5
        (root / file).write_bytes(records.tobytes())
    return f"cifar100:{root}"


def eco(root: Path) -> str:
    """Seconds of a meter, and of presence in the evening, of four homes."""
    watts = "\n".join(f"{100 * hour},0,0" for hour in range(24) for _ in range(3600))
    presence = ",".join("1" if hour >= 17 else "0" for hour in range(24) for _ in range(3600))
    days = [date(2012, 6, 27) + timedelta(days=number) for number in range(6)]
    for house in ("01", "02", "03", "04"):
        meter, seen = root / f"{house}_sm_csv" / house, root / f"{house}_occupancy_csv"
        meter.mkdir(parents=True)
        seen.mkdir()
        for day in days:
            (meter / f"{day.isoformat()}.csv").write_text(watts)
        lines = [f"{day.strftime('%d-%b-%Y')},{presence}" for day in days]
        (seen / f"{house}_summer.csv").write_text("\n".join(lines))
    return f"eco:{root}"


@pytest.mark.slow
def test_loads_of_real_homes_run_by_one_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    few = {
        "data": json.dumps(eco(root)), "sides": '["none", "calendar", "clock"]',
        "points": '["1:0.3"]', "side_points": '["0.5:0.3"]', "hidden": 4, "adversary_hidden": 4,
        "steps": 2, "attackers": '["trees"]', "gated": "true", "whole_day": "true",
    }  # fmt: skip
    flags = [part for key, value in few.items() for part in ("--set", f"{key}={value}")]
    out = str(tmp_path / "out")
    assert main(["study", "alpha-load", "--quick", "--json", "--out", out, *flags]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    assert [(row["side"], row["point"]) for row in rows] == [
        (side, point)
        for side, own in (("none", "1:0.3"), ("calendar", "0.5:0.3"), ("clock", "0.5:0.3"))
        for point in ("raw", "constant", own)
    ]
    assert all(0 <= row["NE"] < 2 and 0.4 < row["attacker"] <= 1 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("made", [celeba, facescrub, utkface, cifar100])
def test_a_set_of_pictures_runs_by_one_command(
    made: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "data"
    root.mkdir()
    source = made(root)  # type: ignore[operator]
    changes = {**FEW, "data": json.dumps([source]), "budgets": "[0.1, 0.02]", "alphas": "[0.5]"}
    if made is facescrub:
        changes["baselines"] = '["fader", "fader+unet"]'
    flags = [part for key, value in changes.items() for part in ("--set", f"{key}={value}")]
    out = str(tmp_path / "out")
    assert main(["study", "attributes", "--quick", "--json", "--out", out, *flags]) == 0
    rows = json.loads(capsys.readouterr().out.splitlines()[-1])["rows"]
    filters = [(row["filter"], row["alpha"], row["budget"]) for row in rows]
    wanted = [("unet", 0.5, None), ("unet", None, 0.1), ("unet", None, 0.02)]
    chained = [("fader+unet", *place[1:]) for place in wanted]
    assert filters == wanted + ([("fader", None, None), *chained] if made is facescrub else [])
    assert all(0 <= row["utility"] <= 1 and 0 <= row["attacker"] <= 1 for row in rows)
