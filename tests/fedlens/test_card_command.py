"""`fedlens card`: what it prints, keeps, compares and answers by its exit status."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest
from tiny import TINY

import fedlens
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.api.presets import preset_config
from fedlens.cli import main
from fedlens.foundation.errors import ExitStatus, WrongUse
from fedlens.server.config.schedule import planned_epsilon

SMALL = [
    "--set",
    "data.users=60",
    "--set",
    "data.samples_per_user=5",
    "--set",
    "privacy.delta=1e-3",
]
CLEAR = [*SMALL, "--epsilon", "40"]


def asked(capsys, *words):
    status = main(["card", *words, "--json"])
    return status, json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def sound(tmp_path, capsys):
    status, found = asked(capsys, *CLEAR, "--out", str(tmp_path / "sound"))
    assert status == 0
    return tmp_path / "sound", found


def test_the_preset_costs_what_it_says():
    config = preset_config("card")
    assert 0.29 < planned_epsilon(config, 1e-5) <= 0.3 and config.privacy.delta == 1e-5


def test_a_card_costs_its_epsilon_and_says_both_guarantees(sound):
    folder, found = sound
    assert 39 < found["epsilon"] <= 40 and found["epsilon"] == found["spent"]
    assert found["bayesian_epsilon"] > 0 and found["bayesian_sound"] >= found["bayesian_epsilon"]
    (entry,) = Ledger.verify(folder / "ledger.jsonl")
    assert entry.event.released.startswith("data card")
    assert json.loads((folder / "card.json").read_text()) == found


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]


def test_the_page_has_a_figure_a_statistic_and_asks_for_nothing(sound):
    folder, found = sound
    text = (folder / "card.html").read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert page.tags.count("svg") == len(found["statistics"]) == 17
    assert not page.links and "script" not in page.tags and "url(" not in text
    assert "Bayesian DP ε" in text and re.search(r"DP ε = 3\d|DP ε = 40", text)
    bars = sum(len(one["bins"]) for one in found["statistics"])
    assert text.count('class="bar"') == text.count('class="err"') == bars


def test_a_released_card_is_read_again_for_nothing_and_compared(sound, tmp_path, capsys):
    folder, _ = sound
    words = [*CLEAR, "--fault", "duplicates:0.5", "--out", str(tmp_path / "later")]
    status, _ = asked(capsys, *words)
    assert status == 0
    later = [str(tmp_path / "later"), "--compare", str(folder)]
    status, found = asked(capsys, *later, "--expect", "duplicates < 2%")
    assert status == ExitStatus.ALARM and found["planted"] == "duplicates:0.5"
    (row,) = [one for one in found["changes"] if one["name"] == "duplicates"]
    assert row["named"] and found["verdicts"][0]["outcome"] == "falls"
    assert len(Ledger.verify(tmp_path / "later" / "ledger.jsonl")) == 1
    assert "What changed since" in (tmp_path / "later" / "card.html").read_text()
    assert main(["card", *later]) == 0
    said = capsys.readouterr().out
    assert "PLANTED FAULT" in said and "changed: corrected for all 17 rows" in said


def test_the_exit_status_tells_what_holds(sound, tmp_path, capsys):
    folder, _ = sound
    assert asked(capsys, str(folder), "--expect", "duplicates < 60%")[0] == ExitStatus.DONE
    assert asked(capsys, str(folder), "--expect", "duplicates > 60%")[0] == ExitStatus.ALARM
    words = [str(folder), "--expect", "duplicates < 60%", "--expect", "duplicates < 0.01%"]
    assert asked(capsys, *words)[0] == ExitStatus.UNDECIDED == 5
    kept = ["--set", "tasks.card.expect=duplicates > 60%", "--out", str(tmp_path / "kept")]
    assert asked(capsys, *CLEAR, *kept)[0] == ExitStatus.ALARM


def test_a_card_of_a_presets_users_carries_out_none_of_its_tasks(tmp_path, capsys):
    words = ["--preset", "demo", *CLEAR, "--out", str(tmp_path / "demo")]
    assert asked(capsys, *words)[0] == 0
    assert len(Ledger.verify(tmp_path / "demo" / "ledger.jsonl")) == 1


def test_data_without_labels_have_a_card_without_classes(sound, tmp_path, capsys):
    words = [*CLEAR, "--set", "data.labels=none", "--out", str(tmp_path / "none")]
    status, found = asked(capsys, *words, "--compare", str(sound[0]))
    names = {one["name"] for one in found["statistics"]}
    assert status == 0 and len(names) == len(found["changes"]) == 14
    assert not names & {"classes", "user_classes", "largest_share"}
    assert found["not_compared"] == ["classes", "user_classes", "largest_share"]
    assert main(["card", str(tmp_path / "none"), "--compare", str(sound[0])]) == 0
    said = "Not compared, for one card lacks them or has other bins: classes, user_classes"
    assert said in " ".join(capsys.readouterr().out.split())
    assert said in (tmp_path / "none" / "card.html").read_text()


def test_a_card_in_a_schedule_is_kept_beside_what_was_trained(tmp_path, capsys):
    words = ["simulate", "--preset", "demo", "--no-student", "--out", str(tmp_path / "both")]
    tiny = [f"{key}={value}" for key, value in TINY.items()]
    tiny += ["schedule=critic card", "tasks.card.kind=card", "tasks.card.noise_multiplier=0.2"]
    assert main([*words, *(word for one in tiny for word in ("--set", one))]) == 0
    kept = json.loads((tmp_path / "both" / "card.json").read_text())
    assert kept["spent"] > kept["epsilon"] > 0 and len(kept["statistics"]) == 17


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--expect", "sharks < 1"], "sharks"),
        ([*SMALL, "--expect", "classes[12] < 1%"], "classes[12]: name one of its bins"),
        (["--preset", "private-thickness"], "hide an attribute"),
        (["{run}"], "no release of a task of kind 'card'"),
        (["{run}", "--epsilon", "1"], "released already"),
        (["{run}", "--delta", "1e-6"], "released already"),
        (["--compare", "{run}"], "no release of a task of kind 'card'"),
    ],
)
def test_wrong_use_is_said_and_nothing_is_spent(tiny_run, tmp_path, capsys, words, says):
    where = [] if words[0] == "{run}" else ["--out", str(tmp_path / "new")]
    words = [one.format(run=tiny_run.path) for one in words]
    assert main(["card", *words, *where]) == ExitStatus.WRONG_USE
    assert says in capsys.readouterr().err
    assert not (tmp_path / "new" / "ledger.jsonl").exists()


def test_the_api_says_the_same(sound):
    folder, told = sound
    found = fedlens.read_card(folder, expect=["duplicates < 60%"])
    assert found.to_json()["statistics"] == told["statistics"]
    assert [one.outcome for one in found.verdicts] == ["holds"]
    with pytest.raises(WrongUse, match="expect"):
        fedlens.read_card(folder, expect=["nonsense"])
