"""What differs between kinds of task, or of privatizer, is in the kind: no one asks which it is.

A new kind would have to be added at every place that asks, and an outside package cannot. Code asks
settings and tasks for what they say of themselves: `requires`, `provides`, hooks, properties.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from inspect import isclass
from pathlib import Path

import pytest

from fedlens.client.tasks import CLIENT_TASKS
from fedlens.client.tasks.protocol import ClientTask
from fedlens.server.config import privatizer, tasks
from fedlens.server.config.privatizer import (
    KINDS,
    TRAINED_BY,
    PrivatizerConfig,
    privatizer_tables,
)
from fedlens.server.config.tasks import TASK_KINDS, TaskConfig
from fedlens.server.tasks.protocol import ServerTask

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("client", "server", "simulations", "fedlens", "dashboard")
NO_TASKS = ("store/", "dashboard/")
"""They know nothing of tasks; what they compare as ``kind`` is that of their own entries."""
ROOTS = (TaskConfig, PrivatizerConfig, ServerTask, ClientTask)
WORDS = frozenset({*TASK_KINDS, *KINDS, *TRAINED_BY} - {"none"})
SAYS_WHICH = frozenset({"kind", "trained_by", "training"})


def kinds() -> list[type]:
    """The classes of all kinds: settings, server and client, and all bases that are no root."""
    found: list[type] = [kind.config for kind in TASK_KINDS.values()]
    found += privatizer_tables().values()
    for kind in TASK_KINDS.values():
        module, _, name = kind.server.partition(":")
        found.append(getattr(import_module(module), name))
    found += [CLIENT_TASKS[name] for name in CLIENT_TASKS if isclass(CLIENT_TASKS[name])]
    lines = {one for kind in found for one in kind.__mro__}
    return [one for one in lines if issubclass(one, ROOTS) and one not in ROOTS]


CLASSES = frozenset(kind.__name__ for kind in kinds())
FIELDS = frozenset(
    name
    for kind in kinds()
    for name in getattr(kind, "model_fields", {})
    if name not in TaskConfig.model_fields
)
OWN = {kind.__module__ for kind in kinds()} | {one.__name__ for one in (tasks, tasks, privatizer)}


def names_in(node: ast.AST) -> set[str]:
    """All names, attributes and words in an expression."""
    found = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    found |= {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}
    return found | words_in(node)


def words_in(node: ast.AST) -> set[str]:
    """All strings in an expression, each also by what stands behind its last full stop."""
    said = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
    return {part for one in said if isinstance(one, str) for part in (one, one.rpartition(".")[2])}


def asks_which(node: ast.AST) -> bool:
    """Whether an expression asks of which kind something is."""
    if isinstance(node, ast.Call):
        called = node.func.id if isinstance(node.func, ast.Name) else ""
        if called in ("isinstance", "issubclass"):
            return bool(names_in(node.args[1]) & CLASSES)
        silent = called == "hasattr" or (called == "getattr" and len(node.args) == 3)
        return silent and bool(words_in(node.args[1]) & FIELDS) and about_settings(node.args[0])
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        by_word = any(names_in(side) & SAYS_WHICH for side in sides)
        return any(
            (by_word and words_in(side) & WORDS)
            or (names_in(side) & CLASSES and not isinstance(side, ast.Call))
            for side in sides
        )
    if isinstance(node, ast.match_case):
        classes = [one.cls for one in ast.walk(node.pattern) if isinstance(one, ast.MatchClass)]
        return bool(words_in(node.pattern) & WORDS) or any(names_in(c) & CLASSES for c in classes)
    return False


def about_settings(node: ast.AST) -> bool:
    """Whether an expression speaks of a task's or a privatizer's settings."""
    return bool(names_in(node) & {"settings", "_settings", "privatizer", "filter_", "task"})


def places(text: str) -> Iterator[int]:
    """Lines of a source that ask of which kind something is."""
    yield from (getattr(one, "lineno", 0) or one.pattern.lineno for one in ast.walk(ast.parse(text))
                if asks_which(one))  # fmt: skip


def test_no_one_asks_of_which_kind_a_task_or_a_privatizer_is():
    found = []
    for path in sorted(one for room in ROOMS for one in (ROOT / room).rglob("*.py")):
        short = path.relative_to(ROOT).as_posix()
        module = "fedlens." + short.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        if module not in OWN and not short.startswith(NO_TASKS):
            found += [f"{short}:{line}" for line in places(path.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize(
    "asked",
    [
        "if isinstance(task, AnnotatorConfig): pass",
        "[t for t in tasks if isinstance(t, (PrivatizerTaskConfig, MomentsConfig))]",
        "isinstance(config.privatizer, privatizer.FilterConfig | NoPrivatizer)",
        "isinstance(task, AnnotatorTask)",
        "isinstance(task, FrozenLocalTask)",
        "issubclass(type(task), CriticConfig)",
        "type(task) is ProbeConfig",
        "type(task) in (FrozenTask, FocusedTask)",
        "match task:\n    case WganConfig(): pass",
        "match task.kind:\n    case 'wgan' | 'frozen': pass",
        "task.kind == 'frozen'",
        "settings['tasks.critic.kind'] != 'annotator'",
        "config.privatizer.kind in ('trained', 'pretrained')",
        "flat.get('privatizer.trained_by') == 'samples'",
        "hasattr(schedule.task.settings, 'local_steps')",
        "getattr(config.privatizer, 'budget', 0.0)",
    ],
)
def test_each_way_to_ask_is_seen(asked):
    assert list(places(asked))


@pytest.mark.parametrize(
    "asked",
    [
        "isinstance(table, TaskConfig)",
        "task.kind in kinds",
        "needs.LABELS in task.provides",
        "unit == 'user'",
        "entry.kind == 'note'",
        "getattr(module, 'local_steps', None)",
    ],
)
def test_what_asks_something_else_is_let_be(asked):
    assert not list(places(asked))
