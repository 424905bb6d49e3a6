"""The page of results: written from what was measured, never by hand."""

from __future__ import annotations

import math
import shutil
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path

from fedlens.data.registry import spec_of
from fedlens.foundation.rounding import rounded_up
from fedlens.foundation.tables import decimals, percent
from fedlens_research.framework.pages import folded, markdown_table, picture
from fedlens_research.table1.charts import plot_labels, plot_privacy
from fedlens_research.table1.goals import goal_rows
from fedlens_research.table1.literature import DATA, PublishedFigure, published_figures
from fedlens_research.table1.page_texts import HEAD, MEANING, PROMISES
from fedlens_research.table1.record import picture_name
from fedlens_research.table1.rows import OPEN
from fedlens_research.table1.table import (
    COLUMNS,
    Shown,
    TableLine,
    accuracy,
    by_data,
    counts,
    share,
)

Columns = Mapping[str, Shown]
IMAGES = Path("images") / "results"


def _as_printed(*names: str) -> Columns:
    return {name: COLUMNS[name] for name in names}


def _epsilon(key: str) -> Shown:
    """Four digits, rounded up: what is shown holds. None and infinity promise nothing."""

    def shown(line: TableLine) -> str:
        value = line.most("training", key)
        return "none" if value is None or math.isinf(value) else f"{rounded_up(value, 4):.4g}"

    return shown


_NAMED: Columns = {
    "row": lambda line: line.row.title,
    "guarantee": lambda line: line.guarantee.words,
}
_FIGURES: Columns = {
    **_NAMED,
    **_as_printed("seeds"),
    "student": lambda line: f"**{accuracy(line)}**",
    **_as_printed("control", "annotator", "recognised"),
}
_STUDENTS: Columns = {
    **_NAMED,
    "MLP": lambda line: accuracy(line, "mlp"),
    "residual": lambda line: accuracy(line, "residual"),
    **_as_printed("best of 3", "own labels"),
}
_UNFILTERED: Columns = {"unfiltered": share("recognised_unfiltered")}
_SAMPLES = {**_NAMED, **_UNFILTERED, **_as_printed("Fréchet", "coverage", "density")}
_COST: Columns = {**_NAMED, "s": COLUMNS["seconds"], **_as_printed("MiB")}
_GUARANTEES: Columns = {
    **_NAMED,
    "DP ε": _epsilon("epsilon_dp"),
    "δ": lambda line: f"{line.most('training', 'delta_dp'):g}",
    "BDP ε, sound": _epsilon("bdp_sound"),
    "corrected": _epsilon("bdp_corrected"),
    "as published": _epsilon("bdp_as_published"),
}


def write_page(path: Path, lines: Sequence[TableLine], plots: Path) -> list[Path]:
    """Write the Markdown page, pictures in ``images/results`` beside it, plots in ``plots``.

    Returns:
        The files that were written, contact sheets aside.
    """
    folder = path.parent / IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    published = published_figures()
    made = (
        plot_privacy(lines, published, plots / "accuracy-epsilon.png"),
        plot_labels(lines, published, plots / "accuracy-labels.png"),
    )
    drawn = [plot for plot in made if plot is not None]
    for plot in drawn:
        _copy(plot, folder / plot.name)
    parts = [
        *_tables(lines),
        *_plots(lines, {plot.stem for plot in drawn}),
        *_published(published),
        *_guarantees(lines),
        *_aims(lines),
        *_faults(lines),
        *_section("What the columns say", folded("Every column", _meaning(lines))),
        *_sheets(lines, folder),
    ]
    path.write_text(HEAD + "\n".join(parts), encoding="utf-8")
    return [*drawn, path]


def _copy(source: Path, target: Path) -> None:
    if source.resolve() != target.resolve():
        shutil.copyfile(source, target)


def _section(title: str, *parts: Sequence[str]) -> list[str]:
    """A heading and its parts, with an empty line after each."""
    return [f"## {title}", "", *(line for part in parts for line in (*part, ""))]


def _columned(columns: Columns, lines: Iterable[TableLine]) -> list[str]:
    rows = [[show(line) for show in columns.values()] for line in lines]
    return markdown_table(list(columns), rows)


def _tables(lines: Sequence[TableLine]) -> list[str]:
    parts = []
    for data, own in by_data(line for line in lines if not line.row.fault).items():
        parts += _section(
            f"{spec_of(data).title}: how well does a student of samples alone do?",
            _columned(_FIGURES, own),
            folded("Other students", _columned(_STUDENTS, own)),
            folded("Samples beside real images", [*_columned(_SAMPLES, own), "", *_real(own[0])]),
            folded("Seconds and memory of training", _columned(_COST, own)),
        )
    return parts


def _real(line: TableLine) -> list[str]:
    return [
        "Real training images in the samples' place: Fréchet "
        f"{decimals(line.mean('real', 'frechet'), 1)}, coverage "
        f"{decimals(line.mean('real', 'coverage'), 2)}, density "
        f"{decimals(line.mean('real', 'density'), 2)}; the LeNet recognises "
        f"{percent(line.mean('recognised_real'))}% of real test images."
    ]


def _meaning(lines: Sequence[TableLine]) -> list[str]:
    groups = [group.figures for line in lines for group in line.groups]
    threads = sorted({int(f["training.threads"].mean) for f in groups if "training.threads" in f})
    told = " or ".join(str(count) for count in threads)
    noun = "one thread" if threads == [1] else f"{told} threads"
    return MEANING.format(images=_told_images(lines), threads=noun).rstrip().split("\n")


def _told_images(lines: Sequence[TableLine]) -> str:
    told = [
        (data, counts(sorted({count for line in own for count in line.images})))
        for data, own in by_data(lines).items()
    ]
    others = "; ".join(f"{data}: {text}" for data, text in told[1:])
    return told[0][1] + (f" ({others})" if others else "")


def _aims(lines: Sequence[TableLine]) -> list[str]:
    rows = goal_rows([line for line in lines if line.whole])
    if not rows:
        return []
    head = ["row", "figure", "guarantee", "aim, %", "measured, %"]
    said = (
        "Set before the recipe was built. Settings were chosen on training images held out, not by "
        "what is compared with an aim here, but for one: how sure the annotator must be of a "
        "sample was chosen by *recognised*, with the students' accuracy in view."
    )
    reached = sum(row[-1].endswith("reached") for row in rows)
    summary = f"{reached} of {len(rows)} aims are reached"
    return _section("Which aims were reached?", [said], folded(summary, markdown_table(head, rows)))


def _published(published: Sequence[PublishedFigure]) -> list[str]:
    if not published:
        return []
    head = [
        "method",
        "unit",
        "guarantee",
        *(spec_of(data).title for data in DATA),
        "picked",
        "source",
    ]
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for one in sorted(published, key=lambda p: (p.epsilon, -p.accuracy)):
        link = f"[{one.source}]({one.url})"
        public = f" (learned from public data: {one.public_data})" if one.public_data else ""
        terms = (one.method + public, one.unit, one.guarantee, one.kind, link)
        found.setdefault(terms, {})[one.data] = one.accuracy
    rows = [
        [*terms[:3], *(f"{given[d]:g}" if d in given else "–" for d in DATA), *terms[3:]]
        for terms, given in found.items()
    ]
    said = (
        "In percent. Students trained on private synthetic images and tested on real ones. Compare "
        "figures of the same unit, notion and δ only: BDP at δ = 1e-10 needs less noise than DP at "
        "ε = 1, and the paper's generator and annotator have such a guarantee each. The best of "
        "three classifiers lies above their mean. We found no published accuracy of a *user-level* "
        "guarantee with ε ≤ 10 on these data."
    )
    table = folded(f"{len(rows)} published figures", markdown_table(head, rows))
    return _section("What others publish", [said], table)


def _guarantees(lines: Sequence[TableLine]) -> list[str]:
    """Differential privacy and Bayesian differential privacy of every line, never one alone."""
    deltas = dict.fromkeys(f"{line.most('training', 'delta_bdp'):g}" for line in lines)
    said = f"{PROMISES}The δ of Bayesian differential privacy is {' or '.join(deltas)}."
    table = folded("Every row", _columned(_GUARANTEES, lines))
    return _section("What each row promises", [said], table)


def _plots(lines: Sequence[TableLine], drawn: Container[str]) -> list[str]:
    parts = []
    if "accuracy-epsilon" in drawn:
        shown = _picture("Accuracy against ε", "accuracy-epsilon.png")
        parts += _section("What does privacy cost?", [shown])
    if "accuracy-labels" in drawn:
        said = (
            "A student of n labelled synthetic samples and changed copies of them. In a person's "
            "place the LeNet trained on real images gives the labels, so this is what a careful "
            "annotator's labels would be worth; it says nothing about privacy. *And guesses*: a "
            "second student learns from the first one's answers on samples without a label."
        )
        shown = _picture("Accuracy against labelled samples", "accuracy-labels.png")
        table = folded("Every number of labels", _label_table(lines))
        parts += _section("How many samples must a person label?", [said], [shown], table)
    return parts


def _label_table(lines: Sequence[TableLine]) -> list[str]:
    rows = [
        [
            line.row.title,
            line.guarantee.words,
            f"{point['labels']:.0f}",
            *(percent(point[key]) for key in ("annotated", "extended", "requested")),
        ]
        for line in lines
        for point in line.curve()
    ]
    head = ["row", "guarantee", "labelled samples", "labels in a person's place", "and guesses"]
    return markdown_table([*head, "own labels"], rows)


def _faults(lines: Sequence[TableLine]) -> list[str]:
    clean = {(line.row.name, str(line.guarantee)): line for line in lines}
    faulty = [line for line in lines if line.row.fault]
    if not faulty:
        return []

    def beside(line: TableLine) -> str:
        found = clean.get((line.row.clean, str(line.guarantee)))
        return percent(found.mean("judged_rotated") if found else None)

    columns: Columns = {
        **_NAMED,
        "planted, %": lambda line: percent(line.row.fault, 0),
        "samples judged rotated, %": share("judged_rotated"),
        "of a clean run, %": beside,
        "of real test images, %": share("judged_rotated_real"),
    }
    picked = share("judged_rotated_unfiltered")
    more: Columns = {
        **_NAMED,
        "judged rotated before the annotator picks, %": picked,
        **_as_printed("student", "control"),
    }
    said = (
        "Some users' (or records') images are rotated by 90 degrees before anything is trained. A "
        "LeNet trained on upright and rotated real images judges the samples; of a clean run's it "
        "takes some for rotated too."
    )
    details = folded("Before the annotator picks, and students", _columned(more, faulty))
    return _section(
        "How much of a planted fault is left?", [said], _columned(columns, faulty), details
    )


def _sheets(lines: Sequence[TableLine], folder: Path) -> list[str]:
    parts = []
    for line in lines:
        if not line.sheet.is_file() or (str(line.guarantee) == OPEN and line.row.fault):
            continue
        name = picture_name(line)
        _copy(line.sheet, folder / name)  # or it is there from an earlier page
        title = f"{line.row.title}, {line.guarantee.words}"
        parts += [*folded(title, [_picture(f"Samples: {title}", name)]), ""]
    said = "Not picked: the first eight of each class, of the first seed."
    return _section("What do the samples look like?", [said], parts)


def _picture(title: str, name: str) -> str:
    return picture(title, (IMAGES / name).as_posix())
