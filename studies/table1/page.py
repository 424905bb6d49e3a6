"""The page of results: written from what was measured, never by hand."""

from __future__ import annotations

import math
import shutil
from collections.abc import Container, Sequence
from pathlib import Path

from simulations.students.students import ARCHITECTURES
from studies.table1.charts import NAMES, plot_labels, plot_privacy
from studies.table1.goals import goal_rows
from studies.table1.literature import Published, published_figures
from studies.table1.record import picture_name
from studies.table1.rows import OPEN
from studies.table1.table import Line, accuracy, counts, decimals, percent

IMAGES = Path("images") / "results"
SHOWN = ("mnist", "fashion-mnist")
"""The data that others publish figures of."""
HEAD = """# Results

Written by `fedlens study table1` from what it measured; do not edit.

```bash
fedlens study table1 --quick
fedlens study table1 --rows mnist-record --seeds 0 1 2 --guarantee 1@1e-10
```

The first takes about sixteen minutes on two cores that have nothing else to do, and its
students see half as many images as those of the full table. Without
arguments the command fills in whatever the folder `runs/study` still lacks of the whole table; it
can be stopped at any time.

**All of this is simulation.** Accuracies are measured with real test images, which only somebody
who owns them can do, and which no guarantee covers. Test images, and the networks trained on real
training images that judge samples, are used to measure: no generator and no annotator depends on
them, and of samples one setting, how sure the annotator must be of them.

"""
MEANING = """## What the columns say

Every guarantee is one budget for all that a run releases: the critic's rounds, the annotator's rounds,
and class masses, in one ledger. It is differential privacy by noise calibrated to the clip, which
implies Bayesian differential privacy at the same δ (but for a row "as published", and rows without
privacy: see what each row promises). Users: all images of one person; records: one
image of one silo.

| column | meaning |
|---|---|
| student | share of real test images that a small convolutional network gets right which saw {lesson} synthetic images alone: samples, changed samples (digits: affine maps; clothes: mirror images, and samples are moved a little) and mixtures of samples, labelled softly by the private annotator after the change. Mean ± deviation over seeds |
| MLP, residual | the same for two other students |
| best of 3 | the best of the three students of each seed, mean over seeds: how several others report theirs |
| own labels | the convolutional student with the classes that samples were asked for, without the annotator's labels |
| control | the first student with public noise images in the generator's place and the same annotator: what the annotator alone would teach. A generator is worth what is above it |
| annotator | the private annotator itself on real test images |
| recognised | share of samples whose requested class an independent LeNet sees in them, trained on real training images |
| unfiltered | the same before the annotator picks among candidates |
| Fréchet | squared Fréchet distance (Heusel et al. 2017, eq. 6) between real test images and samples in the features of that LeNet; smaller is better, comparable within this page only |
| coverage, density | Naeem et al. 2020, k = 5, in the same features: share of real images with a sample in their neighbourhood; how deep samples lie among real images |
| s, MiB | seconds and peak memory of training, nodes and server in one process, {threads}; not all rows were measured on the same machine, nor alone on it |

Rows without an annotator (the iterative critic alone, and the recipe as published) have students of
requested classes only. They have no control: noise images with requested classes say nothing of digits.

All rows were trained and measured on processors, without graphics processors. On Fashion-MNIST the
annotator's learning rate depends on the guarantee (`studies/table1/rows.py`).
"""  # noqa: E501


PROMISES = """\
The first holds for every person, however unusual. Bayesian differential privacy holds on average
over people drawn like those who took part, which is an assumption: *sound* with confidence bounds
for every distribution within the clip, *corrected* an estimate, *as published* the formulas of
arXiv:2003.00997, for comparison alone. The largest of all seeds. Where nodes report no norms, or
distances say nothing that is certain, the sound figure is that of differential privacy at its δ.
"""


def write_page(path: Path, lines: Sequence[Line], plots: Path) -> list[Path]:
    """Write the Markdown page with its plots and contact sheets beside it.

    Args:
        path: the page; pictures go to ``images/results`` beside it.
        lines: of the table.
        plots: folder for the plots, from which those of the page are copied.

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
    parts = [HEAD, _tables(lines), _aims(lines), _meaning(lines)]
    parts += [_guarantees(lines), _published(published)]
    parts += [_plots(lines, {plot.stem for plot in drawn}), _faults(lines), _sheets(lines, folder)]
    path.write_text("\n".join(part for part in parts if part), encoding="utf-8")
    return [*drawn, path]


def _copy(source: Path, target: Path) -> None:
    if source.resolve() != target.resolve():
        shutil.copyfile(source, target)


def _lessons(lines: Sequence[Line]) -> str:
    found: dict[str, set[int]] = {}
    for line in lines:
        found.setdefault(line.row.data, set()).update(line.images)
    told = [(data, counts(sorted(images))) for data, images in found.items()]
    others = "; ".join(f"{data}: {text}" for data, text in told[1:])
    return told[0][1] + (f" ({others})" if others else "")


def _meaning(lines: Sequence[Line]) -> str:
    groups = [group.figures for line in lines for group in line.groups]
    threads = sorted({int(f["training.threads"].mean) for f in groups if "training.threads" in f})
    told = " or ".join(str(count) for count in threads)
    noun = "one thread" if threads == [1] else f"{told} threads"
    return MEANING.format(lesson=_lessons(lines), threads=noun)


def _tables(lines: Sequence[Line]) -> str:
    shown = [line for line in lines if not line.row.fault]
    parts = []
    for data, name in NAMES.items():
        own = [line for line in shown if line.row.data == data]
        if own:
            real = own[0]
            parts += [f"## {name}", "", *_table(own), "", _reference(real), ""]
    return "\n".join(parts)


def _table(lines: Sequence[Line]) -> list[str]:
    others = [name for name in ARCHITECTURES if name != "cnn"]
    titles = {"mlp": "MLP", "residual": "residual"}
    head = ["row", "guarantee", "seeds", "student", *(titles[name] for name in others)]
    head += [
        "best of 3",
        "own labels",
        "control",
        "annotator",
        "recognised",
        "unfiltered",
        "Fréchet",
    ]
    head += ["coverage", "density", "s", "MiB"]
    rows = []
    for line in lines:
        rows.append(
            [
                line.row.title,
                line.guarantee.words,
                str(len(line.seeds)),
                f"**{accuracy(line)}**",
                *(accuracy(line, name) for name in others),
                percent(line.best()),
                *(percent(line.mean(key)) for key in ("own_label", "control", "annotator")),
                *(percent(line.mean(key)) for key in ("recognised", "recognised_unfiltered")),
                decimals(line.mean("frechet"), 1),
                decimals(line.mean("coverage"), 2),
                decimals(line.mean("density"), 2),
                decimals(line.mean("training", "seconds"), 0),
                decimals(line.most("training", "peak_mb"), 0),
            ]
        )
    return markdown_table(head, rows)


def _reference(line: Line) -> str:
    return (
        "Real training images in the samples' place: Fréchet "
        f"{decimals(line.mean('real', 'frechet'), 1)}, coverage "
        f"{decimals(line.mean('real', 'coverage'), 2)}, density "
        f"{decimals(line.mean('real', 'density'), 2)}; the LeNet recognises "
        f"{percent(line.mean('recognised_real'))}% of real test images."
    )


def _aims(lines: Sequence[Line]) -> str:
    rows = goal_rows([line for line in lines if line.whole])
    head = ["row", "figure", "guarantee", "aim, %", "measured, %"]
    said = (
        "Set before the recipe was built. Settings were chosen on training images held out, not by "
        "what is compared with an aim here, but for one: how sure the annotator must be of a "
        "sample was chosen by *recognised*, with the students' accuracy in view."
    )
    return "\n".join(["## Aims", "", said, "", *markdown_table(head, rows), ""]) if rows else ""


def _published(published: Sequence[Published]) -> str:
    if not published:
        return ""
    head = ["method", "unit", "guarantee", *(NAMES[data] for data in SHOWN), "picked"]
    head += ["public data", "source"]
    found: dict[tuple[str, ...], dict[str, float]] = {}
    for one in sorted(published, key=lambda p: (p.epsilon, -p.accuracy)):
        link = f"[{one.source}]({one.url})"
        terms = (one.method, one.unit, one.guarantee, one.kind, one.public_data or "none", link)
        found.setdefault(terms, {})[one.data] = one.accuracy
    rows = [
        [*terms[:3], *(f"{given[d]:g}" if d in given else "–" for d in SHOWN), *terms[3:]]
        for terms, given in found.items()
    ]
    said = (
        "## What others publish\n\n"
        "In percent. Students trained on private synthetic images and tested on real ones. Compare "
        "figures of the same unit, notion and δ only: BDP at δ = 1e-10 needs less noise than DP at "
        "ε = 1, and the paper's generator and annotator have such a guarantee each. The best of "
        "three classifiers lies above their mean. We found no published accuracy of a *user-level* "
        "guarantee with ε ≤ 10 on these data.\n\n"
    )
    return said + "\n".join(markdown_table(head, rows)) + "\n"


def _guarantees(lines: Sequence[Line]) -> str:
    """Differential privacy and Bayesian differential privacy of every line, never one alone."""
    rows = []
    for line in lines:
        found = line.to_json()
        bayesian = found["epsilon_bdp"]
        rows.append(
            [
                line.row.title,
                line.guarantee.words,
                _epsilon(found["epsilon_dp"]),
                f"{found['delta_dp']:g}",
                *(_epsilon(bayesian[name]) for name in ("sound", "corrected", "as_published")),
                f"{found['delta_bdp']:g}",
            ]
        )
    head = ["row", "guarantee", "DP ε", "δ", "BDP ε, sound", "corrected", "as published", "δ"]
    return "\n".join(["## What each row promises", "", PROMISES, *markdown_table(head, rows), ""])


def _epsilon(value: float | None) -> str:
    """Four digits, rounded up: what is shown holds."""
    if value is None or math.isinf(value):
        return "none"
    if not value:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return f"{math.ceil(value / unit - 1e-9) * unit:.4g}"


def _plots(lines: Sequence[Line], drawn: Container[str]) -> str:
    parts = []
    if "accuracy-epsilon" in drawn:
        picture = _picture("Accuracy against ε", "accuracy-epsilon.png")
        parts += ["## Accuracy against ε", "", picture]
    if "accuracy-labels" in drawn:
        parts += [
            "\n## Accuracy against the number of labelled samples",
            "",
            "A student of n labelled synthetic samples and changed copies of them. In a person's "
            "place the LeNet trained on real images gives the labels, so this is what a careful "
            "annotator's labels would be worth; it says nothing about privacy. *And guesses*: a "
            "second student learns from the first one's answers on samples that nobody labelled.",
            "",
            _picture("Accuracy against labelled samples", "accuracy-labels.png"),
            "",
            *_label_table(lines),
        ]
    return "\n".join([*parts, ""]) if parts else ""


def _label_table(lines: Sequence[Line]) -> list[str]:
    rows = [
        [
            line.row.title,
            line.guarantee.words,
            f"{point['labels']:.0f}",
            percent(point["annotated"]),
            percent(point["extended"]),
            percent(point["requested"]),
        ]
        for line in lines
        for point in line.curve()
    ]
    head = [
        "row",
        "guarantee",
        "labelled samples",
        "labels in a person's place",
        "and guesses",
        "own labels",
    ]
    return markdown_table(head, rows)


def _faults(lines: Sequence[Line]) -> str:
    clean = {(line.row.name, str(line.guarantee)): line for line in lines}
    rows = []
    for line in lines:
        beside = clean.get((line.row.clean, str(line.guarantee)))
        if line.row.fault:
            rows.append(
                [
                    line.row.title,
                    line.guarantee.words,
                    percent(line.row.fault, 0),
                    percent(line.mean("judged_rotated")),
                    percent(line.mean("judged_rotated_unfiltered")),
                    percent(beside.mean("judged_rotated") if beside else None),
                    percent(line.mean("judged_rotated_real")),
                    accuracy(line),
                    percent(line.mean("control")),
                ]
            )
    if not rows:
        return ""
    head = ["row", "guarantee", "planted, %", "samples judged rotated, %"]
    head += ["before the annotator picks, %", "of a clean run, %"]
    head += ["of real test images, %", "student", "control"]
    said = (
        "## How much of a planted fault is left\n\n"
        "Some users' (or records') images are rotated by 90 degrees before anything is trained. A "
        "LeNet trained on upright and rotated real images judges the samples; of a clean run's it "
        "takes some for rotated too.\n\n"
    )
    return said + "\n".join(markdown_table(head, rows)) + "\n"


def _sheets(lines: Sequence[Line], folder: Path) -> str:
    parts = ["## Samples", "", "Not picked: the first eight of each class, of the first seed.", ""]
    for line in lines:
        if not line.sheet.is_file() or (str(line.guarantee) == OPEN and line.row.fault):
            continue
        name = picture_name(line)
        _copy(line.sheet, folder / name)  # or it is there from an earlier page
        title = f"{line.row.title}, {line.guarantee.words}"
        parts += [f"### {title}", "", _picture(f"Samples: {title}", name), ""]
    return "\n".join(parts)


def _picture(said: str, name: str) -> str:
    return f"![{said}]({(IMAGES / name).as_posix()})"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    bars = [" | ".join(row) for row in (head, ["---"] * len(head), *rows)]
    return [f"| {bar} |" for bar in bars]
