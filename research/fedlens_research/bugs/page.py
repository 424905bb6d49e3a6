"""The page: the smallest detectable shares first, then what they rest on, then what was not run."""

from __future__ import annotations

import os
from pathlib import Path

from fedlens.foundation.tables import percent
from fedlens.models.faults import FAULTS
from fedlens_research.bugs import page_texts
from fedlens_research.bugs.not_run import not_run
from fedlens_research.bugs.pictures import plot_rates
from fedlens_research.bugs.plan import Question
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
from fedlens_research.bugs.tallies import BugTally, binomial_interval, mean_error
from fedlens_research.bugs.trained_page import trained_lines
from fedlens_research.bugs.worlds import STATES_AT
from fedlens_research.framework.pages import folded, markdown_table, picture

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
    lines += ["", *_clean(results), *_sure(results)] if results.settings() else []
    lines += [*_unknown(results), *_references(results)]
    lines += trained_lines(results, page, images)
    lines += [*(_rates(results) if results.settings() else ()), *not_run(results)]
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
    head += ["omnibus p ≤ .02 (%)", "named"]
    return [*page_texts.CLEAN.splitlines(), "", *markdown_table(head, rows), ""]


def _sure(results: BugResults) -> list[str]:
    rows = []
    for setting in results.settings():
        measured = results.some("known", setting)
        for epsilon in epsilons_of(measured):
            for tally in by_share(of_cell(measured, "*", epsilon)):
                error = mean_error(tally)
                rows.append(
                    [
                        f"{setting.said}, ε = {epsilon:g}",
                        percent(tally.share, 0),
                        rated(tally.found, tally.draws),
                        rated(tally.first, tally.draws),
                        rated(tally.others, tally.draws),
                        "–" if error is None else f"{100 * error:+.1f}",
                        rated(tally.covered, tally.named),
                    ]
                )
    head = ["all faults", "share (%)", "any finding (%)", "named first (%)"]
    head += ["another one too (%)", "share said less true (points)", "interval holds it (%)"]
    return [*page_texts.TOGETHER.splitlines(), "", *markdown_table(head, rows), ""]


def _unknown(results: BugResults) -> list[str]:
    measured = results.some("unknown")
    rows = []
    for fault in faults_of(measured):
        for where, tally in _tallies(results, "unknown", fault):
            names = ", ".join(f"`{name}` {count}" for name, count in tally.names.items())
            rows.append(
                [
                    f"{_outside(fault)}, {where}",
                    percent(tally.share, 0),
                    str(tally.draws),
                    rated(tally.flagged, tally.draws),
                    rated(tally.noticed, tally.draws),
                    rated(tally.found, tally.draws),
                    names or "–",
                ]
            )
    if not rows:
        return []
    head = ["fault", "share (%)", "draws", "omnibus p ≤ .02 (%)"]
    head += ["that, or refused (%)", "something named (%)", "what"]
    return [*page_texts.UNKNOWN.splitlines(), "", *markdown_table(head, rows), ""]


def _outside(fault: str) -> str:
    return f"`{fault}` left out" if fault in FAULTS else fault


def _tallies(results: BugResults, question: Question, fault: str) -> list[tuple[str, BugTally]]:
    found = []
    for setting in results.settings(question):
        measured = results.some(question, setting)
        for epsilon in epsilons_of(measured):
            for tally in by_share(of_cell(measured, fault, epsilon)):
                found.append((f"{setting.said}, ε = {epsilon:g}", tally))
    return found


def _references(results: BugResults) -> list[str]:
    rows = []
    for one in [*results.some("earlier"), *results.some("foreign")]:
        trial = one.trial
        for tally in one.tallies:
            reference = trial.reference or "an earlier run of other users"
            rows.append(
                [
                    f"{trial.data}, {trial.users:,} users, seed {trial.seed}",
                    reference,
                    f"`{trial.fault}` {percent(tally.share, 0)}%" if trial.fault else "none",
                    str(tally.draws),
                    rated(tally.refused, tally.draws),
                    rated(tally.found, tally.draws),
                    rated(tally.first, tally.draws) if trial.fault else "–",
                ]
            )
    if not rows:
        return []
    head = ["users' data", "reference", "fault", "draws", "refused (%)", "any finding (%)"]
    head += ["named first (%)"]
    others = [*results.some("earlier"), *results.some("foreign")]
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in epsilons_of(others))
    text = page_texts.OTHERS.format(epsilons=epsilons)
    return [*text.splitlines(), "", *markdown_table(head, rows), ""]


def _rates(results: BugResults) -> list[str]:
    """Every rate, folded."""
    lines = [*page_texts.EVERY.splitlines(), ""]
    for setting in results.settings():
        measured = results.some("known", setting)
        for epsilon in epsilons_of(measured):
            shares: list[float] = []
            rows = []
            for fault in faults_of(measured):
                tallies = by_share(of_cell(measured, fault, epsilon))
                shares = shares or [tally.share for tally in tallies]
                if tallies:
                    cells = [rated(tally.first, tally.draws) for tally in tallies]
                    rows.append([f"`{fault}`", *cells])
            head = ["fault", *(f"{percent(share, 0)}%" for share in shares)]
            lines += folded(f"{setting.said}, ε = {epsilon:g}", markdown_table(head, rows))
    return [*lines, ""]


def rated(count: int, total: int) -> str:
    """A rate in percent with its 95% interval; a dash where nothing was counted."""
    if not total:
        return "–"
    low, high = binomial_interval(count, total)
    return f"{percent(count / total, 0)} [{percent(low, 0)}, {percent(high, 0)}]"
