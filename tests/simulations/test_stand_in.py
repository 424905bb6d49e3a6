"""Public digits that stand in: as large, as many, as many classes as are asked for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from fedlens.cli import main
from fedlens.data.registry import DatasetError, load, spec_of
from fedlens.data.stand_in import MOST_CLASSES, stand_in_name
from fedlens.foundation.errors import ExitStatus


@pytest.mark.parametrize(
    ("side", "channels", "classes", "records"),
    [(16, 1, 1, 50), (28, 1, 10, 300), (32, 3, 2, 101), (20, 1, 43, 430)],
)
def test_it_is_of_the_size_that_is_asked_for(side, channels, classes, records):
    made = load(stand_in_name(side, channels, classes, records))
    assert made.train_images.shape == (records, channels, side, side)
    assert made.classes == classes == len(set(made.train_labels.tolist()))
    counts = np.bincount(made.train_labels)
    assert counts.max() - counts.min() <= 1
    assert set(made.test_labels.tolist()) == set(range(classes))


def test_more_records_than_digits_are_moved_copies():
    made = load(stand_in_name(28, 1, 1, 4000))
    alike = {image.tobytes() for image in made.train_images}
    assert len(made.train_images) == 4000
    assert len(alike) > 3500


def test_it_is_the_same_each_time_and_public():
    name = stand_in_name(16, 3, 4, 200)
    assert load(name).digest == load(name).digest
    assert spec_of(name).public


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("any", "SIDExSIDE"), ("28x28", "SIDExSIDE"), ("28x32,10", "28 x 32 pixels"),
        ("30x30,10", "multiple of 4"), ("28x28,0", "0 classes"), ("28x28x2,3", "SIDExSIDE"),
        (f"28x28,{MOST_CLASSES + 1}", "classes; give 1 to"),
    ],
)  # fmt: skip
def test_what_cannot_be_made_is_said(argument, words):
    with pytest.raises(DatasetError, match=words):
        load(f"stand-in:{argument}")


def test_a_rehearsal_takes_its_form_from_the_contract(tmp_path, capsys):
    """It trains on digits of the contract's size and classes, says so, and judges what it made."""
    contract = tmp_path / "federation.toml"
    contract.write_text(
        'name = "clinic"\nclasses = ["ill", "well"]\n[image]\nside = 16\ncolour = true\n'
    )
    settings = {
        "tasks.warmup.generator_steps": 2, "tasks.critic.generator_steps": 2,
        "tasks.critic.faithful_steps": 2, "tasks.critic.components": 20,
        "tasks.annotator.guided_steps": 2, "tasks.annotator.rounds": 2,
        "tasks.annotator.components": 20, "generator.batch": 20, "generator.width": 8,
        "release.samples": 20,
    }  # fmt: skip
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    status = main([
        "rehearse", "--users", "30", "--records", "4", "--contract", str(contract),
        "--out", str(tmp_path / "run"), "--no-student", "--json", *given,
    ])  # fmt: skip
    said = capsys.readouterr().out
    assert status == ExitStatus.DONE
    assert "REHEARSAL on public digits (stand-in:16x16x3,2,120)" in said
    assert "does not foretell a student's accuracy" in said
    found = json.loads(said.splitlines()[-1])
    assert found["users"] == 30
    assert set(found["fidelity"]) == {"0", "1", "recognised"}
    assert found["worth"] in ("noise", "usable for statistics", "clear")
