"""Every setting with its default and meaning, as the code has them, for the reference."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from fedlens.server.config.privatizer import privatizer_tables
from fedlens.server.config.section import Section
from fedlens.server.config.tasks import TASK_KINDS, TaskConfig
from fedlens.server.config.tree import Config


@dataclass(frozen=True)
class Setting:
    """One key."""

    key: str
    """Whole, as ``--set`` takes it; ``NAME`` stands for a task's name."""
    default: Any
    """None where there is none and the key must be given."""
    meaning: str
    """One paragraph of Markdown."""


@dataclass(frozen=True)
class Table:
    """One table of a configuration."""

    title: str
    """As it stands in a TOML file, with its ``kind`` where there are several."""
    meaning: str
    settings: tuple[Setting, ...]


_BY_KIND = ("tasks", "privatizer")
"""Tables whose settings depend on their kind."""


def tables() -> Iterator[Table]:
    """All tables, in the order of the tree: what holds for the run, tasks by kind, filters."""
    top = [name for name in Config.model_fields if name not in _BY_KIND and not _section(name)]
    yield Table("", "", _settings(Config, "", top))
    for name in Config.model_fields:
        if (section := _section(name)) is not None:
            yield _table(f"[{name}]", section, f"{name}.")
    shared = _table("[tasks.NAME]", TaskConfig, "tasks.NAME.")
    yield shared
    known = {setting.key: setting for setting in shared.settings}
    for kind in TASK_KINDS:
        found = _table(f'[tasks.NAME] kind = "{kind}"', TASK_KINDS[kind].config, "tasks.NAME.")
        differs = [
            s for s in found.settings if known.get(s.key) != s and s.key != "tasks.NAME.kind"
        ]
        yield Table(found.title, found.meaning, tuple(differs))
    for form, filter_ in privatizer_tables().items():
        yield _table(f"[privatizer] {form}", filter_, "privatizer.")


def _section(name: str) -> type[Section] | None:
    kind: Any = Config.model_fields[name].annotation
    if name in _BY_KIND or not (inspect.isclass(kind) and issubclass(kind, Section)):
        return None
    return kind


def _table(title: str, section: type[Section], prefix: str) -> Table:
    return Table(title, _prose(section), _settings(section, prefix, list(section.model_fields)))


def _settings(section: type[Section], prefix: str, names: list[str]) -> tuple[Setting, ...]:
    fields = section.model_fields
    return tuple(Setting(prefix + n, _default(fields[n]), _words(section, n)) for n in names)


def _default(field: FieldInfo) -> Any:
    return None if field.is_required() else field.get_default(call_default_factory=True)


def _words(section: type[Section], name: str) -> str:
    """What a setting means; a kind that only has another default says what its base says."""
    bases = [base for base in section.__mro__ if issubclass(base, Section)]
    fields = [base.model_fields[name] for base in bases if name in base.model_fields]
    described = [field.description for field in fields if field.description]
    return " ".join("".join(described[:1]).split())


def _prose(section: type[Section]) -> str:
    return inspect.cleandoc(section.__doc__ or "")
