"""Texts from outside stand on a page letter by letter, and change nothing that follows them."""

from __future__ import annotations

import pytest

from fedlens.dashboard.widgets.markup import plain, text

RIGHT_TO_LEFT = "\u202e"


@pytest.mark.parametrize("line", ["===", "=", "---"])
def test_no_line_below_a_text_makes_a_heading_of_it(line: str) -> None:
    below = plain(f"title\n{line}").splitlines()[1]
    assert below == "\\" + ("\\".join(line) if line[0] == "-" else line)


@pytest.mark.parametrize("indent", ["    ", "\t", " \t "])
def test_an_indent_makes_no_code(indent: str) -> None:
    said = plain(f"a\n\n{indent}*b*")
    assert said.splitlines()[2] == "\u00a0" * len(indent) + r"\*b\*"


@pytest.mark.parametrize("sign", [RIGHT_TO_LEFT, "\u2066", "\u2028", "\x1b", "\x00", "\r"])
def test_signs_that_turn_or_cut_what_follows_are_seen(sign: str) -> None:
    for shown in (plain(f"name{sign}words"), text(f"name{sign}words")):
        assert sign not in shown
        assert f"{ord(sign):04X}" in shown


@pytest.mark.parametrize("kept", ["שלום", "日本語", "naïve", "a\nb", "a\r\nb"])
def test_letters_and_line_breaks_stay(kept: str) -> None:
    assert plain(kept) == text(kept) == kept.replace("\r\n", "\n")
