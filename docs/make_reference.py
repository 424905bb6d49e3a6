"""Write the pages of docs/reference that come from the code.

    python docs/make_reference.py

Settings, presets with data sets, and the command have a page each; ``render`` joins their parts.
`make docs` and a test fail when a page on disk is not what this writes.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import server.config.privatizer
import server.config.sections
import server.config.tree
from client.datasets.registry import DATASETS
from fedlens.cli import build_parser
from fedlens.cli.simulate import PRESETS, preset_names
from server.config.reading import documented_settings

TARGET = Path(__file__).with_name("reference")
HEAD = "\n\nWritten by `python docs/make_reference.py` from the code.\n"
STATUSES = """## Exit status

0 done, 1 failed, 2 wrong use, 3 stopped by a privacy budget, 4 an audit's alarm.
"""
ENVIRONMENT = """## Environment

| variable | meaning |
|---|---|
| `FEDLENS_DATA` | folder of data sets' files |
| `FEDLENS_STORE` | URL of the store, where no `--store` is given |
| `FEDLENS_HOME` | where `flwr run` puts runs when `run.out` is empty; `~/.fedlens` by default |
| `FEDLENS_DASHBOARD_USER` | name of the annotator in the dashboard; set by the command |
| `FEDLENS_TEST_MODE` | `1` allows `privacy.fixed_seed`, which voids every guarantee; for tests |
| `FEDLENS_SHARED` | folder with whole data sets and oracle values for the tests |
"""


def meanings() -> dict[str, str]:
    """The docstring of each field of the configuration's sections."""
    sources = (server.config.tree, server.config.privatizer, server.config.sections)
    found: dict[str, str] = {}
    for node in (n for module in sources for n in ast.parse(inspect.getsource(module)).body):
        if isinstance(node, ast.ClassDef) and node.name.endswith("Config"):
            section = node.name.removesuffix("Config").lower()
            found.update(_fields(node, section))
    return found


def _fields(node: ast.ClassDef, section: str) -> Iterator[tuple[str, str]]:
    for field, said in zip(node.body, node.body[1:], strict=False):
        named = isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        text = isinstance(said, ast.Expr) and isinstance(said.value, ast.Constant)
        if named and text:
            yield (
                f"{section}.{field.target.id}".lstrip("."),
                " ".join(str(said.value.value).split()),
            )


def settings_table() -> str:
    """Every setting with its default and meaning."""
    said = meanings()
    rows = [f"| `{key}` | `{value!r}` | {said[key]} |" for key, value, _ in documented_settings()]
    head = "`--set KEY=VALUE`, a TOML file for `--config`, or `flwr run -c`.\n\n"
    return head + "| setting | default | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def presets() -> str:
    """Each preset with the comment at its head."""
    lines = ["## Presets", "", "| preset | what it is |", "|---|---|"]
    for name in preset_names():
        text = (PRESETS / f"{name}.toml").read_text(encoding="utf-8").splitlines()
        comment = " ".join(line.lstrip("# ") for line in text if line.startswith("#"))
        lines.append(f"| `{name}` | {comment} |")
    return "\n".join(lines) + "\n"


def data_sets() -> str:
    """The names that ``data.name`` takes."""
    names = [f"`{name}{':PATH' if spec.by_path else ''}`" for name, spec in DATASETS.items()]
    return "## Data sets\n\n" + ", ".join(names) + "\n"


def commands() -> str:
    """Each verb with its arguments."""
    parser = build_parser()
    lines: list[str] = []
    for verb, sub in _choices(parser).items():
        lines += [f"## `fedlens {verb}`", "", str(sub.description), ""]
        actions = _choices(sub)
        for name, action in actions.items():
            lines += [f"`fedlens {verb} {name}`: {action.description}", "", *_flags(action), ""]
        if not actions:
            lines += [*_flags(sub), ""]
    return "\n".join(lines)


def _choices(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def _flags(parser: argparse.ArgumentParser) -> list[str]:
    lines = ["| argument | meaning |", "|---|---|"]
    for action in parser._actions:
        if action.dest != "help":
            name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            lines.append(f"| `{name}` | {action.help or 'directory of a run'} |")
    return lines


def render() -> dict[str, str]:
    """Each page's file name and text."""
    parts = {
        "settings.md": ("Settings", settings_table(), ENVIRONMENT),
        "presets.md": ("Presets and data sets", presets(), data_sets()),
        "command.md": ("The command", commands(), STATUSES),
    }
    return {
        name: "\n".join((f"# {title}{HEAD}", *sections))
        for name, (title, *sections) in parts.items()
    }


if __name__ == "__main__":
    for page, text in render().items():
        (TARGET / page).write_text(text, encoding="utf-8")
