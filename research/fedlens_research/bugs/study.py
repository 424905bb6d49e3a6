"""The benchmark as a whole: what is missing is measured, then results, picture and page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedlens_research.bugs.csv_table import write_csv
from fedlens_research.bugs.measuring import Progress, kept_trials, measure_all
from fedlens_research.bugs.page import write_bug_page
from fedlens_research.bugs.plan import BugPlan, trials_of
from fedlens_research.bugs.results import BugResults
from fedlens_research.bugs.sheets import draw_sheets
from fedlens_research.bugs.trained import Product, kept_looks, look_at_all
from fedlens_research.bugs.trained_page import SHEETS
from fedlens_research.framework.errors import StudyError
from fedlens_research.framework.store import TrialStore
from fedlens_research.framework.trials import Report

TRIALS, RESULTS, PAGE, IMAGES = "trials", "bugs.json", "bugs.md", "images"


@dataclass(frozen=True)
class BugStudy:
    """A benchmark in a folder; it goes on where it was stopped."""

    plan: BugPlan
    out: Path
    product: Product
    data_dir: str = ""
    quick: bool = False
    trained: Sequence[str] = ()
    """Faults of the runs that are trained."""

    def measure(self, report: Report, progress: Progress | None = None) -> None:
        """Carry out what is missing.

        Raises:
            StudyError: the plan cannot be carried out.
        """
        self.plan.check()
        store = TrialStore(self.out / TRIALS)
        measure_all(list(trials_of(self.plan)), store, self.data_dir, report, progress)
        if self.trained:
            look_at_all(self.trained, self.product, self.out, report)
            draw_sheets(self.product, self.out, self.out / IMAGES / SHEETS, report)

    def results(self) -> BugResults:
        """What is there of it."""
        store = TrialStore(self.out / TRIALS)
        measured = kept_trials(list(trials_of(self.plan)), store)
        return BugResults.of(measured, kept_looks(self.trained, self.out), quick=self.quick)

    def write(self, page: Path | None = None) -> list[Path]:
        """Write results and page: in the study's folder, and where a page is asked for.

        Raises:
            StudyError: nothing was measured.
        """
        results = self.results()
        if not results.measured and not results.looks:
            raise StudyError(f"{self.out} holds no trial of this plan: run it without --kept")
        made = _written(results, self.out / PAGE, self.out / IMAGES)
        if page is not None:
            images = page.parent / IMAGES
            sheets = self.out / IMAGES / SHEETS
            if sheets.is_file():
                images.mkdir(parents=True, exist_ok=True)
                (images / SHEETS).write_bytes(sheets.read_bytes())
            made += _written(results, page, images)
        return made


def _written(results: BugResults, page: Path, images: Path) -> list[Path]:
    record, table = page.with_suffix(".json"), page.with_suffix(".csv")
    page.parent.mkdir(parents=True, exist_ok=True)
    results.write(record)
    write_csv(table, results)
    return [*write_bug_page(page, results, images), record, table]
