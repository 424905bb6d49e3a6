"""A run: where it lies, what it cost, and the samples that it released."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.foundation.errors import WrongUse

if TYPE_CHECKING:
    from fedlens.api.samples import Samples
    from fedlens.server.config.tree import Config
    from fedlens.server.run.directory import RunDirectory
    from fedlens.simulations.engine import Summary
    from fedlens.store.records import Purpose
    from fedlens.store.worth import Worth

SUMMARY = "summary.json"


@dataclass(frozen=True)
class Run:
    """A run on disk; give its path to `open_run`, or take it from `fedlens.simulate`.

    Attributes:
        path: its directory.
        store: URL of the store that its samples are in.
    """

    path: Path
    store: str

    @cached_property
    def directory(self) -> RunDirectory:
        """The directory's files, for what this class has no method for."""
        from fedlens.server.run.directory import RunDirectory

        return RunDirectory.open(self.path)

    @cached_property
    def config(self) -> Config:
        """The configuration that it was trained with."""
        return self.directory.config()

    @cached_property
    def id(self) -> str:
        """The id under which it is in its store.

        Raises:
            FedlensError: it has spent nothing yet.
        """
        return self.directory.run_id

    @property
    def summary(self) -> Summary:
        """What came out: rounds, both ε, students, digests and places.

        Raises:
            FedlensError: it was not trained to its end yet, or not by `fedlens.simulate`.
        """
        from fedlens.server.run.directory import RunDirectoryError
        from fedlens.simulations.engine import Summary

        path = self.path / SUMMARY
        if not path.exists():
            raise RunDirectoryError(f"{self.path} has no {SUMMARY} yet: `fedlens resume` it")
        try:
            return Summary(**json.loads(path.read_text(encoding="utf-8")))
        except (TypeError, ValueError):
            raise RunDirectoryError(f"{path} is not this version's: `fedlens resume` it") from None

    def keep(self, summary: Summary, directory: RunDirectory) -> None:
        """Write what `summary` reads, with the day of the ``directory`` that was trained in."""
        content = json.dumps(summary.to_json(), allow_nan=False, indent=1)
        directory.save(SUMMARY, (content + "\n").encode())

    def statement(self) -> str:
        """What the run guarantees so far, in words, with the assumptions.

        Differential privacy holds for everybody; Bayesian differential privacy only for people
        like those in the data. Both are always stated together.
        """
        from fedlens.accountant.statement import statement
        from fedlens.server.learning.builds_on import with_cost
        from fedlens.server.ledger.run_ledger import spending_of

        spending = spending_of(self.config, self.directory)
        return with_cost(statement(spending, self.config.data.users), self.directory)

    @property
    def worth(self) -> Worth:
        """What its samples are good for, told by its releases alone.

        ``clear``, ``usable for statistics``, ``noise``, or ``not judged`` where no annotator or
        no means of classes could tell.
        """
        from fedlens.store import open_store

        with open_store(self.store) as store:
            return store.worth(self.id)

    def samples(self, *, kind: Purpose = "curated", round: int | None = None) -> Samples:  # noqa: A002
        """Samples that lie in the run's store.

        Args:
            kind: ``curated``, guided and filtered by the annotator where there is one, to label
                and to teach with; ``faithful``, neither guided nor filtered, to look for faults
                in; or ``strip``, the few of every round.
            round: of which round; the last that has any by default.

        Raises:
            FedlensError: there are none.
        """
        from fedlens.api.samples import load_samples

        return load_samples(self.directory, self.store, self.id, kind, round)

    def draw(
        self,
        count: int,
        *,
        seed: int,
        kind: Purpose = "curated",
        round: int | None = None,  # noqa: A002
    ) -> Samples:
        """Fresh samples of a kept generator, all classes equally often; costs no privacy.

        Args:
            count: how many.
            seed: of the generator's noise; equal seeds give equal samples.
            kind: how they are made, as in `samples`.
            round: the round whose generator is used; the last by default.

        Raises:
            WrongUse: a count below 1.
            FedlensError: the run kept no generator of that round.
        """
        from fedlens.api.samples import draw_samples

        return draw_samples(self.directory, self.store, self.id, count, seed, kind, round)

    def export(
        self,
        path: Path | str,
        *,
        kind: Purpose = "curated",
        round: int | None = None,  # noqa: A002
    ) -> None:
        """Write the samples of `samples` as a ZIP: images, a table, and what is guaranteed.

        Args:
            path: of the ZIP.
            kind: as in `samples`.
            round: of which round; the last that has any by default.

        Raises:
            FedlensError: there are none, or the file cannot be written.
        """
        from fedlens.api.samples import export_samples

        content = export_samples(self.store, self.id, kind, round)
        try:
            Path(path).write_bytes(content)
        except OSError as error:
            raise WrongUse(f"path {path}: cannot be written: {error.strerror}") from None


def open_run(path: Path | str, *, store: str = "") -> Run:
    """A run that is on disk, finished or not.

    Args:
        path: its directory.
        store: URL of its store, where it is not the one that the run remembers.

    Raises:
        FedlensError: there is no run at ``path``.
    """
    from fedlens.server.run.directory import RunDirectory

    directory = RunDirectory.open(Path(path))
    return Run(directory.path, directory.store_url(store))
