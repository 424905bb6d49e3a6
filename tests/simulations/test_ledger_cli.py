"""``fedlens ledger`` and ``fedlens population`` as a person types them."""

from __future__ import annotations

import csv
import hashlib
import json
import shutil

import pytest

from fedlens.accountant.ledger.export import COLUMNS
from fedlens.accountant.ledger.population import Population
from fedlens.cli import main
from fedlens.server.ledger.population import population_folder

BUDGET = "2.18"
"""Four rounds and not five, by each of the accountants: 1.91 or 2.17, and 2.19 or 2.48."""
WARD = "2.25"
"""The same for a filter."""
SETTINGS = (
    "schedule=critic", "tasks.critic.kind=frozen", "release.agreement=0.0",
    "data.users=30", "data.nodes=2", "data.samples_per_user=4", "tasks.critic.noise_multiplier=3.0",
    "privacy.delta=1e-3", "tasks.critic.rounds=3", "tasks.critic.generator_steps=1",
    "generator.batch=20",
    "generator.width=8", "release.samples=20", "release.strip=1",
)  # fmt: skip


def run(capsys, *arguments):
    try:
        status = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def last(printed):
    return json.loads(printed.splitlines()[-1])


def simulate(capsys, out, *settings):
    chosen = [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
    return run(capsys, "simulate", "--no-student", "--json", "--out", out, *chosen)


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two runs of one population, and one that is alone; tests use copies."""
    home = tmp_path_factory.mktemp("trained")
    terms = ("--epsilon", "50", "--delta", "1e-3", "--unit", "user", "--json")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDLENS_HOME", str(home / "home"))
        assert main(["population", "create", "clinic", *terms]) == 0
        for name, more in (
            ("run", ["--set", "privacy.population=clinic"]),
            ("second", ["--set", "privacy.population=clinic"]),
            ("alone", []),
        ):
            chosen = [word for setting in SETTINGS for word in ("--set", setting)]
            command = ["simulate", "--no-student", "--out", str(home / name), *chosen, *more]
            assert main(command) == 0
    return home


@pytest.fixture
def place(trained, tmp_path):
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    for name in ("run", "second", "alone"):
        (tmp_path / name / "store-url").unlink(missing_ok=True)
    return tmp_path


def rewrite(path, change):
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


TAMPERING = {
    "edit": (lambda x, y: [*x[:2], x[2].replace(b"3.0", b"9.0"), *x[3:]], 3),
    "delete": (lambda x, y: [*x[:2], *x[3:]], 3),
    "reorder": (lambda x, y: [x[0], x[2], x[1], *x[3:]], 2),
    "truncate": (lambda x, y: x[:-1], 4),
    "cut within": (lambda x, y: [*x[:-1], x[-1][:-9]], 4),
    "duplicate": (lambda x, y: [*x[:3], x[2], *x[3:]], 4),
    "splice": (lambda x, y: [*x[:2], y[2], *x[3:]], 3),
    "replace": (lambda x, y: y, 4),
}


@pytest.mark.parametrize("name", TAMPERING)
@pytest.mark.parametrize("verb", ["verify", "show", "export"])
def test_tampering_ends_every_verb_with_status_1_and_the_line(capsys, place, name, verb):
    change, line = TAMPERING[name]
    other = (place / "second" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    rewrite(place / "run" / "ledger.jsonl", lambda lines: change(lines, other))
    status, printed, errors = run(capsys, "ledger", verb, place / "run")
    assert (status, printed) == (1, "")
    assert f"ledger.jsonl: line {line}: " in errors and errors.count("\n") == 1


@pytest.mark.parametrize("name", [n for n in TAMPERING if n not in ("truncate", "replace")])
def test_a_population_that_was_tampered_with_is_named_with_its_line(capsys, place, name):
    change, line = TAMPERING[name]
    folder = population_folder("clinic")
    other = (place / "second" / "ledger.jsonl").read_bytes().splitlines(keepends=True)
    rewrite(folder / "ledger.jsonl", lambda lines: change(lines, other))
    line = line + 3 if name == "cut within" else line  # both runs' rounds are in it
    for command in (
        ("population", "verify", "clinic"),
        ("population", "show", "clinic"),
        ("ledger", "verify", place / "run"),
    ):
        status, _, errors = run(capsys, *command)
        assert status == 1 and f"clinic/ledger.jsonl: line {line}: " in errors
    status, _, errors = simulate(capsys, place / "third", "privacy.population=clinic")
    if name == "cut within":  # what a crash leaves, but for a line that was known to be written
        assert status == 1 and "were written on this machine" in errors
        shutil.rmtree(folder.parent.parent / "heads")
        assert simulate(capsys, place / "third", "privacy.population=clinic")[0] == 0
    else:
        assert status == 1 and f"line {line}: " in errors and not (place / "third").exists()


def test_a_run_whose_grants_are_missing_does_not_verify(capsys, place):
    folder = population_folder("clinic")
    rewrite(folder / "ledger.jsonl", lambda lines: lines[:5])
    for action in ("show", "verify"):  # or it would show more left than there is
        status, _, errors = run(capsys, "population", action, "clinic")
        assert status == 1 and "were written on this machine" in errors
    shutil.rmtree(folder.parent.parent / "heads")  # as on a machine that did not write it
    assert run(capsys, "ledger", "verify", place / "run")[0] == 0
    status, _, errors = run(capsys, "ledger", "verify", place / "second")
    assert status == 1 and "no entry for round 2" in errors


def test_verify_says_what_agreed(capsys, place):
    status, printed, _ = run(capsys, "ledger", "verify", place / "run", "--json")
    assert status == 0 and "3 of them mirrored" in printed and "population clinic" in printed
    assert last(printed)["entries"] == 3
    status, printed, _ = run(capsys, "ledger", "verify", place / "alone")
    assert status == 0 and "population" not in printed


def test_reading_changes_nothing(capsys, place):
    before = {p: p.read_bytes() for p in place.rglob("*.jsonl")}
    for verb in ("show", "verify", "export"):
        assert run(capsys, "ledger", verb, place / "run")[0] == 0
    assert {p: p.read_bytes() for p in place.rglob("*.jsonl")} == before


def test_an_export_has_every_line_and_both_accounts_and_nothing_private(capsys, place):
    status, printed, _ = run(capsys, "ledger", "export", place / "run")
    export = last(printed)
    assert status == 0 and export["format"] == "fedlens-export-1"
    ledger = place / "run" / "ledger.jsonl"
    lines = [export["ledger"]["header"], *export["ledger"]["entries"]]
    assert [line["line"] for line in lines] == ledger.read_text().splitlines()
    for line in lines:
        assert json.loads(line["line"]) == line["record"]
    assert export["ledger"]["head"] == lines[-1]["record"]["sha256"]
    assert export["mechanisms"] == [
        {"kind": "gaussian", "sampling_rate": 1.0, "noise": 3.0, "count": 3}
    ]
    figures = export["figures"]
    assert figures["dp_epsilon"] > 0 and figures["bdp_sound"] > 0 and figures["delta_dp"] == 1e-3
    assert figures["rounds"] == 3 and "differential privacy" in export["statement"]
    together = export["population"]
    runs = [entry["record"]["run"] for entry in together["ledger"]["entries"]]
    own = export["ledger"]["header"]["record"]["header"]["run_id"]
    assert len(runs) == 6 and runs.count(own) == 3
    assert together["figures"]["dp_epsilon"] > figures["dp_epsilon"]
    evidence = (place / "run" / "evidence.jsonl").read_text()
    for line in evidence.splitlines():
        assert json.loads(line)["salt"] not in printed
    assert '"histogram"' not in printed and "salt" not in printed and str(place) not in printed


@pytest.mark.parametrize(
    ("out", "said"), [("nowhere/a.json", "there is no folder"), (".", "is a folder")]
)
def test_an_export_that_has_no_place_names_the_argument(capsys, place, tmp_path, out, said):
    status, _, errors = run(capsys, "ledger", "export", place / "run", "--out", str(tmp_path / out))
    assert status == 2 and "--out" in errors and said in errors and ".part" not in errors


def test_an_export_of_a_run_without_noise_has_null_for_infinity(capsys, tmp_path):
    assert simulate(capsys, tmp_path / "open", "tasks.critic.noise_multiplier=0.0")[0] == 0
    status, printed, _ = run(capsys, "ledger", "export", tmp_path / "open")
    assert status == 0 and last(printed)["figures"]["dp_epsilon"] is None


def test_the_table_holds_the_same(capsys, place):
    target = place / "export.csv"
    status, printed, _ = run(
        capsys, "ledger", "export", place / "run", "--format", "csv", "--out", target
    )
    assert status == 0 and str(target) in printed
    with target.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    ours = [row for row in rows if row["ledger"] == "run"]
    lines = [row["line"] for row in ours if row["what"] in ("header", "entry")]
    assert lines == (place / "run" / "ledger.jsonl").read_text().splitlines()
    for row in (row for row in rows if row["what"] == "entry"):
        body = row["line"][: row["line"].rindex(',"sha256":')] + "}"
        assert hashlib.sha256(body.encode()).hexdigest() == row["sha256"]
        assert float(row["priced_noise"]) == float(row["noise_multiplier"]) == 3.0
    figures = {row["name"]: row["value"] for row in ours if row["what"] == "figure"}
    assert float(figures["dp_epsilon"]) > 0
    assert [row["what"] for row in rows].count("statement") == 1
    assert sum(row["ledger"] == "population" and row["what"] == "entry" for row in rows) == 6


def test_a_population_is_made_shown_and_spent(capsys, tmp_path):
    terms = ("--epsilon", WARD, "--delta", "1e-3", "--unit", "user", "--users", "30")
    status, printed, _ = run(capsys, "population", "create", "ward", *terms, "--json")
    assert status == 0 and last(printed)["epsilon_budget"] == float(WARD)
    assert "DP ε ≤ 2.25 and Bayesian DP ε ≤ 2.25" in printed and "it pays for" in printed
    status, printed, _ = simulate(capsys, tmp_path / "a", "privacy.population=ward")
    a = last(printed)
    assert (status, a["rounds"]) == (0, 3)
    used = (
        "Population ward, over all its runs: 74.2% of its budget used, DP ε ≤ 2.25 and so Bayesian"
    )
    assert used in printed and "(ε = 1.61 so far, if none was chosen by" in printed
    status, printed, _ = simulate(capsys, tmp_path / "b", "privacy.population=ward")
    b = last(printed)
    assert (status, b["rounds"]) == (3, 1)
    assert b["status"] == "stopped-by-budget" and "'ward'" in b["stopped"]
    status, printed, _ = run(capsys, "population", "show", "ward", "--json")
    shown = last(printed)
    assert status == 0 and shown["spent"]["epsilon"] <= float(WARD)
    assert shown["share_spent"] <= 1 and shown["order"] > 1
    assert sum(share["rounds"] for share in shown["runs"]) == a["rounds"] + b["rounds"]
    assert a["run_id"] in printed and shown["rounds_left"] == 0
    lines = {line.partition(" ")[0]: line for line in printed.splitlines()}
    assert float(lines["used"].split()[1].rstrip("%")) >= 100 * shown["share_spent"]
    assert f"at order {shown['order']:g} of its filter: this alone decides" in lines["used"]
    assert "DP ε ≤ 2.25 and Bayesian DP ε ≤ 2.25" in lines["budget"]
    assert "if no run's settings were chosen by" in lines["spent"]
    status, printed, _ = run(capsys, "population", "verify", "ward", "--json")
    assert status == 0 and last(printed)["head"] == shown["head"]
    status, _, _ = run(
        capsys, "simulate", "--out", tmp_path / "a", "--overwrite", "--no-student",
        *[w for s in (*SETTINGS, "privacy.population=ward") for w in ("--set", s)],
    )  # fmt: skip
    assert status == 3
    assert len(Population.read(population_folder("ward")).ledger) == shown["entries"]


TERMS = {"--epsilon": "2", "--delta": "1e-3", "--unit": "user"}


@pytest.mark.parametrize(
    ("name", "changes", "status", "words"),
    [
        ("../up", {}, 2, "NAME '../up'"),
        ("", {}, 2, "NAME ''"),
        ("x", {"--epsilon": "0"}, 2, "epsilon = 0.0"),
        ("x", {"--epsilon": "inf"}, 2, "epsilon = inf"),
        ("x", {"--delta": "2"}, 2, "delta = 2.0"),
        ("x", {"--users": "5000"}, 2, "1/N for N = 5000"),
        ("x", {"--unit": "family"}, 2, "family"),
        ("/proc/nowhere", {}, 1, "/proc/nowhere"),
    ],
)
def test_terms_that_cannot_be_used_are_told_in_one_line(capsys, name, changes, status, words):
    terms = [word for pair in {**TERMS, **changes}.items() for word in pair]
    found, _, errors = run(capsys, "population", "create", name, *terms)
    assert found == status and words in errors and "Traceback" not in errors


def test_a_population_that_is_not_there_leaves_no_run_behind(capsys, tmp_path):
    status, _, errors = simulate(capsys, tmp_path / "run", "privacy.population=nowhere")
    assert status == 1 and "fedlens population create" in errors
    assert not (tmp_path / "run").exists()


def test_parts_that_a_population_cannot_pay_leave_no_run_behind(capsys, tmp_path):
    terms = ("--epsilon", BUDGET, "--delta", "1e-3", "--unit", "user")
    assert run(capsys, "population", "create", "ward", *terms)[0] == 0
    settings = (
        "privacy.population=ward",
        "schedule=critic annotator",
        "tasks.annotator.kind=annotator",
        "tasks.annotator.rounds=5",
        "tasks.annotator.noise_multiplier=3.0",
    )
    status, _, errors = simulate(capsys, tmp_path / "run", *settings)
    assert status == 1 and "in its task 'annotator'" in errors and "Traceback" not in errors
    assert not (tmp_path / "run").exists()
