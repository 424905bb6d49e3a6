"""Parts of a Markdown page of results."""

from __future__ import annotations

from collections.abc import Sequence

WIDEST = 7  # Columns of a table at most: more cannot be read on a page


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table.

    Raises:
        ValueError: it has more than `WIDEST` columns.
    """
    if len(head) > WIDEST:
        raise ValueError(f"a table of {len(head)} columns; split it, {WIDEST} are read at most")
    bars = [" | ".join(row) for row in (head, ["---"] * len(head), *rows)]
    return [f"| {bar} |" for bar in bars]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Lines that a reader opens, below a summary."""
    return [f'<details markdown="1"><summary>{summary}</summary>', "", *lines, "", "</details>"]


def picture(title: str, path: str) -> str:
    """A picture with its title for people who cannot see it."""
    return f"![{title}]({path})"
