"""What lies in a file's place, where the file itself does not: a pointer, a page, another kind."""

from __future__ import annotations

from pathlib import Path

_POINTER = "a pointer of Git LFS: fetch the file itself with git lfs pull"
_PAGE = "a web page, as a failed download leaves it: fetch the file itself"
_OLD_OFFICE = "a file of Excel or Word, old or under a password: save it as CSV"
_STARTS = {
    b"version https://git-lfs": _POINTER,
    b"<!doctype html": _PAGE,
    b"<html": _PAGE,
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": _OLD_OFFICE,
    b"%pdf-": "a PDF, whatever its name says",
}
_HEAD = 64


def in_place_of(file: Path) -> str:
    """What a file is that cannot be what its name says, and the way out; empty of any other."""
    try:
        if not file.is_file():
            return ""
        with file.open("rb") as stream:
            head = stream.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    except (OSError, ValueError):
        return ""
    return next((what for start, what in _STARTS.items() if head.startswith(start)), "")
