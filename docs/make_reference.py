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
from importlib import import_module
from pathlib import Path
from typing import get_args

import fedlens
from fedlens.api.presets import PRESETS, preset_names
from fedlens.cli import build_parser
from fedlens.client.contract import FederationContract, HiddenAttribute, ImageForm
from fedlens.client.node.policy import NodePolicy
from fedlens.data.registry import DATASETS
from fedlens.deploy.layout import NodeSettings, OperatorSettings, SuperLinkSettings
from fedlens.server.config.reference import Setting, tables

TARGET = Path(__file__).with_name("reference")
ROOT = TARGET.parents[1]
PLUGINS = """A plug-in is a name in a registry. Another installed package adds one with an entry
point in the registry's group; no setting is needed:

```toml
[project.entry-points."fedlens.datasets"]
scans = "our_package.scans:SCANS"
```

fedlens imports a plug-in when it is asked for by name. It refuses an unknown name and lists those
that exist. The last column is the type that a plug-in must have; its docstring is the contract.
"""
HEAD = "\n\nWritten by `python docs/make_reference.py` from the code.\n"
STATUSES = """## Exit status

0 done, 1 failed, 2 wrong use, 3 stopped by a privacy budget, 4 an audit raised an alarm.
"""
ENVIRONMENT = """## Environment

| variable | meaning |
|---|---|
| `FEDLENS_DATA` | folder with the files of data sets |
| `FEDLENS_STORE` | URL of the store, if no `--store` is given |
| `FEDLENS_RUNS` | folder whose runs are shown, as `fedlens dashboard FOLDER` sets it |
| `FEDLENS_PATHS` | folders whose files a run's settings may name, as in `PATH`; if unset, any |
| `FEDLENS_HOME` | folder of `populations`, `heads` and `flwr run`'s `runs`; `~/.fedlens` if unset |
| `FEDLENS_DASHBOARD_USER` | account of the dashboard's access token; set by the command |
| `FEDLENS_DASHBOARD_COOKIE` | name of the cookie of the dashboard's sessions; set by the command |
| `FEDLENS_RUN_STORE` | URL of the store of runs over Flower, read where the ServerApp runs |
| `FEDLENS_RUN_STORE_FILE` | a file with that URL instead, mode 600 |
| `FEDLENS_LOG` | `json` for logs as JSON, one object per line |
| `FEDLENS_TRACES` | where spans go: `otlp`, or the absolute path of a file; if unset, nowhere |
| `FEDLENS_TEST_MODE` | `1` allows `privacy.fixed_seed`, which voids every guarantee; for tests |
| `FEDLENS_SHARED` | folder with whole data sets and oracle values for the tests |
"""


def settings() -> str:
    """Every setting with its default and meaning, a table for each section and kind."""
    lines = ["`--set KEY=VALUE`, a TOML file for `--config`, or `flwr run -c`.", ""]
    for table in tables():
        lines += [f"## `{table.title}`" if table.title else "## The run", ""]
        lines += [_said(table.meaning), ""] if table.meaning else []
        lines += ["| setting | default | meaning |", "|---|---|---|"]
        lines += [f"| `{s.key}` | {_default(s)} | {_said(s.meaning)} |" for s in table.settings]
        lines += [""]
    return "\n".join(lines)


def node_settings() -> str:
    """What a node's operator states in the node's own configuration."""
    lines = [
        "## A node's own configuration",
        "",
        "`[node]` in a node's `deploy.toml`, or `flower-supernode --node-config 'KEY=VALUE ...'`; "
        "no server can change it.",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
        "| `data` | required | Absolute path of the node's prepared store, or file of users. |",
        "| `federation` | `''` | Absolute path of the federation's contract. A store has its own, "
        "which must be the same; a file of users has none. |",
        "| `partition-id` | `0` | The node's place among the nodes, each another. |",
        "| `declared` | `''` | Public attributes of all the node's users, `NAME=VALUE` with spaces "
        "between: which slices they are in. |",
    ]
    for name, info in NodePolicy.model_fields.items():
        key, meaning = name.replace("_", "-"), _said(str(info.description))
        lines.append(f"| `{key}` | `{info.default!r}` | {meaning} |")
    return "\n".join(lines) + "\n"


def deploy_settings() -> str:
    """The keys of ``deploy.toml``, for each kind of folder."""
    lines = [
        "## `deploy.toml`",
        "",
        "In each machine's folder; `fedlens deploy init` writes it.",
        "",
    ]
    for kind in (SuperLinkSettings, NodeSettings, OperatorSettings):
        fields = kind.model_fields
        role = str(get_args(fields["role"].annotation)[0])
        lines += [f'### `role = "{role}"`', "", "| key | default | meaning |", "|---|---|---|"]
        for name, info in fields.items():
            shown = "required" if info.is_required() else f"`{info.default!r}`"
            if name != "role":
                meaning = _said(info.description or "")
                lines.append(f"| `{info.alias or name}` | {shown} | {meaning} |")
        lines.append("")
    return "\n".join(lines)


def contract() -> str:
    """What ``federation.toml`` may say."""
    lines = [
        "## The contract, `federation.toml`",
        "",
        "All owners and the server have the same file: [how to provide data]"
        "(../how-to/provide-data.md).",
        "",
        "| key | default | meaning |",
        "|---|---|---|",
    ]
    for table, model in (("", FederationContract), ("image.", ImageForm),
                         ("sensitive.", HiddenAttribute)):  # fmt: skip
        for name, info in model.model_fields.items():
            if name in ("image", "sensitive"):
                continue
            default = "required" if info.is_required() else f"`{info.default!r}`"
            lines.append(f"| `{table}{name}` | {default} | {_said(str(info.description))} |")
    return "\n".join(lines) + "\n"


def _default(setting: Setting) -> str:
    if setting.default is None:
        return "required"
    value = setting.default
    return f"`{' '.join(value) if isinstance(value, tuple) else value!r}`"


def _said(text: str) -> str:
    return " ".join(text.split()).replace("``", "`")


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
    names = [
        f"`{name}{':PATH' if spec.needs_path else ''}`"
        for name, spec in DATASETS.items()
        if spec.load or spec.format
    ]
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
    links = [path.resolve() for path in (ROOT / "fedlens").iterdir() if path.is_symlink()]
    for root, prefix in [*((link, "fedlens.") for link in links), (ROOT / "research", "")]:
        for path in sorted(root.rglob("*.py")):
            base = root.parent if prefix else root
            module = prefix + ".".join(path.relative_to(base).with_suffix("").parts)
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
            said = (action.help or "directory of a run").replace("%%", "%").replace("|", r"\|")
            lines.append(f"| `{name}` | {said} |")
    return lines


def render() -> dict[str, str]:
    """Each page's file name and text."""
    parts = {
        "settings.md": (
            "Settings",
            settings(),
            node_settings(),
            contract(),
            deploy_settings(),
            ENVIRONMENT,
        ),
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
