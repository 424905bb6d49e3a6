"""Everything that decides a run's result, in one frozen tree that is checked when it is made.

The same tree is read from a TOML file, from ``--set section.key=value`` and from Flower's flat
run config; its canonical JSON digest names the run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, cast

import tomli_w
from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from fedlens.foundation.unlabelled import NONE, PARTLY
from fedlens.server.config import needs
from fedlens.server.config.aggregation import AggregationConfig
from fedlens.server.config.privatizer import NoPrivatizer, PrivatizerConfig, PrivatizerSection
from fedlens.server.config.section import ConfigError, Section, refusal, require
from fedlens.server.config.sections import (
    POPULATION_NAME,
    DataConfig,
    GeneratorConfig,
    MembershipConfig,
    PrivacyConfig,
    ReleaseConfig,
    RoundsConfig,
    SplitConfig,
)
from fedlens.server.config.tasks import (
    TASK_KINDS,
    AnnotatorConfig,
    CriticConfig,
    FrozenConfig,
    TaskConfig,
    task_config,
)

__all__ = [
    "POPULATION_NAME",
    "RUN_KEYS",
    "Config",
    "ConfigError",
    "DataConfig",
    "PrivatizerConfig",
    "TaskConfig",
]

RUN_KEYS = ("run.out", "run.store", "run.settings", "run.only_copy", "run.name")
"""Keys of Flower's run config that are no settings: where a run goes, its store's URL (never with a
password: all of it travels to the nodes), TOML with settings over all others, for Flower itself
overrides only keys that the app lists, whether the run's folder is said to be the only one, and the
name of that folder below ``$FEDLENS_HOME/runs`` where ``run.out`` is empty."""
RECORD_DELTA = 1e-5
"""Largest δ in record mode, where nodes do not tell how many records they hold."""
MECHANISM = ("rounds", "sampling_rate", "noise_multiplier", "clipping_norm")
"""What a task keeps when its kind changes."""
FORM = ("kind", "trained_by")
"""What decides which other settings a table has."""
SCHEMA = 1
"""Version of the settings' layout; it is in every digest."""

Flat = dict[str, bool | int | float | str]
Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: tuple(value.split()) if isinstance(value, str) else value),
    PlainSerializer(" ".join),
]
TaskName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Tasks = dict[TaskName, Annotated[SerializeAsAny[TaskConfig], BeforeValidator(task_config)]]


def _one_critic() -> dict[str, TaskConfig]:
    return {"critic": FrozenConfig(rounds=4)}


class Config(Section):
    """A whole run."""

    seed: Annotated[int, Field(ge=0, lt=2**62)] = 0
    """Seed of everything that is not private: initial weights, partition, generator noise."""
    schedule: Names = ("critic",)
    """Names of the tasks, in the order in which they are carried out."""
    data: DataConfig = DataConfig()
    split: SplitConfig = SplitConfig()
    privacy: PrivacyConfig = PrivacyConfig()
    rounds: RoundsConfig = RoundsConfig()
    aggregation: AggregationConfig = AggregationConfig()
    membership: MembershipConfig = MembershipConfig()
    tasks: Tasks = Field(default_factory=_one_critic)
    generator: GeneratorConfig = GeneratorConfig()
    privatizer: PrivatizerSection = NoPrivatizer()
    release: ReleaseConfig = ReleaseConfig()

    @classmethod
    def from_tree(cls, tree: Mapping[str, Any]) -> Config:
        """A configuration from nested tables.

        Raises:
            ConfigError: an unknown key, a value of the wrong type, or one out of range.
        """
        try:
            return cls.model_validate(dict(tree))
        except ValidationError as error:
            raise refusal(error, Config().flat()) from None

    @property
    def planned(self) -> dict[str, TaskConfig]:
        """The tasks by name, in the order of the schedule."""
        return {name: self.tasks[name] for name in self.schedule}

    @property
    def annotator(self) -> AnnotatorConfig | None:
        """The settings of the task that trains the annotator, where there is one."""
        found = self.providers(needs.LABELS)
        return cast(AnnotatorConfig, self.tasks[found[0]]) if found else None

    @property
    def critics(self) -> dict[str, CriticConfig]:
        """The tasks that the generator learns from, by name, in the order of the schedule."""
        found = self.providers(needs.GENERATOR_LOSS)
        return {name: cast(CriticConfig, self.tasks[name]) for name in found}

    def providers(self, need: str) -> list[str]:
        """Names of the tasks that provide something, in the order of the schedule."""
        return [name for name, task in self.planned.items() if need in task.provides]

    @property
    def noised(self) -> bool:
        """Whether every task of the run adds noise; without it no user is protected."""
        return all(task.noise_multiplier > 0 for task in self.tasks.values())

    def flat(self) -> Flat:
        """The tree as ``{"section.key": value}``, the form of Flower's run config."""
        return flatten(self.model_dump())

    def updated(self, settings: Mapping[str, object]) -> Config:
        """A copy with ``settings`` (flat keys) in place of its own.

        A table whose ``kind`` or ``trained_by`` changes starts anew from the defaults of that form,
        but for a task's rounds, q, z and C, which every kind has. A task that a new schedule leaves
        out is dropped; one that it names anew needs its ``kind`` in ``settings``. Where they give
        no schedule, a task that they do not name and that cannot be with them is dropped too: one
        that needs labels with ``data.labels = none``, and the filter of samples by the annotator
        with it; a data card where not all users answer with their records as they are. Where they
        set ``own-or-none`` the annotator stays, and only its filter and its guidance, which go by
        classes that samples are asked for, are left out.

        Raises:
            ConfigError: an unknown key, a value of the wrong type, or one out of range.
        """
        tree = self.model_dump()
        wanted = nested(settings)
        tasks = wanted.get("tasks", {})
        require(isinstance(tasks, Mapping), "tasks", tasks, "give a table of settings")
        _clear_changed_kinds(tree, wanted)
        _merge(tree, wanted)
        if "schedule" not in settings:
            if _counts_only_some(wanted):
                _leave_out(tree, wanted, lambda task: needs.CARD not in task.provides)
            if settings.get("data.labels") == NONE and _leave_out(
                tree, wanted, lambda task: not task.reads_labels
            ):
                _without_agreement(tree, wanted)
        if settings.get("data.labels") == PARTLY:
            _leave_out_guidance(tree, wanted)
        if "schedule" in settings and isinstance(tree["schedule"], str):
            named = {*tree["schedule"].split(), *tasks}
            tree["tasks"] = {name: task for name, task in tree["tasks"].items() if name in named}
        return Config.from_tree(tree)

    def to_toml(self) -> str:
        """The tree as TOML that `read_config` reads back equal."""
        return tomli_w.dumps(self.model_dump())

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of the tree and the layout's version.

        The population is part of it: a run cannot leave its population, or join another, by a
        change of its settings.
        """
        return digest_of_tree(self.model_dump())

    # What sections ask of each other

    @model_validator(mode="after")
    def _tasks_are_scheduled(self) -> Config:
        text = " ".join(self.schedule)
        require(bool(self.schedule), "schedule", text, "name at least one task")
        require(len(set(self.schedule)) == len(self.schedule), "schedule", text, "name each once")
        lacking = [name for name in self.schedule if name not in self.tasks]
        fix = f"there is no table [tasks.{''.join(lacking[:1])}]: give it, with its kind"
        require(not lacking, "schedule", text, fix)
        spare = [name for name in self.tasks if name not in self.schedule]
        fix = f"it leaves out [tasks.{''.join(spare[:1])}]: name it, or remove that table"
        require(not spare, "schedule", text, fix)
        return self

    @model_validator(mode="after")
    def _tasks_find_what_they_build_on(self) -> Config:
        given: set[str] = set()
        for name, task in self.planned.items():
            if lacking := sorted(task.requires - given):
                fix = f"it builds on {' and '.join(lacking)}: schedule {_providers_of(lacking)}"
                require(False, f"tasks.{name}.kind", task.kind, f"{fix} before it")
            given |= task.provides
        for need in sorted(needs.ONE_AT_MOST):
            named, text = self.providers(need), " ".join(self.schedule)
            fix = f"there is one task of its kind at most: leave out {', '.join(named[1:])}"
            require(len(named) < 2, "schedule", text, fix)
        return self

    @model_validator(mode="after")
    def _the_filter_has_its_tasks(self) -> Config:
        filter_ = self.privatizer
        wanted = filter_.training if filter_.by_tasks else ""
        name, value = "privatizer.kind", filter_.kind
        if filter_.training:
            name, value = "privatizer.trained_by", filter_.training
        parts = [task.trains_filter_by for task in self.planned.values()]
        for task, part in zip(self.planned, parts, strict=True):
            fix = f"[tasks.{task}] and privatizer.trained_by = {part!r} belong together: give both"
            require(part in ("", wanted), name, value, f"{fix} or neither")
        if wanted and not self.providers(needs.PRIVATIZER):
            fix = _providers_of([needs.PRIVATIZER], wanted)
            require(False, name, value, f"no task trains the filter: schedule {fix}")
        fix = "tasks that train the filter, which all others look through, come first"
        first = parts == sorted(parts, key=lambda part: not part)
        require(first, "schedule", " ".join(self.schedule), fix)
        return self

    @model_validator(mode="after")
    def _the_unit_is_possible(self) -> Config:
        record = self.privacy.unit == "record"
        fix = "privatizers are for users, not records: set privacy.unit = 'user', or leave it out"
        holds = not (record and self.privatizer.active)
        require(holds, "privatizer.kind", self.privatizer.kind, fix)
        for name, task in self.tasks.items():
            unbounded = record and task.unbounded_by
            fix = "record mode needs a limit above 0: it bounds what a node's reply may hold"
            require(not unbounded, f"tasks.{name}.{unbounded}", 0.0, fix)
        largest, unit = (RECORD_DELTA, "record mode") if record else (1 / self.data.users, "1/N")
        fix = f"make it at most {largest:g} ({unit}): a larger δ protects no user"
        holds = not self.noised or self.privacy.delta <= largest
        require(holds, "privacy.delta", self.privacy.delta, fix)
        return self

    @model_validator(mode="after")
    def _sums_can_be_masked(self) -> Config:
        self.aggregation.check(self.data.nodes, self.privacy.unit, self.data.users)
        share = self.aggregation.trimmed_share
        of_all = any(task.of_all_users for task in self.tasks.values())
        fix = "probes and cards are means over all users, and a trimmed sum is not of all: set 0"
        require(not (share and of_all), "aggregation.trimmed_share", share, fix)
        return self

    @model_validator(mode="after")
    def _the_split_is_of_users_as_they_are(self) -> Config:
        split = self.split
        for name, value, holds, fix in (
            ("privacy.unit", self.privacy.unit, "user", "a split is of users: set 'user'"),
            (
                "privatizer.kind",
                self.privatizer.kind,
                "none",
                "a split looks past a filter: 'none'",
            ),
            ("data.slice", self.data.slice, "", "take a slice or a side of a split, not both"),
        ):
            require(not split.active or value == holds, name, value, fix)
        return self

    @model_validator(mode="after")
    def _without_labels_nothing_asks_for_them(self) -> Config:
        if not self.data.unlabelled:
            return self
        labels, partly = self.data.labels, self.data.partly_labelled
        asking = [name for name, task in self.planned.items() if task.reads_labels and not partly]
        fix = f"[tasks.{''.join(asking[:1])}] needs labels: leave it out of the schedule"
        require(not asking, "data.labels", labels, fix)
        guided = 0 if self.annotator is None else self.annotator.guided_steps
        fix = "samples have no class to be guided to: set the annotator's guided_steps = 0"
        require(not guided, "data.labels", labels, fix)
        fix = "samples have no class that an annotator could agree with: set release.agreement = 0"
        require(not self.release.agreement, "data.labels", labels, fix)
        filters = self.privatizer.active and not self.privatizer.asked_run
        fix = "a filter is trained by what labels say: take one that is trained, or none"
        require(not filters, "data.labels", labels, fix)
        fix = "a split goes by how well a model names records: set split.side = 'none'"
        require(not self.split.active, "data.labels", labels, fix)
        fault = self.data.fault
        lack = "not all records have labels" if partly else "records have no labels"
        fix = f"{lack}: plant faults of images, in all of a user's records"
        require(not (fault and _is_of_labels(fault)), "data.fault", fault, fix)
        return self

    @model_validator(mode="after")
    def _the_label_model_names_records_as_they_are(self) -> Config:
        """One run is built upon at most, and it is of records that nothing changes afterwards."""
        data = self.data
        if not data.label_model:
            return self
        labels, record = data.labels, self.privacy.unit == "record"
        for holds, fix in (
            (not self.privatizer.active, "nodes would filter records that it knows: 'none'"),
            (not self.split.active, "a run builds on one other run: set split.side = 'none'"),
            (not data.fault, "faults are planted in records that have names: leave data.fault"),
            (not record, "what it cost is a user's: set privacy.unit = 'user'"),
        ):
            require(holds, "data.labels", labels, fix)
        return self

    @model_validator(mode="after")
    def _the_bayesian_budget_has_its_norms(self) -> Config:
        privacy = self.privacy
        known = privacy.unit == "user" and privacy.norms_share > 0 and self.noised
        fix = "it needs norms: user mode, noise in every task and privacy.norms_share above 0"
        budget = privacy.bayesian_epsilon_budget
        require(not budget or known, "privacy.bayesian_epsilon_budget", budget, fix)
        return self

    @model_validator(mode="after")
    def _the_filter_of_samples_has_its_judge(self) -> Config:
        share = self.release.agreement
        fix = "the annotator is the filter: schedule a task of kind 'annotator', or leave it at 0"
        require(share == 0 or self.annotator is not None, "release.agreement", share, fix)
        return self


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Flat:
    """Nested tables as flat dotted keys."""
    flat: Flat = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{key}."))
        else:
            flat[prefix + key] = value
    return flat


def nested(settings: Mapping[str, object]) -> dict[str, Any]:
    """Flat dotted keys as nested tables.

    Raises:
        ConfigError: a key is a table in one setting and a value in another.
    """
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *path, last = key.split(".")
        table = tree
        for part in path:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{key} = {value!r} cannot be used: {part} is no table")
        table[last] = value
    return tree


def _merge(tree: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    for key, value in wanted.items():
        if isinstance(value, Mapping) and isinstance(tree.get(key), dict):
            _merge(tree[key], value)
        else:
            tree[key] = value


def _leave_out(
    tree: dict[str, Any], wanted: Mapping[str, Any], fits: Callable[[TaskConfig], bool]
) -> bool:
    """Take tasks out of a preset that do not fit, but for those that somebody asks for.

    Returns:
        Whether there are any; where none would be left, none is taken out.
    """
    tasks, asked = tree["tasks"], wanted.get("tasks", {})
    given = tree["schedule"]
    names = given.split() if isinstance(given, str) else list(given)
    known = {name: _readable(tasks.get(name)) for name in names if name not in asked}
    spare = [name for name, task in known.items() if task is not None and not fits(task)]
    if not spare or len(spare) == len(names):
        return False
    tree["schedule"] = " ".join(name for name in names if name not in spare)
    tree["tasks"] = {name: table for name, table in tasks.items() if name not in spare}
    return True


def _readable(table: Any) -> TaskConfig | None:
    """A task's settings; None where they cannot be used, which is said when all are checked."""
    try:
        return task_config(table)
    except (ValueError, KeyError):
        return None


def _without_agreement(tree: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """No annotator filters samples, unless somebody says so."""
    if "agreement" not in wanted.get("release", {}):
        tree["release"]["agreement"] = 0.0


def _counts_only_some(wanted: Mapping[str, Any]) -> bool:
    """Whether settings have not every enrolled user answer with all that the user holds as it is.

    Only new settings decide: a schedule that is fixed keeps its card, and is refused.
    """

    def asked(section: str, key: str, plain: object) -> bool:
        table = wanted.get(section, {})
        return isinstance(table, Mapping) and table.get(key, plain) != plain

    return (
        asked("privacy", "unit", "user")
        or asked("split", "side", "none")
        or asked("privatizer", "kind", "none")
        or asked("aggregation", "trimmed_share", 0)
    )


def _leave_out_guidance(tree: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """Have samples without a class neither guided nor filtered, but where somebody asks for it."""
    tasks, asked = tree["tasks"], wanted.get("tasks", {})
    for name, table in tasks.items():
        task = _readable(table)
        guides = task is not None and "guided_steps" in type(task).model_fields
        if guides and "guided_steps" not in asked.get(name, {}):
            tasks[name] = {**table, "guided_steps": 0}
    _without_agreement(tree, wanted)


def _is_of_labels(faults: str) -> bool:
    from fedlens.models.faults.planting import parse_faults  # brings PyTorch

    return any(one.chosen or one.fault.needs_labels for one in parse_faults(faults))


def _clear_changed_kinds(tree: dict[str, Any], wanted: Mapping[str, Any]) -> None:
    """Empty the tables that are to be of another kind, but for what every kind of task has."""
    tasks = wanted.get("tasks", {})
    places = [(tree["tasks"], name, table) for name, table in tasks.items()]
    places.append((tree, "privatizer", wanted.get("privatizer")))
    for tables, name, table in places:
        if not isinstance(table, Mapping) or name not in tables:
            continue
        old = tables[name]
        if any(key in table and table[key] != old.get(key) for key in FORM):
            tables[name] = {key: old[key] for key in ("kind", *MECHANISM) if key in old}


def digest_of_tree(tree: Mapping[str, object]) -> str:
    """`Config.digest` of a tree of settings: what is not in it is in no way part of it."""
    text = json.dumps({"schema": SCHEMA, **tree}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _providers_of(lacking: Sequence[str], training: str = "") -> str:
    """Kinds of task that provide what is lacking, in words; those alone that train a filter so."""
    kinds = {kind: TASK_KINDS[kind].config for kind in TASK_KINDS}
    found = [
        repr(kind)
        for kind, one in kinds.items()
        if one.provides & set(lacking) and training in ("", one.trains_filter_by)
    ]
    return f"a task of kind {' or '.join(found)}" if found else "a task that provides it"
