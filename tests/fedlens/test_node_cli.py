"""`fedlens node` as an owner types it: what is printed, the exit status, and the fixes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

import fedlens
from fedlens.cli import main

CONTRACT = 'name = "ward-7"\nclasses = ["cat", "dog"]\n[image]\nside = 16\n'


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder with a contract and pictures of two people, in which the command runs."""
    source = np.random.default_rng(0)
    for label in ("cat", "dog"):
        for user in ("ann", "bob"):
            folder = tmp_path / "pictures" / label / user
            folder.mkdir(parents=True)
            for i in range(3):
                pixels = source.integers(0, 256, (20, 20), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.png")
    (tmp_path / "federation.toml").write_text(CONTRACT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def node(capsys, *words):
    """Exit status, standard output and standard error of a command."""
    status = main(["node", *words])
    told = capsys.readouterr()
    return status, told.out, told.err


PREPARE = ("prepare", "pictures", "--federation", "federation.toml", "--out", "store")


def test_an_owner_looks_prepares_and_checks(place, capsys):
    status, out, err = node(capsys, "check", "pictures", "--federation", "federation.toml")
    assert (status, err) == (0, "")
    assert "12 records of 2 users, 16 x 16 grey" in out
    status, out, _ = node(capsys, *PREPARE, "--json")
    assert status == 0
    told = json.loads(out.splitlines()[-1])
    assert (told["records"], told["users"], told["classes"]) == (12, 2, {"cat": 6, "dog": 6})
    assert f"data={place / 'store'}" in out
    assert (place / "store.secret").stat().st_mode & 0o777 == 0o600
    assert Image.open(place / "store" / "looks.png").size[0] > 100
    status, out, err = node(capsys, "check", "store", "--federation", "federation.toml")
    assert (status, err) == (0, "")


def test_faults_are_named_with_their_place_and_end_with_1(place, capsys):
    (place / "pictures" / "cat" / "ann" / "1.png").write_bytes(b"no")
    look = ("check", "pictures", "--federation", "federation.toml")
    status, out, err = node(capsys, *look, "--json")
    assert status == 1
    assert (
        err
        == "wrong: left out, no picture of a known kind, whatever its name says: 1: cat/ann/1.png\n"
    )
    assert json.loads(out.splitlines()[-1])["faults"]
    assert "left out" not in "".join(out.splitlines()[:-1]), "a fault is told once"
    (place / "federation.toml").write_text(CONTRACT.replace('"dog"', '"horse"'))
    status, _, err = node(capsys, "check", "pictures", "--federation", "federation.toml")
    assert status == 1 and "labels 'dog' (6)" in err and "dog/ann/0.png" in err
    status, out, _ = node(capsys, *PREPARE, "--map", "dog=horse")
    assert status == 0 and "horse 6" in out


def test_a_store_under_an_old_contract_is_said(place, capsys):
    node(capsys, *PREPARE)
    (place / "federation.toml").write_text(CONTRACT + "colour = true\n")
    status, _, err = node(capsys, "check", "store", "--federation", "federation.toml")
    assert status == 1 and "another contract" in err
    status, _, err = node(capsys, *PREPARE)
    assert status == 1 and "--replace a store" in err
    assert node(capsys, *PREPARE, "--replace")[0] == 0
    assert node(capsys, "check", "store", "--federation", "federation.toml")[0] == 0


def test_owners_find_whom_both_have(place, capsys):
    assert node(capsys, "secret", "owners.secret")[0] == 0
    assert node(capsys, "secret", "owners.secret")[0] == 2
    shared = ("--owners-secret", "owners.secret")
    node(capsys, *PREPARE, *shared)
    status, out, err = node(capsys, "overlap", "store", "store/fingerprints.bin", "--json")
    assert status == 1 and json.loads(out.splitlines()[-1]) == {"shared": 2} and "--without" in err
    status, _, err = node(
        capsys, *PREPARE, *shared, "--replace", "--without", "store/fingerprints.bin"
    )
    assert status == 1 and "12 left out: a user of the other node" in err
    assert node(capsys, "check", "store")[0] == 0  # what was there is still there


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("check", "pictures"), 2, "name --federation FILE"),
        (("check", "nothing", "--federation", "federation.toml"), 1, "does not exist"),
        ((*PREPARE, "--map", "cat"), 2, "write OWN=AGREED"),
        ((*PREPARE, "--map", "cat=horse"), 2, "not among the agreed names cat, dog"),
        ((*PREPARE, "--user", "patient"), 1, "there are file, label, user"),
        ((*PREPARE, "--format", "tre"), 2, "did you mean 'tree'"),
        (("overlap", "pictures", "nothing"), 1, "cannot be read"),
    ],
)
def test_wrong_use_is_one_line_with_the_fix(place, capsys, words, status, said):
    found, _, err = node(capsys, *words)
    assert found == status
    assert said in err and err.count("\n") == 1 and err.startswith("fedlens: ")


def test_the_same_in_python(place):
    one_person = fedlens.NodePreparation(owner="one")
    report = fedlens.prepare_node("pictures", "store", "federation.toml", one_person)
    assert (report.users, report.held) == (1, (12, 12, 12))
    found, faults = fedlens.check_node("store")
    assert faults == [] and found.records == 12
    with pytest.raises(fedlens.WrongUse, match="give one or each"):
        fedlens.check_node("pictures", "federation.toml", fedlens.NodePreparation(owner="both"))


def test_what_was_asked_for_is_no_fault(place, capsys):
    look = ("check", "pictures", "--federation", "federation.toml", "--map", "dog=-")
    status, out, err = node(capsys, *look)
    assert (status, err) == (0, "")
    assert "left out, label 'dog', as --map says: 6" in out
    (place / "pictures" / "cat" / "ann" / "1.png").write_bytes(b"no")
    status, _, err = node(capsys, *look)
    assert status == 1 and err.count("wrong: ") == 1


def test_nothing_is_made_under_a_contract_that_is_none(place, capsys):
    (place / "federation.toml").write_text("name = ")
    before = sorted(path.name for path in place.iterdir())
    status, _, err = node(capsys, *PREPARE)
    assert status == 1 and "is not TOML" in err
    assert sorted(path.name for path in place.iterdir()) == before
    (place / "federation.toml").write_text(CONTRACT)
    deep = (*PREPARE[:-1], "some/where/store")
    assert node(capsys, *deep)[0] == 0
    assert (place / "some" / "where" / "store.secret").is_file()
