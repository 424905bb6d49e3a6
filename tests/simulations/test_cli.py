"""The command as a person types it: output, exit status, one clear line for every mistake."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image

from fedlens import cli
from fedlens.cli import VERBS, build_parser, main

FAST = """
schedule = "critic"
[data]
users = 30
nodes = 2
samples_per_user = 4
[privacy]
delta = 1e-3
[tasks.critic]
kind = "frozen"
rounds = 2
noise_multiplier = 3.0
generator_steps = 2
[generator]
batch = 20
width = 8
[release]
samples = 20
strip = 1
agreement = 0.0
"""
KEYS = {
    "run_id", "rounds", "users", "epsilon", "delta", "student_accuracy", "store",
    "contact_sheet", "ledger_entries", "releases", "model_sha256",
}  # fmt: skip


@pytest.fixture
def fast(tmp_path: Path) -> list[str]:
    """Arguments of a run that takes a second."""
    path = tmp_path / "fast.toml"
    path.write_text(FAST)
    return ["simulate", "--config", str(path), "--no-student"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """That run, trained once."""
    folder = tmp_path_factory.mktemp("cli")
    (folder / "fast.toml").write_text(FAST)
    words = ["simulate", "--config", str(folder / "fast.toml"), "--no-student"]
    assert main([*words, "--out", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def finished(trained, tmp_path) -> Path:
    """A copy of it, to change."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    try:
        status = main([str(a) for a in arguments])
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_simulate_then_everything_else(capsys, fast, tmp_path):
    out = tmp_path / "run"
    status, printed, errors = run(capsys, *fast, "--out", out, "--json")
    assert status == 0 and errors == ""
    summary = json.loads(printed.splitlines()[-1])
    assert set(summary) >= KEYS
    assert set(summary["epsilon"]) >= {"dp", "bdp_as_published", "bdp_corrected"}
    assert summary["rounds"] == summary["ledger_entries"] == summary["releases"] == 2
    assert summary["users"] == 30 and summary["delta"] == {"dp": 1e-3, "bdp": 1e-10}
    assert all(math.isfinite(v) and v > 0 for v in summary["epsilon"].values())
    assert Image.open(summary["contact_sheet"]).size[0] == 10 * 28 * 2
    assert Image.open(summary["plots"]).size[0] > 300
    assert f"dashboard {out}" in printed

    status, printed, _ = run(capsys, "ledger", "verify", out, "--json")
    assert status == 0 and json.loads(printed.splitlines()[-1])["entries"] == 2
    status, printed, _ = run(capsys, "ledger", "show", out)
    assert status == 0 and "2 entries" in printed and "Bayesian" in printed

    sheet = tmp_path / "round-1.png"
    assert run(capsys, "samples", out, "--round", 1, "--png", sheet)[0] == 0
    beside, archive = tmp_path / "beside.png", tmp_path / "faithful.zip"
    assert run(capsys, "samples", out, "--beside", out, "--png", beside)[0] == 0
    assert Image.open(beside).size[0] > 3 * 280
    drawn = run(capsys, "samples", out, "--kind", "faithful", "--export", archive)
    assert drawn[0] == 0 and "faithful.png" in drawn[1] and zipfile.is_zipfile(archive)
    status, _, errors = run(capsys, "samples", out, "--export", tmp_path / "faithful.tar")
    assert status == 2 and ".zip" in errors
    assert Image.open(sheet).size[0] == 560
    status, printed, _ = run(capsys, "student", out, "--images", 200, "--epochs", 1, "--json")
    found = json.loads(printed.splitlines()[-1])
    assert status == 0 and 0 <= found["student_accuracy"] <= 1 and "simulation only" in printed

    status, printed, _ = run(capsys, "db", "check", "--store", summary["store"])
    assert status == 0 and "revision" in printed
    status, printed, _ = run(capsys, "resume", out, "--no-student", "--json")
    again = json.loads(printed.splitlines()[-1])
    assert status == 0 and again["model_sha256"] == summary["model_sha256"]
    assert again["ledger_entries"] == again["releases"] == 2


def test_a_run_without_noise_has_no_finite_figure_and_says_so(capsys, fast, tmp_path):
    arguments = [
        *fast,
        "--set",
        "tasks.critic.noise_multiplier=0",
        "--out",
        tmp_path / "open",
        "--json",
    ]
    status, printed, _ = run(capsys, *arguments)
    summary = json.loads(printed.splitlines()[-1])
    assert status == 0 and "NOT PRIVATE" in printed and "infinite" in printed
    assert set(summary["epsilon"].values()) == {None} and summary["private"] is False


def test_a_budget_ends_a_run_with_status_3(capsys, fast, tmp_path):
    arguments = [*fast, "--out", tmp_path / "run", "--json", "--set"]
    status, printed, _ = run(capsys, *arguments, "privacy.epsilon_budget=1.2")
    summary = json.loads(printed.splitlines()[-1])
    assert status == 3 and summary["rounds"] == 1 and summary["status"] == "stopped-by-budget"
    assert summary["epsilon"]["dp"] <= 1.2
    status, printed, _ = run(capsys, "resume", tmp_path / "run", "--no-student", "--json")
    assert status == 3 and json.loads(printed.splitlines()[-1])["ledger_entries"] == 1


MISTAKES = [
    (["--set", "tasks.critic.sampling_rat=1"], 2, "did you mean 'tasks.critic.sampling_rate'"),
    (["--set", "tasks.critic.sampling_rate=0"], 2, "tasks.critic.sampling_rate = 0 "),
    (["--set", "tasks.critic.noise_multiplier=-1"], 2, "tasks.critic.noise_multiplier = -1 "),
    (["--set", "tasks.critic.noise_multiplier=1e-7"], 2, "tasks.critic.noise_multiplier = 1e-07"),
    (["--set", "privacy.bayesian_delta=1e-300"], 2, "privacy.bayesian_delta = 1e-300"),
    (["--set", "seed=99999999999999999999"], 2, "below 4611686018427387904"),
    (["--set", "nonsense"], 2, "KEY=VALUE"),
    (["--preset", "nonsense"], 2, "choose one of"),
    (["--config", "/nowhere/x.toml"], 2, "/nowhere/x.toml"),
    (["--set", "data.name=nonsense"], 1, "there is no data set 'nonsense'"),
    (["--set", "data.users=5000", "--set", "privacy.delta=1e-5"], 1, "5000 users"),
    (["--set", "data.name=npz:/nowhere.npz"], 1, "/nowhere.npz"),
    (["--out", "/proc/nowhere/run"], 1, "cannot write to /proc/nowhere/run"),
    (["--transport", "pigeon"], 2, "pigeon"),
]


@pytest.mark.parametrize(("arguments", "status", "words"), MISTAKES)
def test_a_mistake_gives_one_clear_line_and_no_traceback(
    capsys, fast, tmp_path, arguments, status, words
):
    got, _, errors = run(capsys, *fast, "--out", tmp_path / "run", *arguments)
    assert got == status and words in errors and "Traceback" not in errors
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["resume", "samples", "student"])
def test_verbs_over_a_directory_without_a_run_say_so(capsys, tmp_path, verb):
    status, _, errors = run(capsys, verb, tmp_path)
    assert status == 1 and "holds no run" in errors


def test_an_existing_run_is_not_overwritten_unasked(capsys, fast, finished, tmp_path):
    status, _, errors = run(capsys, *fast, "--out", tmp_path / "run")
    assert status == 1 and "holds a run already" in errors and "resume" in errors
    assert run(capsys, *fast, "--out", tmp_path / "run", "--overwrite")[0] == 0
    assert run(capsys, "ledger", "verify", tmp_path / "run.old-1")[0] == 0  # kept, not deleted


def test_a_folder_with_other_files_is_left_alone(capsys, fast, tmp_path):
    other = tmp_path / "thesis"
    other.mkdir()
    (other / "config.toml").write_text("title = 'mine'")
    status, _, errors = run(capsys, *fast, "--out", other, "--overwrite")
    assert status == 1 and "holds other files" in errors
    assert [path.name for path in other.iterdir()] == ["config.toml"]


@pytest.mark.law("access: no secret is stored or logged")
def test_a_stores_password_is_neither_written_nor_shown(tmp_path):
    from fedlens.server.config.tree import Config
    from fedlens.server.run.directory import RunDirectory, RunDirectoryError

    directory = RunDirectory.create(tmp_path / "run", Config())
    directory.remember_store("postgresql://ann:pa55word@db.example/fedlens")
    assert not [
        p for p in directory.path.rglob("*") if p.is_file() and b"pa55word" in p.read_bytes()
    ]
    with pytest.raises(RunDirectoryError, match="--store postgresql://ann:"):
        directory.remembered_store()


def test_a_named_store_is_found_again(capsys, fast, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(capsys, *fast, "--out", "run", "--store", "sqlite:///shared.db")[0] == 0
    assert (tmp_path / "shared.db").exists() and not (tmp_path / "run" / "store.db").exists()
    monkeypatch.chdir("/")
    assert run(capsys, "samples", tmp_path / "run")[0] == 0
    assert run(capsys, "ledger", "verify", tmp_path / "run")[0] == 0


def test_a_tampered_ledger_fails_verification_by_line(capsys, finished):
    ledger = finished / "ledger.jsonl"
    lines = ledger.read_text().splitlines(keepends=True)
    ledger.write_text(lines[0] + lines[1].replace("3.0", "9.0") + lines[2])
    status, _, errors = run(capsys, "ledger", "verify", finished)
    assert status == 1 and "line 2" in errors
    ledger.write_text("".join(lines[:2]))
    status, _, errors = run(capsys, "ledger", "verify", finished)
    assert status == 1 and "ledger.jsonl" in errors


def test_a_store_of_another_version_is_named_with_the_fix(capsys, finished):
    import sqlite3

    with sqlite3.connect(finished / "store.db") as connection:
        connection.execute("UPDATE fedlens_version SET version_num = 'future'")
    status, _, errors = run(capsys, "samples", finished)
    assert status == 1 and "future" in errors
    assert run(capsys, "db", "check", "--store", finished / "store.db")[0] == 1


def test_every_verb_has_help_with_an_example(capsys):
    status, printed, _ = run(capsys, "--help")
    assert status == 0 and all(verb in printed for verb in VERBS)
    for verb in VERBS:
        status, printed, _ = run(capsys, verb, "--help")
        assert status == 0 and re.search(rf"examples?:\s+fedlens {verb} ", printed)


SCHEDULE = "--sampling-rate 0.01 --noise-multiplier 1 --rounds 10 --delta 1e-5"
HEAVY = ("torch", "flwr", "pydantic", "sqlalchemy", "streamlit", "scipy.optimize")


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("", ("numpy",)),
        ("--version", ("numpy",)),
        ("--help", ("numpy",)),
        ("budget --help", ("numpy",)),
        ("ledger --help", ("numpy",)),
        (f"budget {SCHEDULE}", ()),
        (f"calibrate --epsilon 1 {SCHEDULE.replace('--noise-multiplier 1', '')}", ()),
    ],
)
def test_what_looks_at_no_run_loads_nothing_heavy(command, more):
    """Such a command answers at once: a verb brings only what it needs itself."""
    code = (
        "import sys; from fedlens.cli import main\n"
        "try: status = main(sys.argv[1:])\n"
        "except SystemExit as end: status = end.code\n"
        f"loaded = {{*{(*HEAVY, *more)}}} & {{*sys.modules}}\n"
        "sys.exit(repr(loaded) if loaded else status)"
    )
    subprocess.run([sys.executable, "-c", code, *command.split()], check=True, env={**os.environ})


def test_the_help_is_the_same_whether_all_verbs_are_built_or_one():
    assert build_parser("budget").format_help() == build_parser().format_help()


def test_the_package_runs_as_a_module_too():
    """The installed command itself is run in a terminal below."""
    command = [sys.executable, "-m", "fedlens", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.strip().startswith("fedlens ")


def test_a_terminal_shows_rounds_both_figures_and_the_time_left(fast, tmp_path):
    import pty

    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).parent / "fedlens"), *fast, "--out", str(tmp_path / "run")]
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is gone when the process is
            while part := os.read(ours, 65536):
                shown += part
    os.close(ours)
    text = shown.decode()
    assert process.returncode == 0
    assert "round 2/2" in text and "DP ε 1.27" in text and "Bayesian ε" in text and "0:00:0" in text


def test_every_flag_has_a_help_text():
    parser = build_parser()
    (verbs,) = [a for a in parser._actions if a.dest == "verb"]
    for verb, sub in verbs.choices.items():
        for action in sub._actions:
            positional = not action.option_strings
            assert action.help or positional or action.dest == "transport", (verb, action.dest)


def test_alone_it_prints_help_and_all_is_well(capsys):
    status, printed, errors = run(capsys)
    assert status == 0 and errors == "" and "examples:" in printed and "simulate" in printed


def test_it_knows_its_version(capsys):
    from importlib.metadata import version

    assert run(capsys, "--version") == (0, f"fedlens {version('fedlens')}\n", "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_shells_get_a_script_that_knows_every_verb(capsys, shell):
    status, printed, _ = run(capsys, "completion", shell)
    assert status == 0 and all(verb in printed for verb in VERBS)


def test_bash_takes_the_script(capsys):
    _, printed, _ = run(capsys, "completion", "bash")
    subprocess.run(["bash", "-n"], input=printed, text=True, check=True)


def parsers(parser=None, words=()):
    """Every parser that does something, with the words that lead to it."""
    parser = parser or build_parser()
    subs = [a.choices for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for choices in subs:
        for word, sub in choices.items():
            yield from parsers(sub, (*words, word))
    if words:
        yield words, parser


def test_every_help_has_an_example():
    for words, parser in parsers():
        said = parser.format_help()
        assert re.search(r"examples?:\s+fedlens", said) and "%%" not in said, words


SILENT = {
    ("backup",),
    ("completion",),
    ("dashboard",),
    ("deploy", "code"),
    ("deploy", "init"),
    ("deploy", "operator"),
    ("deploy", "renew"),
    ("deploy", "start"),
    ("deploy", "stop"),
    ("ledger", "export"),
    ("node", "secret"),
    ("restore",),
}
"""What serves, prints or writes files, and computes nothing."""


def test_every_verb_that_computes_can_answer_in_json():
    for words, parser in parsers():
        if "run" not in parser._defaults:
            continue
        flags = {flag for action in parser._actions for flag in action.option_strings}
        assert ("--json" in flags) != (words in SILENT), words


def test_a_system_that_is_not_posix_is_refused_in_one_line(monkeypatch, capsys):
    monkeypatch.setattr(cli, "os", SimpleNamespace(name="nt"))
    assert main(["budget", "--help"]) == 2
    assert "POSIX" in capsys.readouterr().err
