"""The directory of a run: what must survive the process being killed at any instant.

``config.toml``            what runs
``ledger.jsonl``           what was spent: one chained line a release, on disk before the release
``evidence.jsonl``         private bookkeeping of the Bayesian accountant; do not pass it on
``checkpoint/state.safetensors``, ``rounds.jsonl``  all to go on with after the last whole round
``checkpoint/release-N.safetensors``  round N's noised aggregate, until a state has taken it in
``checkpoint/generator-N.safetensors``  generators that stored samples were drawn from
``checkpoint/filter.safetensors``  the filter that the run was given, where it was given one
``releases/round-N.safetensors``  noised releases, which diagnoses read:
`fedlens.server.round.releases` ``place.json``, ``status.json``  where the run lies (a copy does
not go on by itself); how it goes ``store.db``               the database, unless another store is
named (then in ``store-url``)
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.client.contract import PREFIX
from fedlens.foundation.dates import set_file_date, today
from fedlens.foundation.errors import FedlensError
from fedlens.foundation.files import write_durably
from fedlens.foundation.profile import timed
from fedlens.server.config.loading import read_config
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.run.arrays import Arrays, contiguous, digest_of

if TYPE_CHECKING:
    from sqlalchemy import URL

# The run's key: nodes seed users' batches and a privatizer's noise with it.

KEY_BYTES = 16
FILE = "run-key"


class RunKeyError(FedlensError, ValueError):
    """The file with a run's key holds something else."""


def new_key(config: Config) -> bytes:
    """A key of the operating system's entropy; in test mode one that follows from the seed."""
    if config.privacy.fixed_seed < 0:
        return secrets.token_bytes(KEY_BYTES)
    seed = f"{config.seed} {config.privacy.fixed_seed}".encode()
    return hashlib.blake2b(seed, digest_size=KEY_BYTES, person=b"run key").digest()


def load_key(config: Config, directory: RunDirectory) -> bytes:
    """The key of the run in ``directory``: drawn when it starts, the same when it goes on.

    Raises:
        RunKeyError: the file was damaged.
    """
    path = directory.path / FILE
    if not path.exists():
        directory.save(FILE, new_key(config).hex().encode(), private=True)
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise RunKeyError(f"{path} is damaged; restore it from a backup")
    return key


HIDDEN = "***"
"""What SQLAlchemy shows in a password's place."""


class RunDirectoryError(FedlensError, ValueError):
    """A run directory that cannot be used; the message says why and what to do."""


@dataclass(frozen=True)
class Snapshot:
    """The state after a whole round."""

    round: int
    arrays: Arrays
    """Generator, critic and their optimisers."""
    facts: dict[str, Any]
    """JSON: the rounds' records, the ledger's head and length, the schema of the images."""


class RunDirectory:
    """Paths and durable files of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.ledger = self.path / "ledger.jsonl"
        self.evidence = self.path / "evidence.jsonl"
        self.checkpoints = self.path / "checkpoint"
        self.settings_file = self.path / "config.toml"
        self.state_file = self.checkpoints / "state.safetensors"
        self._filter = self.checkpoints / "filter.safetensors"
        self._lock = self.path / "lock"
        self._place = self.path / "place.json"
        self._day = today()

    @classmethod
    def create(cls, path: Path, config: Config) -> RunDirectory:
        """Make the directory of a new run.

        Raises:
            RunDirectoryError: it holds a run already or other files, another process begins one
                there, or it cannot be written.
        """
        directory = cls(path)
        directory._check_free()
        try:
            directory.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with directory.locked():
                directory._check_free()  # another process may have begun a run meanwhile
                directory.checkpoints.mkdir(exist_ok=True)
                directory._write(directory.settings_file, config.to_toml().encode())
        except OSError as error:
            raise RunDirectoryError(f"cannot write to {path}: {error.strerror}") from None
        return directory

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The directory of an existing run.

        Raises:
            RunDirectoryError: there is no run in it.
        """
        directory = cls(path)
        if not directory.exists():
            why = "no config.toml beside a checkpoint folder" if path.is_dir() else "no such folder"
            raise RunDirectoryError(f"{path} holds no run: {why}; name the folder of a run")
        return directory

    def exists(self) -> bool:
        """Whether a run was begun here."""
        return self.settings_file.is_file() and self.checkpoints.is_dir()

    def _check_free(self) -> None:
        """Refuse a folder with anything in it but what a start that was killed at once left."""
        if self.exists():
            raise RunDirectoryError(
                f"{self.path} holds a run already: {self.resume_words()} goes on with it, or "
                "name another --out"
            )
        left = {self.checkpoints, self.settings_file.with_name("config.toml.part"), self._lock}
        if any(found not in left for found in self.path.rglob("*")):
            raise RunDirectoryError(f"{self.path} holds other files: name an empty or a new --out")

    def set_aside(self) -> Path:
        """Rename the directory of a run that no process trains in; returns its new path.

        Nothing is deleted: the ledger in it says what was spent, and people's labels are in it.

        Raises:
            RunDirectoryError: another process trains in it.
        """
        number = 1
        while (target := self.path.with_name(f"{self.path.name}.old-{number}")).exists():
            number += 1
        with self.locked():
            self.path.rename(target)
        return target

    def save(self, name: str, content: bytes, *, private: bool = False) -> None:
        """Write a file of the run durably, dated like all others; ``private``: for its owner."""
        self._write(self.path / name, content, private=private)

    def _write(self, path: Path, content: bytes, *, private: bool = False) -> None:
        """Write a file durably; it and its folder say no time of it but this object's day."""
        write_durably(path, content, private=private, day=self._day)
        set_file_date(path.parent, self._day)

    def save_beside(self, folder: str, name: str, content: bytes) -> None:
        """Write a file into a folder of the run, for what a run can go on without."""
        (self.path / folder).mkdir(exist_ok=True)
        self._write(self.path / folder / name, content)

    def date_folders(self) -> None:
        """Set the date of the folders: files came and went in them at times that data may move."""
        for folder in (self.checkpoints, self.path):
            set_file_date(folder, self._day)

    def date_everything(self) -> None:
        """Set the date of all files and folders, those that others wrote included."""
        for found in self.path.rglob("*"):
            set_file_date(found, self._day)
        self.date_folders()

    def config(self) -> Config:
        """The run's configuration.

        Raises:
            RunDirectoryError: it was damaged.
        """
        try:
            return read_config(self.settings_file)
        except ConfigError as error:
            raise RunDirectoryError(str(error)) from None

    def resume_words(self, *, only_copy: bool = False) -> str:
        """The command by which the run goes on, in backticks.

        Over real nodes none but an operator's does: they hold the data. A run is theirs where it
        lies among a SuperLink's, or goes by their contract.
        """
        copy = " --only-copy" if only_copy else ""
        if self._is_a_superlinks():
            return f"`fedlens deploy run OPERATOR` with --name {self.path.name}{copy}"
        if self._is_of_nodes_data():
            return (
                "below the SuperLink's runs, `fedlens deploy run OPERATOR` with --name "
                f"{self.path.name}{copy}"
            )
        return f"`fedlens resume {self.path}{copy}`"

    def require_simulated(self) -> None:
        """Refuse a run over real nodes where simulated ones would answer in their place.

        Raises:
            RunDirectoryError: it is one; the message says how it goes on.
        """
        if self._is_a_superlinks() or self._is_of_nodes_data():
            raise RunDirectoryError(
                f"{self.path} is a run over real nodes, which this machine cannot ask by itself: "
                f"{self.resume_words()} goes on with it"
            )

    def _is_a_superlinks(self) -> bool:
        return (self.path.parent.parent / "deploy.toml").is_file()

    def _is_of_nodes_data(self) -> bool:
        with suppress(RunDirectoryError):
            return self.config().data.name.partition(":")[0] == PREFIX
        return False

    @property
    def default_store(self) -> str:
        """URL of the run's own SQLite store."""
        return f"sqlite:///{self.path / 'store.db'}"

    def sweep(self) -> None:
        """Remove files that a killed process left half-written."""
        for part in self.path.rglob("*.part"):
            part.unlink()

    def remember_store(self, url: str) -> None:
        """Note where the run's samples go, for the verbs that come later; never a password."""
        if url != self.default_store:
            shown = _parsed(url).render_as_string(hide_password=True)
            self._write(self.path / "store-url", shown.encode())

    def remembered_store(self) -> str:
        """The store that `remember_store` noted, or the directory's own.

        Raises:
            RunDirectoryError: its URL has a password, which was not written down.
        """
        note = self.path / "store-url"
        if not note.exists():
            return self.default_store
        url = note.read_text(encoding="utf-8")
        if _parsed(url).password == HIDDEN:
            raise RunDirectoryError(f"name the run's store with its password: --store {url}")
        return url

    @property
    def run_id(self) -> str:
        """The id under which the run is in its store.

        Raises:
            RunDirectoryError: the run has spent nothing yet, so there is nothing to read.
        """
        if not self.ledger.exists():
            raise RunDirectoryError(
                f"{self.path} has no ledger yet: {self.resume_words()} goes on with it"
            )
        return str(Ledger.open(self.ledger).header["run_id"])

    def store_url(self, named: str = "") -> str:
        """The run's store: the one named, the environment's, the run's last, or its own.

        A path is made absolute, so that other processes find the same file.
        """
        url = named or os.environ.get("FEDLENS_STORE", "") or self.remembered_store()
        if "://" not in url:
            return f"sqlite:///{Path(url).absolute()}"
        path = url.removeprefix("sqlite:///")
        return f"sqlite:///{Path(path).absolute()}" if path != url else url

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the run, so that no two processes spend from one ledger.

        Raises:
            RunDirectoryError: another process holds it.
        """
        with self._lock.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise RunDirectoryError(f"another process is training in {self.path}") from None
            file.write(str(os.getpid()))
            file.flush()
            yield

    def save_place(self, place: dict[str, Any]) -> None:
        """Keep where the run is bound to, as JSON values."""
        self._write(self._place, (json.dumps(place) + "\n").encode())

    @property
    def bound(self) -> bool:
        """Whether `save_place` kept anything, readable or not."""
        return self._place.exists()

    def load_place(self) -> dict[str, Any] | None:
        """What `save_place` kept; None where nothing was, or it cannot be read."""
        try:
            kept = json.loads(self._place.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return kept if isinstance(kept, dict) else None

    def traces(self) -> list[str]:
        """Names of files that only a run that had begun to spend leaves."""
        files = [self._place, self.evidence, *sorted(self.checkpoints.glob("*.safetensors"))]
        return [file.name for file in files if file.exists() and file != self._filter]

    @timed("run directory")
    def save_state(self, snapshot: Snapshot) -> None:
        """Replace the state; whole or not at all."""
        facts = json.dumps({**snapshot.facts, "round": snapshot.round})
        content = save(contiguous(snapshot.arrays), metadata={"facts": facts})
        self._write(self.state_file, content)

    def load_state(self) -> Snapshot | None:
        """The last state, or None before the first.

        Raises:
            RunDirectoryError: the file was damaged.
        """
        path = self.state_file
        if not path.exists():
            return None
        with _undamaged(path):
            arrays = load_file(path)
            with safe_open(path, framework="numpy") as file:
                facts = json.loads(file.metadata()["facts"])
            return Snapshot(int(facts["round"]), arrays, facts)

    def _release(self, round_number: int) -> Path:
        return self.checkpoints / f"release-{round_number:06d}.safetensors"

    def save_release(
        self, round_number: int, release: NDArray[np.float64], presence: object = None
    ) -> None:
        """Keep a round's noised aggregate until a state holds it. Its ledger entry comes first.

        ``presence`` says which nodes the round had, as JSON values.
        """
        facts = {"presence": json.dumps(presence)}
        self._write(self._release(round_number), save({"release": release}, metadata=facts))

    def load_release(self, round_number: int) -> NDArray[np.float64] | None:
        """A round's noised aggregate, if the process lived to write it.

        Raises:
            RunDirectoryError: the file was damaged.
        """
        path = self._release(round_number)
        if not path.exists():
            return None
        with _undamaged(path):
            release: NDArray[np.float64] = load_file(path)["release"]
            return release

    def load_presence(self, round_number: int) -> dict[str, Any] | None:
        """Which nodes a round had whose aggregate is kept.

        Raises:
            RunDirectoryError: the file was damaged.
        """
        if not (path := self._release(round_number)).exists():
            return None
        with _undamaged(path), safe_open(path, framework="numpy") as file:
            presence: dict[str, Any] | None = json.loads(file.metadata()["presence"])
            return presence

    def drop_release(self, round_number: int) -> None:
        """Forget an aggregate that a state has taken in."""
        self._release(round_number).unlink(missing_ok=True)

    def save_filter(self, vector: NDArray[np.float32], facts: dict[str, str]) -> None:
        """Keep the filter that the run was given, with where it is from."""
        content = save({"filter": np.asarray(vector, order="C")}, metadata=facts)
        self._write(self._filter, content)

    def load_filter(self) -> tuple[NDArray[np.float32], dict[str, str]] | None:
        """What `save_filter` kept; None where the run was given none.

        Raises:
            RunDirectoryError: the file was damaged.
        """
        if not self._filter.exists():
            return None
        with _undamaged(self._filter), safe_open(self._filter, framework="numpy") as file:
            return file.get_tensor("filter"), dict(file.metadata())

    def generator_path(self, round_number: int) -> Path:
        """Where a round's generator is kept."""
        return self.checkpoints / f"generator-{round_number:06d}.safetensors"

    def faithful_path(self, round_number: int) -> Path:
        """Where the generator of a round's faithful samples is kept, if it is another one."""
        return self.checkpoints / f"faithful-{round_number:06d}.safetensors"

    def save_faithful(self, round_number: int, vector: NDArray[np.float32]) -> None:
        """Keep the generator of faithful samples, float32 [n]."""
        arrays: Arrays = {"average": vector}
        self._write(self.faithful_path(round_number), save(contiguous(arrays)))

    @timed("run directory")
    def save_generator(self, round_number: int, arrays: Arrays) -> str:
        """Keep a generator that samples are drawn from; returns its digest.

        Args:
            round_number: the last round behind it.
            arrays: ``average``, the flat generator; ``annotator``, the flat annotator that samples
                are filtered and labelled with, where there is one.
        """
        self._write(self.generator_path(round_number), save(contiguous(arrays)))
        return digest_of(arrays)


def load_generator(path: Path) -> Arrays:
    """What `RunDirectory.save_generator` kept.

    Raises:
        RunDirectoryError: the file was damaged.
    """
    with _undamaged(path):
        arrays: Arrays = load_file(path)
        return arrays


def _parsed(url: str) -> URL:
    from sqlalchemy import make_url  # most runs remember no URL, and databases take long to import

    return make_url(url)


@contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    try:
        yield
    except (SafetensorError, KeyError, TypeError, ValueError):
        raise RunDirectoryError(f"{path} is damaged; restore it from a backup") from None
