"""A dated statement to sign and file: the twelve answers, as one HTML file and as a PDF.

Both hold text alone, which can be selected and searched. Nothing in them is a script or an address.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedlens.dashboard.privacy.answers import Answer, Report, answers, standing
from fedlens.dashboard.widgets.markup import card, tag, text, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIGNATURES = ("Privacy officer", "Name", "Place and date", "Signature")
BELOW = (
    "Made by fedlens from the ledgers named here. A head is the hash of a ledger's last line and "
    "pins all lines before it: compare it with the next statement's ledger."
)


def title_of(report: Report) -> str:
    """What the statement is of, and on which day."""
    return f"Privacy statement, {report.title}, {report.day:%Y-%m-%d}"


def answer_card(number: int, answer: Answer) -> str:
    """One answer as a card's inner HTML."""
    rows = "".join(f"<dt>{text(name)}</dt><dd>{text(said)}</dd>" for name, said in answer.facts)
    facts = f'<dl class="facts">{rows}</dl>' if rows else ""
    return (
        f'<p class="over">Question {number} of 12</p><h3>{text(answer.question)}</h3>'
        f"<p>{text(answer.said)}</p>{facts}"
    )


_STYLE = (Path(__file__).parents[1] / "widgets" / "theme.css").read_text(encoding="utf-8")
_PAGE = """
body { margin: 2rem auto; max-width: 60rem; padding: 0 1.5rem; background: var(--well);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; }
.card { height: auto; margin: 0 0 0.8rem; break-inside: avoid; }
.facts dd { overflow-wrap: anywhere; }
.sign { display: grid; grid-template-columns: 10rem 1fr; gap: 1.6rem 1rem; margin-top: 1.5rem; }
.sign i { border-bottom: 1px solid var(--ink); }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(report: Report) -> str:
    """The statement as one HTML file; every text in it is escaped."""
    words, kind = standing(report)
    cards = "".join(
        card(answer_card(number, answer), answer.kind)
        for number, answer in enumerate(answers(report), start=1)
    )
    lines = "".join(f"<span>{text(one)}</span><i></i>" for one in SIGNATURES)
    title = text(title_of(report))
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{text(_POLICY)}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}{_PAGE}</style></head><body><main>"
        f"<h1>{title}</h1><p>{tag(words, kind)}</p>{cards}"
        f'{card(f"<p>{text(BELOW)}</p>")}{card(f"""<div class="sign">{lines}</div>""")}'
        "</main></body></html>\n"
    )


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 8.27, 11.69, 0.9, 0.9, 0.8
"""Of A4 and its margins, in inches."""
LINE, SIZE = 0.175, 9.0
FONT = "DejaVu Sans"
"""It comes with the library, so that the file is the same on each machine."""
NAMES = 1.55
"""Inches that names of facts take."""
_COLUMNS, _FACT_COLUMNS = 94, 72
"""Characters that fit on a line of the whole width, and beside a name."""


@dataclass(frozen=True)
class _Line:
    """One line of the PDF."""

    said: str
    bold: bool = False
    size: float = SIZE
    indent: float = 0.0
    name: str = ""
    """Before it, in its own column."""
    before: float = 0.0
    """Inches left free above it."""


def as_pdf(report: Report) -> bytes:
    """The statement as a PDF of A4 pages, its fonts in it."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_pdf import PdfPages

    made = io.BytesIO()
    pages = list(_pages(_lines(report)))
    known = {"Title": visible(title_of(report)), "Creator": "fedlens", "CreationDate": None}
    with rc_context({"pdf.fonttype": 42}), PdfPages(made, metadata=known) as file:
        for number, lines in enumerate(pages, start=1):
            foot = f"{title_of(report)} · page {number} of {len(pages)}"
            file.savefig(_drawn(lines, foot))
    return made.getvalue()


def _lines(report: Report) -> Iterator[_Line]:
    yield from _wrapped(title_of(report), 60, bold=True, size=14)
    yield _Line(f"Standing: {standing(report)[0]}", before=0.1)
    for number, answer in enumerate(answers(report), start=1):
        head = f"{number}. {answer.question}"
        yield from _wrapped(head, 88, bold=True, size=10, before=0.2)
        yield from _wrapped(answer.said, _COLUMNS)
        for name, said in answer.facts:
            yield from _fact(name, said)
    yield from _wrapped(BELOW, _COLUMNS, before=0.25)
    for one in SIGNATURES:
        yield _Line("_" * 48, name=one, indent=NAMES, before=0.25)


def _wrapped(
    said: str, columns: int, *, bold: bool = False, size: float = SIZE, before: float = 0.0
) -> Iterator[_Line]:
    for place, line in enumerate(textwrap.wrap(visible(said), columns) or [""]):
        yield _Line(line, bold=bold, size=size, before=0.0 if place else before)


def _fact(name: str, said: str) -> Iterator[_Line]:
    names = textwrap.wrap(visible(name), 21) or [""]
    lines = textwrap.wrap(visible(said), _FACT_COLUMNS) or [""]
    for place in range(max(len(names), len(lines))):
        yield _Line(
            lines[place] if place < len(lines) else "",
            indent=NAMES,
            name=names[place] if place < len(names) else "",
        )


def _pages(lines: Iterator[_Line]) -> Iterator[list[tuple[float, _Line]]]:
    """Lines with their places, in inches from the top, page by page."""
    page: list[tuple[float, _Line]] = []
    place = TOP
    for line in lines:
        place += line.before + LINE * line.size / SIZE
        if place > HEIGHT - BOTTOM:
            yield page
            page, place = [], TOP + LINE
        page.append((place, line))
    yield page


def _drawn(lines: list[tuple[float, _Line]], foot: str) -> Figure:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT))
    for place, line in lines:
        high = 1 - place / HEIGHT
        if line.name:
            _put(figure, LEFT, high, line.name, line.size, colour="#52606f")
        _put(figure, LEFT + line.indent, high, line.said, line.size, bold=line.bold)
    _put(figure, LEFT, 0.4 / HEIGHT, foot, 7.0, colour="#52606f")
    return figure


def _put(
    figure: Figure,
    left: float,
    high: float,
    said: str,
    size: float,
    *,
    bold: bool = False,
    colour: str = "#17212d",
) -> None:
    weight = "bold" if bold else "normal"
    figure.text(
        left / WIDTH,
        high,
        said,
        size=size,
        weight=weight,
        color=colour,
        family=FONT,
        parse_math=False,
    )
