"""Every durable file of a run, spoiled alone and in pairs: what is noticed when the run goes on.

A run that spends from a population, over nodes with files of their own, is interrupted after its
fourth entry. Then files of the run, the population, the home and a node are deleted, cut short,
changed by a byte, put back as they were earlier, or replaced by a copy; whole folders likewise; and
the run goes on. Noise is drawn afresh each time, so what is asked is whether everything that was
released has its line in both ledgers, no node answered more often than its operator allows, and no
revoked user was asked.

    PYTHONPATH=tests python -m harness.spoiled_files --pairs 200      # 0 for all of them

prints what came of each file and of the pairs.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import logging
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from flwr.app import Message
from rich.console import Console
from rich.progress import track
from rich.table import Table

from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.ledger.population import Population
from fedlens.accountant.ledger.terms import PopulationTerms, population_folder
from fedlens.client.app import app
from fedlens.client.messages import DONE, TRAIN, Description, TrainRequest
from fedlens.foundation.errors import FedlensError
from fedlens.server.config.tree import Config
from fedlens.server.generation.generator import GeneratorTrainer
from fedlens.server.ledger.population import registry_url
from fedlens.server.round import step
from fedlens.server.run.directory import RunDirectory
from fedlens.server.run.place import bind
from fedlens.server.training import train
from fedlens.simulations.transports.inprocess import InProcessGrid
from fedlens.store import open_store, upgrades
from harness.faults.scenarios import settings

ROUNDS, NODES, USERS = 5, 2, 10
"""Users are those of each node."""
MOST_ROUNDS = ROUNDS
"""That a node answers."""
REVOKED = 3
"""Position of a user of node 0 who is revoked after the second round."""
HARMS = ("deleted", "cut short", "a byte changed", "put back", "copied")
ONLY = "copied, and said to be the only one"
FOLDER_HARMS = ("deleted", "put back", "copied", ONLY)
"""Of a copied folder both go on, one after the other."""


@dataclass(frozen=True, order=True)
class Harm:
    """What befalls a file or, with a final slash, a folder; by its place below the world's root."""

    file: str
    kind: str

    def __str__(self) -> str:
        return f"{self.file} {self.kind}"


_REVOKED, _COUNTED = "a revoked user was asked", "a node counts fewer rounds than it answered"
_UNBOOKED = "a release is not in the run's ledger"
_MEMBERS, _POPULATION = "home/populations/clinic/members.db", "home/populations/clinic/"
NOT_PROTECTED: dict[str, tuple[str, ...]] = {
    _REVOKED: (f"{_MEMBERS} put back", f"{_POPULATION} put back", "home/ put back"),
    _COUNTED: ("/rounds deleted", "/rounds put back", "node0/ put back"),
    _UNBOOKED: (),
}
"""Which harm breaks which law unnoticed, by the ends of its words: SECURITY says the same."""


@dataclass
class Outcome:
    """What came of harms once the run went on."""

    harms: tuple[Harm, ...]
    said: str = ""
    """The refusal, where there was one."""
    broken: list[str] = field(default_factory=list)
    """Laws that do not hold any more, and what no one caught."""

    @property
    def named(self) -> bool:
        """Whether a refusal names one of the files."""
        return any(Path(harm.file.rstrip("/")).name in self.said for harm in self.harms)

    @property
    def unexplained(self) -> list[str]:
        """What is broken beyond `NOT_PROTECTED`."""
        said = tuple(map(str, self.harms))
        return [
            law
            for law in self.broken
            if not any(one.endswith(NOT_PROTECTED.get(law, ())) for one in said)
        ]

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if self.broken:
            return "NOT noticed"
        if not self.said:
            return "goes on"
        return "refused by name" if self.named else "refused"


class Asked(InProcessGrid):
    """Nodes with files of their own, of which each answer about users is kept."""

    def __init__(self, config: Config, root: Path) -> None:
        super().__init__(app, NODES, config.flat())
        self.answers: list[tuple[int, TrainRequest]] = []
        self.members: list[int] = []
        for node, context in enumerate(self._contexts.values()):
            place = root / f"node{node}"
            context.node_config = {
                "partition-id": node,
                "data": str(place / "users.npz"),
                "most-rounds": MOST_ROUNDS,
                "rounds-file": str(place / "rounds"),
                "members-key-file": str(place / "members-key"),
            }

    def answer(self, message: Message) -> Message:
        """What the message's node replies, noted where it is about users."""
        reply = super().answer(message)
        if reply.content.config_records["config"].get("status") != DONE:
            return reply
        place = list(self._contexts).index(message.metadata.dst_node_id)
        if message.metadata.message_type == TRAIN:
            self.answers.append((place, TrainRequest.from_record(message.content)))
        elif place == 0:
            told = Description.from_record(reply.content)
            self.members = np.frombuffer(told.members, ">i8").tolist()
        return reply


class World:
    """A run with all that it stands on, below one folder; it can be brought back as it was.

    Files are brought back under their own numbers, as a ledger knows its own.
    """

    def __init__(self, root: Path) -> None:
        """Train up to the fourth entry; ``FEDLENS_HOME`` is ``root / "world" / "home"`` by then."""
        self.root, self._keeper = root / "world", root / "kept"
        self.draws: list[str] = []
        self.answers: list[tuple[int, TrainRequest]] = []
        self.members: list[int] = []
        """Keyed numbers of node 0's users, by position."""
        self.config = settings(
            **{
                "data.users": NODES * USERS, "data.nodes": NODES, "data.samples_per_user": 2,
                "tasks.critic.rounds": ROUNDS, "tasks.critic.sampling_rate": 1.0,
                "privacy.population": "clinic", "membership.patience": 0.1,
            }
        )  # fmt: skip
        self._begin()
        self._interrupted(2)
        self.earlier = self._content()
        self._revoke_one()
        self._interrupted(3)
        self.now = self._content()
        self._headers = {
            Ledger.read(self.root / place / "ledger.jsonl").header_hash: Path(place).name
            for place in ("run", _POPULATION)
        }
        self.before = len(self.draws), list(self.answers)
        self._keep()

    @property
    def run(self) -> Path:
        """The run's folder."""
        return self.root / "run"

    def _begin(self) -> None:
        for node in range(NODES):
            _write_node(self.root / f"node{node}", node)
        budget = PopulationTerms("clinic", unit="user", delta=1e-3, epsilon_budget=100.0)
        Population.create(population_folder("clinic"), budget)
        (self.root / "home" / "node-names.json").write_text('{"2": "anna", "3": "bert"}')
        RunDirectory.create(self.run, self.config)

    def _revoke_one(self) -> None:
        population = Population.read(population_folder("clinic")).identity
        with open_store(registry_url("clinic")) as registry:
            registry.set_revoked(population, number=self.members[REVOKED], on=True)

    def _interrupted(self, call: int) -> None:
        """Train, and end while the generator learns for the so-manieth time."""
        learn, calls = GeneratorTrainer.train, itertools.count(1)

        def cut(trainer: Any, *args: Any, **kwargs: Any) -> Any:
            if next(calls) == call:
                raise KeyboardInterrupt
            return learn(trainer, *args, **kwargs)

        with mock.patch.object(GeneratorTrainer, "train", cut):
            try:
                self.go_on(self.run)
            except KeyboardInterrupt:
                return
        raise AssertionError("the run was over before it was interrupted")

    def go_on(self, folder: Path) -> None:
        """Train on in a folder; what is drawn and answered is noted.

        Raises:
            FedlensError: it is refused.
        """
        grid, draw = Asked(self.config, self.root), step.noised_mean

        def noted(total: Any, **kwargs: Any) -> Any:
            release = draw(total, **kwargs)
            noise = release * kwargs["denominator"] - total.values
            self.draws.append(hashlib.sha256(noise.tobytes()).hexdigest())
            return release

        try:
            with mock.patch.object(step, "noised_mean", noted):
                directory = RunDirectory.open(folder)
                train(directory.config(), directory, grid)
        finally:
            self.answers += grid.answers
            self.members = grid.members

    def called(self, name: str) -> str:
        """A file's name, with what a mark is the mark of in place of a hash."""
        for header, place in self._headers.items():
            name = name.replace(header, f"<{place}>")
        return name

    # Bringing it back

    def _content(self) -> dict[str, bytes]:
        files = [path for path in self.root.rglob("*") if path.is_file()]
        kept = {str(path.relative_to(self.root)): path.read_bytes() for path in files}
        return {name: content for name, content in kept.items() if not _passing(name)}

    def _keep(self) -> None:
        for name in self.now:
            (self._keeper / name).parent.mkdir(parents=True, exist_ok=True)
            os.link(self.root / name, self._keeper / name)

    def bring_back(self) -> None:
        """All files as they were when the run was interrupted, under their own numbers."""
        shutil.rmtree(self.root)
        for name, content in self.now.items():
            path = self.root / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.link(self._keeper / name, path)
            path.write_bytes(content)
        drawn, answers = self.before
        self.draws, self.answers = self.draws[:drawn], list(answers)

    # Harms

    def harms(self) -> list[Harm]:
        """All that can befall one file or folder, without what changes nothing."""
        found = [Harm(name, kind) for name in sorted(self.now) for kind in HARMS]
        folders = ("run/", "home/", "home/heads/", "home/populations/clinic/", "node0/")
        found += [Harm(name, kind) for name in folders for kind in FOLDER_HARMS]
        return [harm for harm in found if self._changes(harm)]

    def _changes(self, harm: Harm) -> bool:
        if harm.file.endswith("/"):
            return harm.kind in ("deleted", "put back") or harm.file == "run/"
        if harm.kind == "put back":
            return self.earlier.get(harm.file, self.now[harm.file]) != self.now[harm.file]
        return bool(self.now[harm.file]) or harm.kind == "deleted"

    def do(self, harm: Harm) -> None:
        """Have a harm befall the files that are there."""
        if harm.file.endswith("/"):
            self._do_to_folder(harm)
            return
        path = self.root / harm.file
        if harm.kind == "deleted" or not path.exists():
            path.unlink(missing_ok=True)
        elif harm.kind == "copied":
            content = path.read_bytes()
            path.unlink()
            path.write_bytes(content)
        else:
            path.write_bytes(self._spoiled(harm, path.read_bytes()))

    def _spoiled(self, harm: Harm, content: bytes) -> bytes:
        if harm.kind == "put back":
            return self.earlier[harm.file]
        half = len(content) // 2
        if harm.kind == "cut short":
            return content[:half]
        return content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :]

    def _do_to_folder(self, harm: Harm) -> None:
        folder = self.root / harm.file
        if harm.kind.startswith("copied"):
            copy = shutil.copytree(folder, self.root / "copy", dirs_exist_ok=True)
            if harm.kind == ONLY:
                with suppress(FedlensError):
                    bind(RunDirectory.open(copy))
            return
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        if harm.kind == "put back":
            for name, content in self.earlier.items():
                if name.startswith(harm.file):
                    (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                    self._put(name, content)

    def _put(self, name: str, content: bytes) -> None:
        """As ``cp`` over a file that is there does: it keeps its number."""
        path = self.root / name
        if (self._keeper / name).exists():
            os.link(self._keeper / name, path)
        path.write_bytes(content)

    # What came of it

    def outcome(self, *harms: Harm) -> Outcome:
        """Bring all back, have harms befall it, let the run go on (and its copy), and judge."""
        self.bring_back()
        for harm in harms:
            self.do(harm)
        found = Outcome(harms)
        folders = [self.run]
        if (copy := self.root / "copy").exists():
            folders.append(copy)
        for folder in list(folders):
            drawn = len(self.draws)
            try:
                self.go_on(folder)
            except FedlensError as error:
                found.said = found.said or str(error)
            except Exception as error:  # a user's mistake or a damaged file is never a traceback
                found.broken.append(f"{type(error).__name__}: {error}"[:200])
            if len(self.draws) == drawn:
                folders.remove(folder)  # nothing was released from there
        found.broken += self._broken(folders)
        return found

    def _broken(self, folders: Sequence[Path]) -> Iterator[str]:
        """Laws that do not hold of all that was drawn and answered."""
        drawn = len(self.draws)
        if not folders:
            return  # nothing was released since, so nothing is missing
        if len(set(self.draws)) < drawn:
            yield "noise twice"
        ledgers = [folder / "ledger.jsonl" for folder in folders]
        if min(map(_entries, ledgers)) < drawn:
            yield _UNBOOKED
        if _entries(self.root / _POPULATION / "ledger.jsonl") < drawn:
            yield "a release is not in the population's ledger"
        answers = Counter(place for place, _ in self.answers)
        for node in range(NODES):
            if answers[node] > int((self.root / f"node{node}" / "rounds").read_text()):
                yield _COUNTED
        later = self.answers[len(self.before[1]) :]
        if any(REVOKED in request.users for place, request in later if place == 0):
            yield _REVOKED


def _passing(name: str) -> bool:
    """What says nothing: locks, and a database's side files."""
    return name.endswith(("lock", ".lock", "-wal", "-shm", ".part"))


def _entries(ledger: Path) -> int:
    try:
        return len(Ledger.read(ledger))
    except (FedlensError, OSError):
        return 0


def _write_node(folder: Path, number: int) -> None:
    folder.mkdir(parents=True)
    source, count = np.random.default_rng(number), 2 * USERS
    np.savez(
        folder / "users.npz",
        images=source.integers(0, 256, (count, 1, 28, 28), dtype=np.uint8),
        labels=np.arange(count) % 10,
        users=np.arange(count) // 2 + 100 * number,
        classes=np.array(10),
    )
    (folder / "members-key").write_bytes(b"k" * 32)


@contextmanager
def small_world() -> Iterator[World]:
    """A world in a folder of its own, in memory where there is room."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        root = Path(folder)
        home = mock.patch.dict(os.environ, {"FEDLENS_HOME": str(root / "world" / "home")})
        with home, mock.patch.object(upgrades, "compare_metadata", _compared_once()):
            yield World(root)


def _compared_once() -> Callable[[MigrationContext, Any], Any]:
    """Alembic's comparison, which takes most of a run's time here, once for each schema there is.

    It reads nothing of a store but its schema.
    """
    known: dict[object, Any] = {}

    def compare(context: MigrationContext, metadata: Any) -> Any:
        assert context.connection is not None
        rows = context.connection.exec_driver_sql("SELECT * FROM sqlite_master").all()
        schema = tuple(map(tuple, rows))
        if schema not in known:
            known[schema] = compare_metadata(context, metadata)
        return known[schema]

    return compare


def main() -> None:
    """Spoil every file alone, then pairs, and print the tables."""
    parser = argparse.ArgumentParser(prog="python -m harness.spoiled_files")
    parser.add_argument("--pairs", type=int, default=200, help="pairs by chance; 0 for all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose name has this in it")
    args = parser.parse_args()
    os.environ["FEDLENS_TEST_MODE"] = "1"
    logging.disable(logging.WARNING)
    console = Console()
    with small_world() as world:
        harms = [harm for harm in world.harms() if args.only in harm.file]
        console.print(table_of(world, [world.outcome(harm) for harm in harms]))
        pairs = pairs_of(harms)
        if args.pairs:
            pairs = random.Random(args.seed).sample(pairs, min(args.pairs, len(pairs)))
        verdicts = Counter[str]()
        for pair in track(pairs, console=console, description="pairs"):
            found = world.outcome(*pair)
            verdicts[found.verdict] += 1
            if found.unexplained:
                why = "; ".join(map(str, pair))
                console.print(f"{why}: {'; '.join(found.unexplained)}", highlight=False)
        console.print(f"{len(pairs)} pairs: {dict(verdicts)}", highlight=False)


def pairs_of(harms: Sequence[Harm]) -> list[tuple[Harm, Harm]]:
    """All that befall two files, or a folder and another file."""
    return [pair for pair in itertools.combinations(harms, 2) if pair[0].file != pair[1].file]


def table_of(world: World, alone: Sequence[Outcome]) -> Table:
    """What comes of each file, spoiled alone: a row a file, a column a harm."""
    kinds = tuple(dict.fromkeys((*HARMS, *FOLDER_HARMS)))
    table = Table("file", *kinds, show_lines=True)
    by_file: dict[str, dict[str, str]] = {}
    for one in alone:
        (harm,) = one.harms
        by_file.setdefault(world.called(harm.file), {})[harm.kind] = one.verdict
    for name, verdicts in by_file.items():
        table.add_row(name, *(verdicts.get(kind, "") for kind in kinds))
    return table


if __name__ == "__main__":
    main()
