"""What has to be true of the documents; `make docs` fails, as a test does, where it is not.

    python docs/checks.py                      # say what is wrong
    python docs/checks.py --seen 'cloak.png'   # a picture was made anew, or still shows the code

A picture is stale when the words that its code draws (labels, titles, captions) are no longer those
of the day on which somebody made it or looked at it. `images/pictures.toml` keeps a digest of these
words beside the command that makes the picture.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import fnmatch
import hashlib
import importlib
import inspect
import io
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterable, Iterator
from itertools import takewhile
from pathlib import Path

import make_laws
import tomli_w

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"```(?:bash|sh|console)\n(.*?)```", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
PICTURES = "pictures.toml"
GENERATED = ("results.md", "api.md", "settings.md", "presets.md", "command.md", "plugins.md")
SECTIONS = "data|privacy|rounds|generator|privatizer|release|tasks"
SETTING = re.compile(rf"(?:`|--set ')((?:{SECTIONS})(?:\.[a-z_]+)+)")
DRAWING = {
    *("annotate", "axhline", "axvline", "bar", "errorbar", "fill_between", "legend", "plot"),
    *("scatter", "set", "set_title", "set_xlabel", "set_ylabel", "step", "suptitle", "text"),
}
HEAD = (
    "# Every picture with its maker, read by docs/checks.py, which also rewrites the digests.\n\n"
)


def all_faults(root: Path = ROOT) -> list[str]:
    """Whatever is wrong with the documents of the checkout at ``root``, one line each."""
    parts = (
        reference_faults(root),
        command_faults(root),
        link_faults(root),
        picture_faults(root),
        make_laws.law_faults(root),
        table_faults(root),
        setting_faults(root),
        api_faults(),
    )
    return [fault for part in parts for fault in part]


def pages(root: Path) -> list[Path]:
    """The README, every page of the site, and what research has written."""
    folders = (root / "docs", root / "research")
    return [root / "README.md", *(page for one in folders for page in sorted(one.rglob("*.md")))]


def reference_faults(root: Path) -> Iterator[str]:
    """Pages that are written from the code and differ from it."""
    rendered = runpy.run_path(str(root / "docs" / "make_reference.py"))["render"]()
    for name, text in rendered.items():
        page = root / "docs" / "reference" / name
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            yield f"docs/reference/{name} is not what the code says; run docs/make_reference.py"


def commands_of(text: str) -> list[str]:
    """The lines of a page's shell blocks, joined where they go on, without their comments."""
    blocks = (block.replace("\\\n", " ") for block in BLOCK.findall(text))
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line and line[0] != "#"]


def command_faults(root: Path) -> Iterator[str]:
    """Commands that `fedlens` does not take and make targets that are not there."""
    targets = re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE)
    for page in pages(root):
        for command in commands_of(page.read_text(encoding="utf-8")):
            words = list(takewhile(lambda word: word not in (">", "|"), shlex.split(command)))
            if words[:1] == ["fedlens"] and not _parses(words[1:]):
                yield f"{page.relative_to(root)}: `{command}` is not understood"
            if words[:1] == ["make"] and words[1] not in targets:
                yield f"{page.relative_to(root)}: make {words[1]} is no target"


def _parses(arguments: list[str]) -> bool:
    from fedlens.cli import build_parser

    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            build_parser().parse_args(arguments)
        except SystemExit as end:
            return not end.code  # --help and --version end well
    return True


def link_faults(root: Path) -> Iterator[str]:
    """Links to files that are not there; Sphinx looks after anchors within the site."""
    for page in pages(root):
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if not (page.parent / target).exists():
                yield f"{page.relative_to(root)}: {target} is not there"


def table_faults(root: Path) -> Iterator[str]:
    """Tables of more than seven columns, which few readers can hold."""
    for page in pages(root):
        if page.name == "results.md":  # written by the study, which answers for its form
            continue
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
            if line.startswith("|") and len(re.findall(r"(?<!\\)\|", line)) > 8:
                yield f"{page.relative_to(root)}:{number}: more than seven columns"


def setting_faults(root: Path) -> Iterator[str]:
    """Settings that a page names and that there are not."""
    known = _settings(root)
    for page in pages(root):
        if page.name in GENERATED:
            continue
        for setting in SETTING.findall(page.read_text(encoding="utf-8")):
            if known and re.sub(r"^tasks\.\w+", "tasks.NAME", setting) not in known:
                yield f"{page.relative_to(root)}: there is no setting {setting}"


def _settings(root: Path) -> set[str]:
    """The settings of the reference, which is what the code says; a task's are tasks.NAME.KEY."""
    page = (root / "docs" / "reference" / "settings.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `([\w.]+)` \|", page, re.MULTILINE))
    return rows if any(row.startswith("tasks.") for row in rows) else set()


def picture_faults(root: Path) -> Iterator[str]:
    """Pictures without a maker, a page or a look, and those whose code has other words now."""
    shown = "".join(page.read_text(encoding="utf-8") for page in pages(root))
    for record in _records(root):
        folder, entries = record.parent, read_pictures(record)
        place = folder.relative_to(root)
        there = {str(path.relative_to(folder)) for path in folder.rglob("*.png")}
        listed = {name for entry in entries for name in fnmatch.filter(there, entry["files"])}
        yield from (f"{place}/{name} has no entry in {PICTURES}" for name in there - listed)
        yield from (f"{place}/{name} is on no page" for name in there if name not in shown)
        for entry in entries:
            if not fnmatch.filter(there, entry["files"]):
                yield f"{place}/{PICTURES}: there is no picture {entry['files']}"
            words = shlex.split(entry["made_by"])
            if words[0] == "fedlens" and not _parses(words[1:]):
                yield f"{place}/{PICTURES}: `{entry['made_by']}` is not understood"
            yield from _staleness(root, entry)


def _staleness(root: Path, entry: dict[str, str]) -> Iterator[str]:
    lost = [name for name in entry.get("code", ()) if not _files(root, [name])]
    if lost:
        yield f"{entry['files']}: its code {', '.join(lost)} is gone; fix {PICTURES}"
    elif entry.get("words") != words_drawn(root, entry.get("code", ())):
        yield (
            f"{entry['files']} is stale: its code has other words than when it was made. Run"
            f" `{entry['made_by']}`, then docs/checks.py --seen {entry['files']!r}"
        )


def _records(root: Path) -> list[Path]:
    """Each folder of pictures has a record of who made them."""
    folders = (root / "docs", root / "research")
    return [record for one in folders for record in sorted(one.rglob(PICTURES))]


def read_pictures(record: Path) -> list[dict[str, str]]:
    """The entries of a pictures.toml: `files`, `made_by`, `code` and the digest `words`."""
    entries: list[dict[str, str]] = tomllib.loads(record.read_text())["picture"]
    return entries


def words_drawn(root: Path, code: Iterable[str]) -> str:
    """A digest of the texts that calls of Matplotlib, Altair or Streamlit in these files draw."""
    found: set[str] = set()
    for file in _files(root, code):
        calls = (n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, ast.Call))
        for call in filter(_draws, calls):
            constants = (node for node in ast.walk(call) if isinstance(node, ast.Constant))
            found |= {node.value for node in constants if isinstance(node.value, str)}
    return hashlib.sha256("\0".join(sorted(found)).encode()).hexdigest()[:12]


def _files(root: Path, code: Iterable[str]) -> list[Path]:
    return sorted({path for pattern in code for path in root.glob(pattern)})


def _draws(call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute):
        return False
    module = function.value.id if isinstance(function.value, ast.Name) else ""
    return function.attr in DRAWING or module in ("st", "alt")


def mark_seen(root: Path, pattern: str) -> list[str]:
    """Write today's digest beside every picture that the pattern names."""
    marked = []
    for record in _records(root):
        entries = read_pictures(record)
        for entry in entries:
            if fnmatch.fnmatch(entry["files"], pattern):
                entry["words"] = words_drawn(root, entry.get("code", ()))
                marked.append(entry["files"])
        record.write_text(HEAD + tomli_w.dumps({"picture": entries}))
    return marked


def api_faults(package: str = "fedlens") -> Iterator[str]:
    """Public names of a package, and public members of its classes, without a docstring."""
    module = importlib.import_module(package)
    for name in getattr(module, "__all__", ()):
        thing = getattr(module, name)
        if inspect.ismodule(thing):
            yield from api_faults(thing.__name__)
        elif callable(thing):
            yield from _undocumented(f"{package}.{name}", thing)


def _undocumented(name: str, thing: object) -> Iterator[str]:
    if not inspect.getdoc(thing):
        yield f"{name} has no docstring"
    for member, value in vars(thing).items() if inspect.isclass(thing) else ():
        told = inspect.isroutine(value) or isinstance(value, property | classmethod | staticmethod)
        if told and not member.startswith("_") and not inspect.getdoc(value):
            yield f"{name}.{member} has no docstring"


def main() -> None:
    """Print what is wrong, or mark pictures as seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seen", metavar="GLOB", help="pictures that show today's code")
    arguments = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if arguments.seen:
        sys.stdout.write(f"seen: {', '.join(mark_seen(ROOT, arguments.seen)) or 'none'}\n")
        return
    faults = all_faults()
    sys.stdout.writelines(f"{fault}\n" for fault in faults)
    raise SystemExit(bool(faults))


if __name__ == "__main__":
    main()
