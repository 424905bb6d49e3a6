"""Every key of the table that `fedlens study table1 --json` prints is documented."""

from __future__ import annotations

from fedlens_research.table1.figures import Group
from fedlens_research.table1.guarantees import Guarantee
from fedlens_research.table1.rows import ROWS
from fedlens_research.table1.table import TableLine


def test_every_key_of_a_line_of_the_table_is_documented(repository):
    page = (repository / "research" / "notes" / "quality.md").read_text(encoding="utf-8")
    point = {"labels": 100, "annotated": 0.8, "extended": 0.9, "requested": 0.7}
    group = Group.of({"students": {"cnn": 0.9}, "curve": [point]}, 0)
    line = TableLine(ROWS["mnist-record"], Guarantee(1.0, 1e-5), (group,), repository).to_json()
    keys = {*line, *line["student_accuracy"], *line["epsilon_bdp"], *line["label_curve"][0]}
    assert {*point, "mean", "sound", "epsilon_dp"} <= keys
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []
