"""Write the pages of docs/reference that come from the code.

    python docs/make_reference.py

Settings, presets with data sets, and the command have a page each; ``render`` joins their parts.
`make docs` and a test fail when a page on disk is not what this writes.
"""

from __future__ import annotations

import argparse
import ast
import inspect
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import fedlens
from client.datasets.registry import DATASETS
from fedlens.cli import build_parser
from fedlens.presets import PRESETS, preset_names
from server.config.privatizer import PRIVATIZER_KINDS, PrivatizerConfig
from server.config.section import Section
from server.config.tasks import TASK_KINDS, TaskConfig
from server.config.tree import Config

TARGET = Path(__file__).with_name("reference")
ROOT = TARGET.parents[1]
PLUGINS = """A plug-in is a name in a registry. Ours are listed where the registry is made; another
installed package adds its own by an entry point in the registry's group, and no setting is needed:

```toml
[project.entry-points."fedlens.datasets"]
scans = "our_package.scans:SCANS"
```

fedlens imports a plug-in when somebody asks for it by name. It refuses an unknown name and lists
what there is. What a plug-in must have is the type in the last column: its docstring is the
contract.
"""
KINDS = {
    "tasks": ("tasks.NAME.", "A task", TaskConfig, {k: v.config for k, v in TASK_KINDS.items()}),
    "privatizer": ("privatizer.", "A filter", PrivatizerConfig, PRIVATIZER_KINDS),
}
"""Sections whose keys depend on their kind: prefix, title, what all kinds have, each kind's own."""
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


def settings() -> str:
    """Every setting with its default and meaning, a table for each section and kind."""
    lines = ["`--set KEY=VALUE`, a TOML file for `--config`, or `flwr run -c`.", ""]
    lines += ["## The run", "", *_table(Config, "", _single_keys(Config))]
    for name in (key for key in Config.model_fields if key not in (*_single_keys(Config), *KINDS)):
        section = type(getattr(Config(), name))
        lines += [f"## `[{name}]`", "", *_table(section, f"{name}.", section.model_fields)]
    for prefix, title, common, kinds in KINDS.values():
        lines += [f"## `[{prefix.strip('.')}]`", "", *_table(common, prefix, common.model_fields)]
        for kind, model in kinds.items():
            own = [key for key in model.model_fields if _differs(model, common, key)]
            if own:
                lines += [f"### {title} of kind `{kind}`", "", _said(model.__doc__), ""]
                lines += _table(model, prefix, own)
    return "\n".join(lines)


def _single_keys(model: type[BaseModel]) -> list[str]:
    return [key for key, field in model.model_fields.items() if field.description]


def _differs(model: type[BaseModel], common: type[BaseModel], key: str) -> bool:
    if key == "kind":
        return False
    known = common.model_fields.get(key)
    return known is None or _default(known) != _default(model.model_fields[key])


def _table(model: type[BaseModel], prefix: str, keys: Iterable[str]) -> list[str]:
    rows = [
        f"| `{prefix}{key}` | {_default(model.model_fields[key])} | {meaning(model, key)} |"
        for key in keys
    ]
    return ["| setting | default | meaning |", "|---|---|---|", *rows, ""]


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "none: say it"
    value = field.get_default(call_default_factory=True)
    return f"`{' '.join(value) if isinstance(value, tuple) else value!r}`"


def meaning(model: type[BaseModel], key: str) -> str:
    """The text of a setting: its own, or that of the class which first has it."""
    fields = (base.model_fields.get(key) for base in model.__mro__ if issubclass(base, Section))
    return next((_said(field.description) for field in fields if field and field.description), "")


def _said(text: str | None) -> str:
    return " ".join((text or "").split()).replace("``", "`")


def all_settings() -> Iterator[tuple[type[BaseModel], str]]:
    """Every section's and kind's class with each of its keys."""
    sections = (type(getattr(Config(), n)) for n in Config.model_fields if n not in KINDS)
    kinds = (model for *_, models in KINDS.values() for model in models.values())
    for model in (*sections, *kinds):
        if issubclass(model, BaseModel):
            yield from ((model, key) for key in model.model_fields if key != "kind")


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


def api() -> str:
    """A directive for the package and each public module in it; Sphinx fills them in."""
    public = (getattr(fedlens, name) for name in getattr(fedlens, "__all__", ()))
    modules = [fedlens, *(thing for thing in public if inspect.ismodule(thing))]
    directives = [f".. automodule:: {module.__name__}\n" for module in modules]
    return "\n".join(["```{eval-rst}", *directives, "```"]) + "\n"


def plugins() -> str:
    """Each registry of plug-ins, found in the code, with what is ours in it."""
    lines = ["| kind | entry points | ours | registry | type |", "|---|---|---|---|---|"]
    for place, variable, kind_of in sorted(_registries()):
        registry = getattr(import_module(place), variable)
        ours = ", ".join(f"`{name}`" for name in registry._own)
        row = registry.kind, f"`{registry.group}`", ours, f"`{place}.{variable}`", f"`{kind_of}`"
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _registries() -> Iterator[tuple[str, str, str]]:
    for folder in sorted(path.parent for path in ROOT.glob("*/__init__.py")):
        for path in sorted(folder.rglob("*.py")):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                typed = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
                if typed and (said := ast.unparse(node.annotation)).startswith("Registry["):
                    yield module.removesuffix(".__init__"), node.target.id, said[9:-1]


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
        "settings.md": ("Settings", settings(), ENVIRONMENT),
        "presets.md": ("Presets and data sets", presets(), data_sets()),
        "api.md": ("The Python API", api()),
        "plugins.md": ("Plug-ins", PLUGINS, plugins()),
        "command.md": ("The command", commands(), STATUSES),
    }
    return {
        name: "\n".join((f"# {title}{HEAD}", *sections))
        for name, (title, *sections) in parts.items()
    }


if __name__ == "__main__":
    for page, text in render().items():
        (TARGET / page).write_text(text, encoding="utf-8")
