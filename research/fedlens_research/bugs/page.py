"""The page: the smallest detectable shares, false alarms, what was not run. All else is a table."""

from __future__ import annotations

import os
from pathlib import Path

from fedlens.foundation.tables import percent
from fedlens_research.bugs import page_texts
from fedlens_research.bugs.not_run import not_run
from fedlens_research.bugs.pictures import plot_rates
from fedlens_research.bugs.results import (
    BugResults,
    BugSetting,
    by_share,
    epsilons_of,
    faults_of,
    measured_share,
    of_cell,
    predicted_share,
)
from fedlens_research.bugs.tallies import BugTally, binomial_interval
from fedlens_research.bugs.trained_page import trained_lines
from fedlens_research.bugs.worlds import STATES_AT
from fedlens_research.framework.pages import markdown_table, picture

RATES = "bugs-rates.png"


def write_bug_page(page: Path, results: BugResults, images: Path) -> list[Path]:
    """Write the page and its picture.

    Args:
        page: Markdown file.
        results: what was measured.
        images: folder of pictures.

    Returns:
        What was written.
    """
    made = []
    lines = [*_head(results), *(_smallest(results) if results.settings() else ())]
    drawn = _drawn(results)
    if drawn is not None:
        setting, panels = drawn
        made.append(plot_rates(panels, images / RATES))
        where = os.path.relpath(made[0], page.parent)
        title = f"How often each fault is named first, by share of users: {setting.said}"
        lines += ["", picture(title, where), "", f"*{title}; bars are 95% binomial intervals.*"]
    lines += ["", *_clean(results)] if results.settings() else []
    lines += [*trained_lines(results, page, images), *not_run(results)]
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return [page, *made]


def _head(results: BugResults) -> list[str]:
    trials = results.measured
    sizes = sorted({one.reference_images for one in trials})
    text = page_texts.HEAD.format(
        draws=sum(tally.draws for one in trials for tally in one.tallies),
        trials=len(trials),
        seeds=", ".join(map(str, sorted({one.trial.seed for one in trials}))) or "none",
        images=" or ".join(f"{size:,}" for size in sizes) or "no",
        method=results.method,
        states=STATES_AT,
    )
    return [*text.splitlines(), ""]


def _smallest(results: BugResults) -> list[str]:
    """The table that the page is for."""
    lines = [*page_texts.SMALLEST.splitlines(), ""]
    for setting in results.settings():
        measured = results.some("known", setting)
        epsilons = epsilons_of(measured)
        rows = []
        for fault in faults_of(measured):
            cells = [_share_cell(results, setting, fault, epsilon) for epsilon in epsilons]
            rows.append([f"`{fault}`", *cells])
        head = ["fault", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
        lines += [f"### {setting.said}", "", _counted(results, setting), ""]
        lines += [*markdown_table(head, rows), ""]
    return lines


def _counted(results: BugResults, setting: BugSetting) -> str:
    measured = [one for one in results.some("known", setting) if one.trial.fault]
    counts = {tally.draws for one in measured for tally in one.tallies}
    seeds = {one.trial.seed for one in measured}
    shares = sorted({share for one in measured for share in one.trial.shares})
    return (
        f"{_range(counts)} draws a seed, fault, share and ε; {len(seeds)} seed(s); shares "
        f"{', '.join(percent(share, 0) for share in shares)}%."
    )


def _range(counts: set[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _share_cell(results: BugResults, setting: BugSetting, fault: str, epsilon: float) -> str:
    own = of_cell(results.some("known", setting), fault, epsilon)
    if not own:
        return "not run"
    said = predicted_share(own)
    found = measured_share(by_share(own))
    bounds = [one.visible for one in own if one.visible is not None]
    bound = min(1.0, min(bounds)) if bounds else 1.0
    return (
        f"{'never' if said is None else percent(said) + '%'} "
        f"({'–' if found is None else percent(found, 0) + '%'}; {percent(bound)}%)"
    )


def _drawn(
    results: BugResults,
) -> tuple[BugSetting, dict[str, dict[float, list[BugTally]]]] | None:
    """What the picture shows: the federation in which most was measured."""
    settings = results.settings()
    if not settings:
        return None
    setting = max(settings, key=lambda one: len(results.some("known", one)))
    measured = results.some("known", setting)
    panels = {
        fault: {
            epsilon: by_share(of_cell(measured, fault, epsilon))
            for epsilon in epsilons_of(measured)
            if of_cell(measured, fault, epsilon)
        }
        for fault in faults_of(measured)
    }
    return setting, panels


def _clean(results: BugResults) -> list[str]:
    rows = []
    for setting in results.settings():
        measured = results.some("known", setting)
        for epsilon in epsilons_of(measured):
            own = [one for one in of_cell(measured, "", epsilon) if not one.trial.fault]
            if not own:
                continue
            (tally,) = by_share(own)
            names = ", ".join(f"`{name}` {count}" for name, count in tally.names.items())
            rows.append(
                [
                    setting.said,
                    f"{epsilon:g}",
                    str(tally.draws),
                    rated(tally.found, tally.draws),
                    rated(tally.refused, tally.draws),
                    rated(tally.flagged, tally.draws),
                    names or "–",
                ]
            )
    head = ["clean data", "ε", "draws", "any finding (%)", "reference refused (%)"]
    head += ["omnibus p ≤ .01 (%)", "named"]
    return [*page_texts.CLEAN.splitlines(), "", *markdown_table(head, rows), ""]


def rated(count: int, total: int) -> str:
    """A rate in percent with its 95% interval; a dash where nothing was counted."""
    if not total:
        return "–"
    low, high = binomial_interval(count, total)
    return f"{percent(count / total, 0)} [{percent(low, 0)}, {percent(high, 0)}]"
