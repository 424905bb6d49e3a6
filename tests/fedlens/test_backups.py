"""A backup brings a run back as it was, and nothing else comes out of an archive."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import stat
import tarfile

import pytest

import fedlens
from fedlens.api.backups import MANIFEST, BackupError
from fedlens.cli import main
from fedlens.foundation.errors import FedlensError
from fedlens.server.round.step import PrivateStep
from fedlens.server.run.directory import RunDirectory
from fedlens.store import open_store

pytestmark = pytest.mark.law("crashes: a backup comes back whole or not at all")


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
    assert json.loads((back.path / "place.json").read_text()) == {}  # not the lost one's inode
    with pytest.raises(FedlensError, match="only-copy"):
        fedlens.resume(back.path, student=False)
    fedlens.resume(back.path, student=False, only_copy=True)


def test_one_from_before_its_first_round_goes_on_only_when_told_too(tiny, tmp_path, monkeypatch):
    """It has its run id already, so two of them would draw noise under one."""

    def cut(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PrivateStep, "gather", cut)
        with pytest.raises(KeyboardInterrupt):
            fedlens.simulate("demo", out=tmp_path / "run", settings=tiny, student=False)
    archive = fedlens.backup(tmp_path / "run", tmp_path / "run.tar")
    back = fedlens.restore(archive, tmp_path / "back")
    monkeypatch.setattr(PrivateStep, "gather", lambda *_: pytest.fail("nodes were asked"))
    with pytest.raises(FedlensError, match="only-copy"):
        fedlens.resume(back.path, student=False)


def test_who_was_signed_in_is_signed_out_in_what_comes_back(tiny_run, tmp_path, capsys):
    """Else an old backup opens a session that was ended since."""
    archive = tmp_path / "a.tar"
    with open_store(tiny_run.store) as store:
        ann = store.add_account("ann", "annotator", "correct horse", actor="test")
        session = store.sign_in(ann, 3600)
    assert main(["backup", str(tiny_run.path), "--out", str(archive)]) == 0
    assert main(["restore", str(archive), "--out", str(tmp_path / "back")]) == 0
    assert "all signed out" in capsys.readouterr().out
    with open_store(fedlens.open_run(tmp_path / "back").store) as store:
        assert store.signed_in(session) is None
        assert [one.name for one in store.accounts()] == ["ann"]


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


# Stores elsewhere


@pytest.fixture
def elsewhere(archive, tmp_path):
    """An archive that says that its store is another one."""

    def add(files):
        note = b"postgresql://someone@elsewhere.example/theirs"
        files["store-url"] = note
        tree = json.loads(files[MANIFEST])
        tree["files"]["store-url"] = hashlib.sha256(note).hexdigest()
        files[MANIFEST] = json.dumps(tree).encode()

    return remade(archive, tmp_path / "elsewhere.tar", add)


def test_an_archives_word_for_a_store_elsewhere_is_not_taken(elsewhere, tmp_path, monkeypatch):
    monkeypatch.delenv("FEDLENS_STORE", raising=False)
    with pytest.raises(
        BackupError, match=r"elsewhere\.example/theirs' as the run's .* --store URL"
    ):
        fedlens.restore(elsewhere, tmp_path / "back")
    assert not (tmp_path / "back").exists() and not (tmp_path / "back.part").exists()


def test_the_store_that_the_operator_names_is_noted_in_its_place(elsewhere, tmp_path, capsys):
    named, back = tmp_path / "mine.db", tmp_path / "back"
    command = ["restore", str(elsewhere), "--out", str(back), "--store"]
    assert main([*command, "x://else/where"]) == 1
    assert "kind x is not supported" in capsys.readouterr().err and not back.exists()
    assert main([*command, str(named)]) == 0
    assert fedlens.open_run(back).store == f"sqlite:///{named}" and not named.exists()
    assert "elsewhere" not in (back / "store-url").read_text()


def test_the_environment_names_the_store_and_a_runs_own_needs_no_note(
    elsewhere, archive, tmp_path, monkeypatch
):
    monkeypatch.setenv("FEDLENS_STORE", str(tmp_path / "ours.db"))
    fedlens.restore(elsewhere, tmp_path / "a")
    fedlens.restore(archive, tmp_path / "b")
    monkeypatch.delenv("FEDLENS_STORE")
    assert fedlens.open_run(tmp_path / "a").store == f"sqlite:///{tmp_path / 'ours.db'}"
    back = fedlens.restore(elsewhere, tmp_path / "c", store=str(tmp_path / "c" / "store.db"))
    for own in (back, fedlens.open_run(tmp_path / "b")):
        assert own.store == f"sqlite:///{own.path / 'store.db'}" and own.samples()
        assert not (own.path / "store-url").exists()


# Hostile archives


def listed(path, entries, hashes=None, head=b""):
    """An archive of entries (a `TarInfo` and its content), all of which its list names."""
    hashes = hashes or {e.name: hashlib.sha256(content).hexdigest() for e, content in entries}
    manifest = json.dumps({"version": 1, "files": hashes}).encode()
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        first = tarfile.TarInfo(MANIFEST)
        first.size = len(head or manifest)
        tar.addfile(first, io.BytesIO(head or manifest))
        for entry, content in entries:
            tar.addfile(entry, io.BytesIO(content))
    return path


def plain(name, content=b"x", **fields):
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry, content


@pytest.mark.parametrize(
    "name",
    [
        *("/etc/cron.d/x", "../x", "a/../../x", "a//b", "./a", "a/", "", ".", "a\nb", "a\0b"),
        *("place.json", "lock", "store.db-wal", "config.toml.part"),
    ],
)
def test_a_name_that_no_run_has_is_refused_before_anything_is_written(tmp_path, name):
    path = listed(tmp_path / "a.tar", [plain("b")], {name: "0" * 64, "b": "0" * 64})
    with pytest.raises(BackupError, match="no backup of a run holds"):
        fedlens.restore(path, tmp_path / "back")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.tar"]


@pytest.mark.parametrize(
    "kind",
    [tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE],
)
def test_a_listed_name_that_is_no_plain_file_is_refused(tmp_path, kind):
    (tmp_path / "secret").write_text("of the owner")
    linked = str(tmp_path / "secret")
    for content in (b"", b"of the owner"):
        entry, _ = plain("config.toml", b"", type=kind, linkname=linked)
        hashes = {"config.toml": hashlib.sha256(content).hexdigest()}
        path = listed(tmp_path / "a.tar", [(entry, b"")], hashes)
        with pytest.raises(BackupError, match="no plain file"):
            fedlens.restore(path, tmp_path / "back")


def sparse(path, size):
    """An archive of some kB with a file of ``size`` bytes, nearly all of them a hole."""
    inner = path.with_suffix(".inner")
    head = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
    entry, content = plain("ledger.jsonl", b"1\n0\n1\n".ljust(512, b"\0") + b"x")
    entry.pax_headers = {**head, "GNU.sparse.name": "ledger.jsonl"}
    listed(inner, [], {"ledger.jsonl": "0" * 64})
    with inner.open("rb") as file, tarfile.open(fileobj=file) as tar:
        manifest = tar.extractfile(tar.next()).read()
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        first, _ = plain(MANIFEST, manifest)
        tar.addfile(first, io.BytesIO(manifest))
        tar.addfile(entry, io.BytesIO(content))
    return path


def test_a_file_of_terabytes_in_an_archive_of_kilobytes_is_not_unfolded(tmp_path):
    path = sparse(tmp_path / "a.tar", 1 << 42)
    with tarfile.open(path) as tar:
        assert [e.size for e in tar if e.issparse()] == [1 << 42]  # tarfile itself would
    with pytest.raises(BackupError, match="no plain file that lies in it whole"):
        fedlens.restore(path, tmp_path / "back")
    assert not (tmp_path / "back.part").exists()


def test_a_size_that_the_archive_does_not_have_is_refused(tmp_path):
    path = listed(tmp_path / "a.tar", [plain("config.toml", b"x" * 100)])
    content = bytearray(path.read_bytes())
    at = content.rindex(b"config.toml")
    content[at + 124 : at + 136] = b"77777777777\0"  # 8 GB
    content[at + 148 : at + 156] = b" " * 8
    content[at + 148 : at + 156] = f"{sum(content[at : at + 512]):06o}\0 ".encode()
    path.write_bytes(content)
    with pytest.raises(BackupError):
        fedlens.restore(path, tmp_path / "back")
    assert not (tmp_path / "back.part").exists()


@pytest.mark.parametrize("size", ["7" * 12, "base-256"])
def test_a_size_that_no_integer_of_the_machine_holds_is_refused(tmp_path, size):
    """A fuzzer found it in a million archives: tarfile raised an OverflowError."""
    path = tmp_path / "a.tar"
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        entry, content = plain("ledger.jsonl", b"x")
        entry.pax_headers = {"comment": "x"}
        tar.addfile(entry, io.BytesIO(content))
    damaged = bytearray(path.read_bytes())
    damaged[124:136] = b"\x80" + b"\x7f" * 11 if size == "base-256" else size.encode()
    damaged[148:156] = b" " * 8
    damaged[148:156] = f"{sum(damaged[:512]):06o}\0 ".encode()
    path.write_bytes(damaged)
    with pytest.raises(BackupError, match="take another copy"):
        fedlens.restore(path, tmp_path / "back")
    assert not (tmp_path / "back.part").exists()


def test_a_list_of_files_whose_names_are_no_texts_is_refused(tmp_path):
    manifest = json.dumps({"version": 1, "files": [[1, "0" * 64]]}).encode()
    path = tmp_path / "a.tar"
    with path.open("wb") as file, tarfile.open(fileobj=file, mode="w") as tar:
        tar.addfile(plain(MANIFEST, manifest)[0], io.BytesIO(manifest))
    with pytest.raises(BackupError, match="no backup of a run holds"):
        fedlens.restore(path, tmp_path / "back")


def test_many_entries_and_a_deep_or_long_list_are_refused_at_once(tmp_path, monkeypatch):
    deep = listed(tmp_path / "deep.tar", [], {"x": "0"}, head=b"[" * 200_000)
    with pytest.raises(BackupError, match="damaged list"):
        fedlens.restore(deep, tmp_path / "back")
    monkeypatch.setattr("fedlens.api.backups.MOST_FILES", 3)
    many = listed(tmp_path / "many.tar", [plain(str(n)) for n in range(4)])
    with pytest.raises(BackupError, match="lists 4 files"):
        fedlens.restore(many, tmp_path / "back")
    monkeypatch.setattr("fedlens.api.backups.LARGEST_MANIFEST", 100)
    with pytest.raises(BackupError, match="none of ours"):
        fedlens.restore(many, tmp_path / "back")


def test_a_name_that_comes_twice_or_lies_below_a_file_is_refused(tmp_path):
    twice = listed(tmp_path / "twice.tar", [plain("a"), plain("a")])
    with pytest.raises(BackupError, match="its list of files does not"):
        fedlens.restore(twice, tmp_path / "back")
    below = listed(tmp_path / "below.tar", [plain("a"), plain("a/b")])
    with pytest.raises(BackupError, match="cannot be read"):
        fedlens.restore(below, tmp_path / "back")
    assert not (tmp_path / "back").exists() and not (tmp_path / "back.part").exists()


def test_restoring_holds_no_file_in_memory(archive, tmp_path, monkeypatch):
    """A megabyte at a time, whatever a file's size."""
    asked = []
    real = tarfile.ExFileObject.read

    def read(self, size=-1):
        asked.append(size)
        return real(self, size)

    monkeypatch.setattr(tarfile.ExFileObject, "read", read)
    fedlens.restore(archive, tmp_path / "back")
    assert asked[0] == -1 and set(asked[1:]) == {1 << 20}  # the list of files, then pieces
