"""Write docs/laws.md: each law of docs/laws.toml with the tests that are marked with it.

    python docs/make_laws.py

A test says which law it holds by `@pytest.mark.law("NAME")`; a whole file or class can say it too.
The tests are read, not run, so the page costs nothing and cannot depend on what is installed.
"""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LAWS = "docs/laws.toml"
PAGE = "docs/laws.md"
NOT_HELD = "Not held yet:"
HEAD = """# The laws, and the tests that hold them

Written by `python docs/make_laws.py` from `docs/laws.toml` and from the markers in the tests.

Every promise of fedlens stands here with the tests that fail when it breaks. The build fails if a
law has no test. **Not held yet:** marks what no test holds, so do not rely on it. How the promises
add up to a proof: [the proof, step by step](proof.md).
"""


@dataclass(frozen=True)
class MarkedTest:
    """A test, a class of tests or a whole file that holds a law."""

    law: str
    file: str
    """Below the checkout."""
    name: str
    """As in `Class::test`; empty for a whole file."""


def read_laws(root: Path) -> list[dict[str, Any]]:
    """The chapters: `title`, `about`, `not_held` (texts) and `law` (`name`, maybe `means`)."""
    chapters: list[dict[str, Any]] = tomllib.loads((root / LAWS).read_text("utf-8"))["chapter"]
    return chapters


def find_marked_tests(root: Path) -> list[MarkedTest]:
    """Every test with a marker, in the order of files and lines."""
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        file = str(path.relative_to(root))
        found += [MarkedTest(law, file, name) for law, name in _laws_in(path)]
    return found


def _laws_in(path: Path) -> Iterator[tuple[str, str]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from ((law, "") for law in _laws_of(node.value))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from _laws_on(node, node.name)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield from _laws_on(inner, f"{node.name}::{inner.name}")


def _laws_on(node: ast.FunctionDef | ast.ClassDef, name: str) -> Iterator[tuple[str, str]]:
    for decorator in node.decorator_list:
        yield from ((law, name) for law in _laws_of(decorator))


def _laws_of(marks: ast.expr) -> Iterator[str]:
    """Names in each `pytest.mark.law(...)` of an expression."""
    for call in ast.walk(marks):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "pytest.mark.law":
            yield from (str(ast.literal_eval(argument)) for argument in call.args)


def render(root: Path = ROOT) -> str:
    """The text of the page."""
    tests = defaultdict(list)
    for test in find_marked_tests(root):
        tests[test.law].append(test)
    lines = [HEAD]
    for chapter in read_laws(root):
        lines += [f"## {chapter['title']}", "", chapter["about"], ""]
        for law in chapter.get("law", ()):
            lines += [_said(law), _tests(tests[law["name"]])]
        lines += [""]
        for text in chapter.get("not_held", ()):
            lines += [
                f"**{NOT_HELD}** {text[0].lower() if text[:2] != 'If' else text[0]}{text[1:]}",
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def _said(law: dict[str, str]) -> str:
    """The law in bold, without the chapter's word before the colon, and what it means."""
    name = law["name"].partition(": ")[2] or law["name"]
    return f"- **{name[0].upper()}{name[1:]}.** {law.get('means', '')}".rstrip()


def _tests(tests: list[MarkedTest]) -> str:
    """The tests of a law, folded, one name after the other under their files."""
    files: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        files[test.file].append(test.name)
    shown = [
        ", ".join(f"`{file}{'::' if name else ''}{name}`" for name in names)
        for file, names in files.items()
    ]
    count = "1 test" if len(tests) == 1 else f"{len(tests)} tests"
    return f"  <details><summary>{count}</summary>\n\n  {', '.join(shown)}\n\n  </details>"


def law_faults(root: Path = ROOT) -> Iterator[str]:
    """Laws without a test, markers of laws that there are not, and a page that is out of date."""
    laws = [law["name"] for chapter in read_laws(root) for law in chapter.get("law", ())]
    marked = find_marked_tests(root)
    held = {test.law for test in marked}
    yield from (f"{LAWS}: {law!r} stands twice" for law in sorted(set(laws)) if laws.count(law) > 1)
    yield from (f"{LAWS}: no test is marked with {law!r}" for law in laws if law not in held)
    for test in marked:
        if test.law not in laws:
            name = test.name or "the file"
            yield f"{test.file}: {name} is marked with {test.law!r}, which is no law"
    page = root / PAGE
    if not page.exists() or page.read_text(encoding="utf-8") != render(root):
        yield f"{PAGE} is not what the markers say; run docs/make_laws.py"


if __name__ == "__main__":
    (ROOT / PAGE).write_text(render(), encoding="utf-8")
