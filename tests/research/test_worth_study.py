"""The study of verdicts: a real run of each size, its row, and which verdicts count as wrong."""

from __future__ import annotations

import json
from dataclasses import replace

from fedlens.cli import main
from fedlens.foundation.errors import ExitStatus
from fedlens_research.worth.study import WorthRow, rehearsed_within, wrong_verdicts

ROW = WorthRow(
    data="x", users=100, epsilon=1.0, classes=10, worth="noise", signal=0.1, recognised=0.5,
    fidelity=0.05, student=0.12, majority=0.11, real=0.9, judged=0.1,
)  # fmt: skip


def test_a_verdict_is_wrong_where_the_judge_says_otherwise():
    good = replace(ROW, judged=0.8, worth="clear")
    rows = [ROW, replace(ROW, worth="clear"), good, replace(good, worth="noise"), good]
    assert wrong_verdicts(rows) == {
        "noise called something else": (1, 2), "good called noise": (1, 3),
    }  # fmt: skip


def test_a_rehearsal_counts_where_there_was_one():
    rows = [ROW, replace(ROW, rehearsed=0.15), replace(ROW, rehearsed=0.5)]
    assert rehearsed_within(rows) == (1, 2)


def test_it_trains_what_is_missing_and_keeps_it(tmp_path, capsys):
    settings = {
        "tasks.warmup.generator_steps": 2, "tasks.critic.generator_steps": 2,
        "tasks.critic.faithful_steps": 2, "tasks.critic.components": 20,
        "tasks.annotator.guided_steps": 2, "tasks.annotator.rounds": 2,
        "tasks.annotator.components": 20, "generator.batch": 20, "generator.width": 8,
        "release.samples": 20,
    }  # fmt: skip
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    asked = ["study", "worth", "--data", "stand-in:16x16,2,400", "--users", "20", "--epsilon", "1"]
    asked += ["--out", str(tmp_path), "--rehearse", "--json", *given]
    assert main(asked) == ExitStatus.DONE
    first = json.loads(capsys.readouterr().out.splitlines()[-1])
    (verdict,) = (row["worth"] for row in first["rows"])
    assert verdict in ("noise", "usable for statistics")  # of 20 directions, chance decides
    assert first["rows"][0]["real"] > 0.8
    assert 0 <= first["rows"][0]["rehearsed"] <= 1
    assert main(asked) == ExitStatus.DONE
    assert json.loads(capsys.readouterr().out.splitlines()[-1]) == first
