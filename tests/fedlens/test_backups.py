"""A backup brings a run back as it was, and nothing else comes out of an archive."""

from __future__ import annotations

import io
import json
import shutil
import stat
import tarfile

import pytest

import fedlens
from fedlens.backups import MANIFEST, BackupError
from fedlens.cli import main
from foundation.errors import FedlensError
from server.run_directory import RunDirectory
from server.store import open_store


@pytest.fixture
def archive(tiny_run, tmp_path):
    return fedlens.backup(tiny_run.path, tmp_path / "tiny.tar")


def remade(archive, path, change):
    """A copy of an archive with ``change`` made to its files (name to content)."""
    with tarfile.open(archive) as tar:
        files = {entry.name: tar.extractfile(entry).read() for entry in tar}
    change(files)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return path


def test_a_run_comes_back_with_its_ledger_samples_and_figures(tiny_run, archive, tmp_path):
    made = fedlens.restore(archive, tmp_path / "back")
    assert made.id == tiny_run.id and made.statement() == tiny_run.statement()
    assert (made.samples().images == tiny_run.samples().images).all()
    with open_store(made.store) as here, open_store(tiny_run.store) as there:
        assert here.ledger(made.id) == there.ledger(made.id) != []
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert all(stat.S_IMODE(p.stat().st_mode) & 0o077 == 0 for p in made.path.rglob("*"))


def test_a_restored_run_that_is_not_done_goes_on_only_when_told(tiny, tmp_path):
    longer = {**tiny, "tasks.critic.rounds": 3, "privacy.epsilon_budget": 1.2}
    run = fedlens.simulate("demo", out=tmp_path / "run", settings=longer, student=False)
    done = RunDirectory.open(run.path).load_state().round
    assert done < 3  # the budget stopped it
    archive = fedlens.backup(run.path, tmp_path / "run.tar")
    shutil.rmtree(run.path)
    back = fedlens.restore(archive, tmp_path / "run")
    assert not (back.path / "place.json").exists()  # the ledger may have the lost one's inode
    with pytest.raises(FedlensError, match="only-copy"):
        fedlens.resume(back.path, student=False)
    fedlens.resume(back.path, student=False, only_copy=True)


def test_the_command_does_both(tiny_run, tmp_path, capsys):
    archive, back = tmp_path / "a.tar", tmp_path / "back"
    assert main(["backup", str(tiny_run.path), "--out", str(archive)]) == 0
    assert main(["restore", str(archive), "--out", str(back)]) == 0
    assert main(["ledger", "verify", str(back)]) == 0
    assert main(["restore", str(archive), "--out", str(back)]) == 1
    assert "is there already" in capsys.readouterr().err
    assert main(["backup", str(tiny_run.path), "--out", str(archive)]) == 1


def test_no_backup_is_made_while_a_process_trains(tiny_run, tmp_path):
    with RunDirectory.open(tiny_run.path).locked(), pytest.raises(FedlensError, match="training"):
        fedlens.backup(tiny_run.path, tmp_path / "x.tar")
    assert not (tmp_path / "x.tar").exists()


def test_damage_is_named_and_nothing_comes_back(archive, tmp_path):
    def flip(files):
        files["ledger.jsonl"] = files["ledger.jsonl"].replace(b"1", b"2", 1)

    def lose(files):
        del files["ledger.jsonl"]

    def add(files):
        files["more"] = b"x"

    def climb(files):
        files["../out"] = b"x"
        tree = json.loads(files[MANIFEST])
        tree["files"]["../out"] = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
        files[MANIFEST] = json.dumps(tree).encode()

    def version(files):
        files[MANIFEST] = json.dumps({"version": 99, "files": {}}).encode()

    for change in (flip, lose, add, climb, version):
        path = remade(archive, tmp_path / f"{change.__name__}.tar", change)
        with pytest.raises(BackupError):
            fedlens.restore(path, tmp_path / change.__name__)
        assert not (tmp_path / change.__name__).exists() and not (tmp_path / "out").exists()


def test_an_archive_cut_off_or_of_something_else_is_refused(archive, tmp_path):
    content = archive.read_bytes()
    for number, part in enumerate((content[: len(content) // 2], b"", b"junk" * 400)):
        path = tmp_path / f"{number}.tar"
        path.write_bytes(part)
        with pytest.raises(BackupError):
            fedlens.restore(path, tmp_path / str(number))


def test_a_link_in_an_archive_is_not_followed(archive, tmp_path):
    path = tmp_path / "link.tar"
    shutil.copy(archive, path)
    with tarfile.open(path, "a") as tar:
        entry = tarfile.TarInfo("config.toml")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(entry)
    with pytest.raises(BackupError, match="does not"):
        fedlens.restore(path, tmp_path / "back")
