"""Texts of separated values as people's programs write them: in any usual encoding and separator.

Encoding: what a mark at the beginning says, else UTF-8, else UTF-16 where every second byte is
zero, else Windows-1252 (of which Latin-1's letters are a part). Separator: of ``,`` ``;`` tab and
``|`` the one that gives the line of names the most of them; Excel's line ``sep=;`` decides.
"""

from __future__ import annotations

import codecs
import csv
from collections.abc import Iterator
from pathlib import Path

SEPARATORS = (",", ";", "\t", "|")
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""UTF-32's before UTF-16's, which begins it."""
WESTERN = "cp1252"
_HEAD, _BLOCK = 4096, 2**20


def delimited_rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Rows with their line, that of the names first; blanks around values and empty lines are gone.

    Raises:
        OSError, UnicodeDecodeError, csv.Error: it is no such text.
    """
    with path.open(newline="", encoding=encoding_of(path)) as stream:
        first = stream.readline()
        said = first.strip()
        if said[:4].casefold() == "sep=" and len(said) == 5:
            separator, first = said[4], stream.readline()
        elif said.casefold() == "sep=":  # the tab was a blank of the line's end
            separator, first = "\t", stream.readline()
        else:
            separator = _separator(first)
        stream.seek(0)
        lines = csv.reader(stream, delimiter=separator)
        for row in lines:
            if len(row) > 0 and not _is_hint(lines.line_num, row):
                yield lines.line_num, [value.strip() for value in row]


def _is_hint(line: int, row: list[str]) -> bool:
    return line == 1 and row[0].casefold().startswith("sep=") and len("".join(row)) <= 5


def _separator(names: str) -> str:
    """The first of those by which the line has the most names."""
    return max(SEPARATORS, key=lambda one: len(next(csv.reader([names], delimiter=one), [])))


def encoding_of(path: Path) -> str:
    """What a text is written in, by its mark, its head or all of it."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
        for mark, name in _MARKS.items():
            if head.startswith(mark):
                return name
        if b"\0" in head:
            even, odd = head[0::2].count(0), head[1::2].count(0)
            return "utf-16-le" if odd > even else "utf-16-be"
        file.seek(0)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            while block := file.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return WESTERN
    return "utf-8"
