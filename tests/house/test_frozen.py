"""What users and operators rely on stays as it is, unless somebody means to change it.

The tree of commands, settings, nodes' keys, messages, ledgers, exit statuses, errors, the API, the
kinds of plug-in and the audits' mutants are recorded in ``frozen/``. A change that is meant is
recorded anew, and is then a difference that a reader of the commit sees:

    python -m pytest tests/house/test_frozen.py --record

Names of modules are in no record: things may move. Nor is what one processor computes and another
does not: values of arrays, norms, figures.
"""

from __future__ import annotations

import argparse
import ast
import enum
import importlib.util
import inspect
import json
import os
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import frozen_commands
import frozen_runs
import pytest
from pydantic import BaseModel
from recorded import FOLDER, hold

import fedlens
from fedlens.cli import build_parser
from fedlens.client.contract import FederationContract
from fedlens.client.node.policy import NodePolicy
from fedlens.client.tasks import CLIENT_TASKS
from fedlens.dashboard.widgets.pages import PAGES
from fedlens.data.registry import DATASETS
from fedlens.deploy.layout import NodeSettings, OperatorSettings, SuperLinkSettings
from fedlens.foundation.errors import ExitStatus
from fedlens.models.faults import FAULTS
from fedlens.models.probes import PROBES
from fedlens.privatizers.attacks.attackers import ATTACKERS
from fedlens.privatizers.methods import METHODS
from fedlens.server.config.privatizer import privatizer_tables
from fedlens.server.config.tasks import TASK_KINDS
from fedlens.server.config.tree import Config, flatten
from fedlens.server.learning import learner
from fedlens.store.exporters import EXPORTERS
from fedlens_research.papers import STUDIES
from harness.audit_mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]
HEAD = re.compile(r"^class (\w+)\(([^)\[]*)\):", re.MULTILINE)
OTHERS = {"tests", "docs", "build", "dist", "runs", "examples", "benchmarks", "tools"}
"""Folders of the checkout whose classes and variables nobody relies on."""
REGISTRIES = (
    TASK_KINDS, CLIENT_TASKS, DATASETS, FAULTS, PROBES, METHODS,
    EXPORTERS, PAGES, ATTACKERS, STUDIES,
)  # fmt: skip


@pytest.fixture
def frozen(request):
    """Hold what is found against a record, or record it."""

    def check(name: str, found: Any) -> None:
        hold(name, found, record=request.config.getoption("--record", default=False))

    return check


# The command


def test_the_command_has_its_verbs_flags_and_defaults(frozen):
    frozen("command.json", _tree_of(build_parser()))


def _tree_of(parser: argparse.ArgumentParser) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            subs = {f"{parser.prog} {name}": sub for name, sub in action.choices.items()}
            needed = {"required": True} if action.required else {}
            found |= {"VERB": {"dest": action.dest, **needed}}
            found |= {name: _tree_of(sub) for name, sub in subs.items()}
        elif not isinstance(action, argparse._HelpAction):
            found[" ".join(action.option_strings) or f"<{action.dest}>"] = _argument(action)
    return found


def _argument(action: argparse.Action) -> dict[str, Any]:
    """What decides which words an argument takes; the help text does not."""
    kind = re.sub(r"^_|Action$", "", type(action).__name__).lower()
    parts = {
        "takes": kind if kind != "store" else None,
        "dest": action.dest if action.option_strings else None,
        "nargs": action.nargs,
        "choices": None if action.choices is None else [str(choice) for choice in action.choices],
        "default": _plain(action.default),
        "required": (action.required and bool(action.option_strings)) or None,
    }
    return {key: value for key, value in parts.items() if value is not None}


def _plain(value: Any) -> Any:
    """A default as JSON has it."""
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


# Settings


def test_settings_have_their_keys_types_and_defaults(frozen):
    whole = Config.model_json_schema()
    tables = {"": {**_fields(whole, whole), "tasks": "by kind", "privatizer": "by kind"}}
    for kind in TASK_KINDS:
        tables[f"tasks.NAME kind={kind}"] = _model(TASK_KINDS[kind].config)
    for kind, model in privatizer_tables().items():
        tables[f"privatizer kind={kind}"] = _model(model)
    tables["digest of a run with defaults"] = Config().digest()
    frozen("settings.json", tables)


def test_flower_is_given_the_same_settings(frozen):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    frozen("flower_config.json", flatten(project["tool"]["flwr"]["app"]["config"]))


def test_nodes_contracts_and_folders_have_their_keys(frozen):
    found = {
        "a node's own configuration": _hyphened(_model(NodePolicy)),
        "federation.toml": _model(FederationContract),
        "deploy.toml of a superlink": _model(SuperLinkSettings),
        "deploy.toml of a node": _model(NodeSettings),
        "deploy.toml of an operator": _model(OperatorSettings),
        "environment": sorted(_variables()),
    }
    frozen("nodes.json", found)


def _model(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return _fields(schema, schema)


def _fields(schema: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """Each key with type, limits and default; tables in it are written out."""
    required = set(schema.get("required", ()))
    return {
        name: _field(field, whole) | ({"required": True} if name in required else {})
        for name, field in schema["properties"].items()
    }


def _field(field: dict[str, Any], whole: dict[str, Any]) -> dict[str, Any]:
    """A field's schema without its words, and without names of classes."""
    if "$ref" in field:
        named = whole["$defs"][field["$ref"].rpartition("/")[2]]
        if "properties" in named:
            return {"table": _fields(named, whole)}
        return _field({**named, **{k: v for k, v in field.items() if k != "$ref"}}, whole)
    kept = {k: v for k, v in field.items() if k not in ("title", "description")}
    for key in ("items", "additionalProperties"):
        if isinstance(kept.get(key), dict):
            kept[key] = _field(kept[key], whole)
    for key in ("anyOf", "oneOf", "prefixItems"):
        if key in kept:
            kept[key] = [_field(part, whole) for part in kept[key]]
    return kept


def _hyphened(fields: dict[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "-"): field for name, field in fields.items()}


def _variables() -> set[str]:
    """Environment variables that the product reads."""
    return {name for text in _texts() for name in re.findall(r'"(FEDLENS_[A-Z_]+)"', text)}


# Messages and ledgers


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory):
    """Messages and ledgers' lines of each small run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "FRAME_IMAGES", 40)  # what it is fitted on is no part of a message
        found = {}
        for name in frozen_runs.RUNS:
            folder = tmp_path_factory.mktemp("frozen")
            patch.setenv("FEDLENS_HOME", str(folder / "home"))
            found[name] = frozen_runs.carried_out(name, folder)
        return found


def test_messages_have_their_keys_types_shapes_and_sizes(frozen, carried_out):
    frozen("messages.json", {name: messages for name, (messages, _) in carried_out.items()})


def test_ledgers_have_their_lines(frozen, carried_out):
    """Byte for byte, but for `frozen_runs.NORMALISED`, which says why."""
    found = []
    for name, (_, files) in carried_out.items():
        for of, lines in files.items():
            found += [f"# {name}: the {of}'s", *map(frozen_runs.normalised, lines), ""]
    frozen("ledgers.txt", found[:-1])


# Exit statuses and errors


def test_commands_end_as_they_did(frozen, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLENS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    frozen_commands.prepare(tmp_path)
    found = frozen_commands.outcomes(tmp_path, lambda: capsys.readouterr().err)
    good = re.compile(r"[03], silent|[123], (usage and )?one line")
    assert {command: how for command, how in found.items() if not good.fullmatch(how)} == {}
    frozen("exits.json", {"statuses": {s.name: int(s) for s in ExitStatus}, "commands": found})


def test_errors_have_their_bases_and_statuses(frozen):
    frozen("errors.json", _errors())


def _errors() -> dict[str, dict[str, Any]]:
    """Classes that derive from `FedlensError`, by name, as the sources have them."""
    heads = [head for text in _texts() for head in HEAD.findall(text)]
    bases = {name: re.findall(r"\w+(?=,|$)", of) for name, of in heads}

    def derives(name: str) -> bool:
        return name == "FedlensError" or any(map(derives, bases.get(name, ())))

    names = {name for name in bases if derives(name)}
    nodes = [node for node in _nodes(ast.ClassDef, *names) if node.name in names]
    found = {}
    for node in sorted(nodes, key=lambda node: node.name):
        status = [_last(part.value) for part in node.body if _sets(part, "exit_status")]
        ends = {"status": status[0]} if status else {}
        found[node.name] = {"bases": bases[node.name], **ends}
    return found


def _last(node: ast.expr | None) -> str:
    return ast.unparse(node).rpartition(".")[2] if node else ""


def _sets(node: ast.stmt, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _nodes(kind: type[ast.AST], *words: str) -> Iterator[Any]:
    """All of a kind of syntax in the sources that define or call one of ``words``."""
    wanted = re.compile(rf"^class ({'|'.join(words)})\b|\b({'|'.join(words)})\(", re.MULTILINE)
    for text in _texts():
        if wanted.search(text):
            yield from (node for node in ast.walk(ast.parse(text)) if isinstance(node, kind))


@cache
def _texts() -> tuple[str, ...]:
    """The product's and the research's sources."""
    return tuple(path.read_text(encoding="utf-8") for path in _sources())


def _sources() -> Iterator[Path]:
    for place in sorted(ROOT.iterdir()):
        if not place.is_dir() or place.name in OTHERS or place.name.startswith("."):
            continue
        for folder, folders, files in os.walk(place):  # which follows no links
            folders[:] = sorted(name for name in folders if name not in OTHERS)
            yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


# The API and plug-ins


def test_the_api_has_its_names_and_signatures(frozen):
    found = {"fedlens": _api(fedlens)}
    for name in fedlens.__all__:
        if inspect.ismodule(thing := getattr(fedlens, name)):
            found[f"fedlens.{name}"] = _api(thing)
    frozen("api.json", found)


def _api(module: Any) -> dict[str, Any]:
    return {name: _signed(getattr(module, name)) for name in sorted(module.__all__)}


def _signed(thing: Any) -> Any:
    if inspect.ismodule(thing) or not callable(thing):
        return type(thing).__name__
    if not inspect.isclass(thing):
        return _signature(thing)
    if issubclass(thing, enum.Enum):
        return {member.name: member.value for member in thing}
    # fields, methods and properties of its own and of its bases of ours
    members = {name: getattr(thing, name, None) for base in thing.__mro__ for name in _own(base)}
    fields = {name: _annotation(thing, name) for name in members if not callable(members[name])}
    methods = {name: _signature(member) for name, member in members.items() if callable(member)}
    bases = [base.__name__ for base in thing.__bases__]
    start = {} if issubclass(thing, Exception) else {"()": _signature(thing)}
    return {"bases": bases, **start, **dict(sorted({**fields, **methods}.items()))}


def _own(base: type) -> list[str]:
    if base.__module__ in ("builtins", "enum", "typing", "abc"):
        return []
    names = {*vars(base), *getattr(base, "__annotations__", {})}
    return [name for name in names if not name.startswith("_")]


def _annotation(thing: type, name: str) -> str:
    value = inspect.getattr_static(thing, name, None)
    if isinstance(value, property):
        return f"property {_signature(value.fget)}"
    for base in thing.__mro__:
        if name in getattr(base, "__annotations__", {}):
            return str(base.__annotations__[name])
    return type(value).__name__


def _signature(function: Any) -> str:
    """Parameters, defaults and types, by names of classes without modules or addresses."""
    text = re.sub(r"<function (.*?) at 0x[0-9a-f]+>", r"<\1>", str(inspect.signature(function)))
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])", "", text)


def test_kinds_of_plugins_have_their_groups_and_names(frozen):
    found = {each.group: {"kind": each.kind, "ours": sorted(each._own)} for each in REGISTRIES}
    kinds = ("Registry", "FaultLibrary")
    calls = [node for node in _nodes(ast.Call, *kinds) if _last(node.func) in kinds]
    groups = {node.args[1].value for node in calls if len(node.args) > 1}
    assert groups == set(found), "a registry that this test does not know"
    frozen("plugins.json", dict(sorted(found.items())))


# Audits


def test_audits_are_tried_on_every_mutant(frozen):
    """The list is frozen; each of it is in a test that wants an alarm, which runs elsewhere."""
    frozen("mutants.json", {mutant.name: list(mutant.subjects) for mutant in MUTANTS})
    assert {mutant.name for mutant in MUTANTS} == _caught()


WANT_AN_ALARM = (
    "test_a_fault_is_caught",
    "test_a_missing_clip_is_caught_of_each_task_by_its_own_canary",
)


def _caught() -> set[str]:
    """Names of mutants in the parameters of the tests that expect an alarm."""
    (path,) = (ROOT / "tests").rglob("test_mutants.py")
    spec = importlib.util.spec_from_file_location("mutants_that_are_tested", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    named = set()
    for name in WANT_AN_ALARM:
        (mark,) = [m for m in getattr(module, name).pytestmark if m.name == "parametrize"]
        for case in mark.args[1]:
            values = getattr(case, "values", (case,))
            named.add(values[0].name)
    return named


def test_records_name_no_module():
    """Modules move; a record that named one would fail for that."""
    packages = "|".join(sorted({path.relative_to(ROOT).parts[0] for path in _sources()}))
    named = re.compile(rf"\b({packages})(\.[a-z_]+)+[.:][A-Za-z_]|\.py\b")
    for path in FOLDER.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        json.loads(text)
        assert named.findall(text) == [], path.name
