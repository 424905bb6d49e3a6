"""Configuration: one tree, checked when made, equal however it is read."""

from __future__ import annotations

import gc
import tomllib

import pytest
from pydantic import ValidationError
from run_tasks import planned

from fedlens.api.presets import preset_config
from fedlens.foundation.errors import ExitStatus, WrongUse
from fedlens.server.config.loading import parse_setting, read_config, read_run_config
from fedlens.server.config.privatizer import (
    NoPrivatizer,
    PretrainedPrivatizer,
    SamplesPrivatizer,
    SumsPrivatizer,
)
from fedlens.server.config.reference import tables
from fedlens.server.config.tasks import TASK_KINDS, AnnotatorConfig, FrozenConfig, WganConfig
from fedlens.server.config.tree import RUN_KEYS, Config, ConfigError, nested

THREE = planned(
    {
        "tasks.warmup.rounds": 2,
        "tasks.critic.kind": "focused",
        "tasks.annotator.rounds": 3,
        "release.agreement": 0.25,
    }
)
WGAN = {"tasks.critic.kind": "wgan"}
BAD = [
    ("privacy.delta", 0.0, "a number ≥ 1e-30"),
    ("privacy.delta", 1.0, "a number below 1"),
    ("privacy.delta", 0.5, "1/N"),
    ("privacy.unit", "both", "'user' or 'record'"),
    ("privacy.epsilon_budget", -1.0, "a number ≥ 0"),
    ("privacy.epsilon_budget", float("inf"), "a finite number"),
    ("data.nodes", 2000, "at most data.users = 1000"),
    ("data.scheme", "random", "'iid'"),
    ("data.records_per_node", 0, "a number above 0"),
    ("rounds.deadline", 0.0, "a number above 0"),
    ("generator.averaging", 1.0, "a number below 1"),
    ("generator.threads", -1, "a number ≥ 0"),
    ("seed", -1, "a number ≥ 0"),
    ("seed", 2**62, "a number below"),
    ("release.agreement", 1.0, "a number below 1"),
    ("release.agreement", 0.5, "schedule a task of kind 'annotator'"),
    ("release.attempts", 0, "a number above 0"),
    ("privatizer.consenting", 1.0, "unknown setting"),
    *((f"tasks.{name}.{key}", value, fix) for name in ("warmup", "critic", "annotator")
      for key, value, fix in (
        ("rounds", 0, "a number above 0"),
        ("rounds", "ten", "type int"),
        ("rounds", True, "type int"),
        ("rounds", 1.5, "type int"),
        ("sampling_rate", 0.0, "a number above 0"),
        ("sampling_rate", 1.5, "a number of 1.0 at most"),
        ("sampling_rate", float("nan"), "a finite number"),
        ("noise_multiplier", -1.0, "a number ≥ 0"),
        ("noise_multiplier", 1e-9, "or 0"),
        ("noise_multiplier", float("inf"), "a finite number"),
        ("noise_multiplier", "4", "type float"),
        ("clipping_norm", 0.0, "a number above 0"),
        ("clipping_norm", -1.0, "a number above 0"),
    )),
    *((f"tasks.{name}.{key}", value, fix) for name in ("warmup", "critic")
      for key, value, fix in (
        ("generator_steps", 0, "a number above 0"),
        ("generator_rate", 0.0, "a number above 0"),
        ("later_weight", -1.0, "a number ≥ 0"),
    )),
    ("tasks.critic.components", 0, "a number above 0"),
    ("tasks.annotator.components", 0, "a number above 0"),
    ("tasks.annotator.features", "pixels", "'scattering' or 'orientations'"),
    ("tasks.annotator.decorrelation", -0.5, "a number ≥ 0"),
    ("tasks.annotator.rate", -0.1, "a number ≥ 0.0"),
    ("tasks.annotator.momentum", 1.0, "a number below 1"),
    ("tasks.annotator.weight", -0.1, "a number ≥ 0"),
    ("tasks.annotator.sharpness", 0.0, "a number above 0"),
    ("tasks.annotator.guided_steps", -1, "a number ≥ 0"),
    ("tasks.annotator.guided_rate", 0.0, "a number above 0"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "fix"), BAD)
def test_a_bad_value_is_refused_naming_setting_value_and_fix(key, value, fix):
    base = Config() if key == "release.agreement" else Config().updated(THREE)
    with pytest.raises(ConfigError) as refusal:
        base.updated({key: value})
    assert key in str(refusal.value) and fix in str(refusal.value)
    assert "unknown" in fix or f"{key} = {value!r} cannot be used" in str(refusal.value)
    assert isinstance(refusal.value, WrongUse)
    assert refusal.value.exit_status is ExitStatus.WRONG_USE


def test_a_refusal_leaves_nothing_in_memory():
    def refused():
        gc.collect()
        return sum(isinstance(one, ConfigError) for one in gc.get_objects())

    before = refused()
    for _ in range(20):
        with pytest.raises(ConfigError, match="no table"):
            Config().updated({"schedule": "critic other"})
    assert refused() <= before + 1  # the last one may still be held by its frame


def test_whole_numbers_are_taken_where_others_are_asked_for():
    config = Config().updated({"tasks.critic.noise_multiplier": 3})
    assert config.tasks["critic"].noise_multiplier == 3.0
    assert isinstance(config.tasks["critic"].noise_multiplier, float)


@pytest.mark.parametrize(
    ("key", "nearest"),
    [
        ("tasks.critic.noise_multipler", "tasks.critic.noise_multiplier"),
        ("privacy.dleta", "privacy.delta"),
        ("sead", "seed"),
    ],
)
def test_an_unknown_key_names_the_nearest(key, nearest):
    with pytest.raises(ConfigError, match=rf"unknown setting '{key}'; did you mean '{nearest}'"):
        Config().updated({key: 1.0})


def test_an_unknown_key_that_is_like_none_says_where_all_are():
    with pytest.raises(ConfigError, match="unknown setting 'zzz'; see `fedlens simulate --help`"):
        Config().updated({"zzz": 1})


@pytest.mark.parametrize("key", ["rounds.count", "critic.kind", "warmup.rounds", "critic"])
def test_tables_that_there_are_not_are_unknown(key):
    with pytest.raises(ConfigError, match=f"unknown setting '{key.split('.')[0]}"):
        Config().updated({key: 3})


def test_settings_of_another_kind_are_unknown_to_a_task():
    with pytest.raises(ConfigError, match=r"unknown setting 'tasks\.critic\.weight_limit'"):
        Config().updated({"tasks.critic.weight_limit": 1.0})
    assert Config().updated({**WGAN, "tasks.critic.weight_limit": 1.0}).tasks["critic"].kind


@pytest.mark.parametrize("key", ["data", "tasks", "tasks.critic", "privatizer"])
def test_a_table_is_not_a_value(key):
    with pytest.raises(ConfigError, match=rf"{key} = 3 cannot be used: give a table of settings"):
        Config().updated({key: 3})


def test_a_key_is_not_both_a_table_and_a_value():
    with pytest.raises(ConfigError, match=r"seed\.x = 1 cannot be used: seed is no table"):
        nested({"seed": 3, "seed.x": 1})


# Tasks and their schedule


def test_the_schedule_names_tasks_in_order_and_each_is_of_its_kind():
    config = Config().updated(THREE)
    assert config.schedule == tuple(config.planned) == ("warmup", "critic", "annotator")
    assert isinstance(config.tasks["warmup"], FrozenConfig)
    assert isinstance(config.annotator, AnnotatorConfig)
    assert Config().annotator is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schedule": 3}, "schedule = 3 cannot be used"),
        ({"schedule": "critic", "tasks": 3}, "tasks = 3 cannot be used: give a table"),
        ({"schedule": ""}, "schedule = '' .*name at least one task"),
        ({"schedule": "critic critic"}, "schedule = 'critic critic' .*name each once"),
        ({"schedule": "critic probe"}, r"there is no table \[tasks\.probe\]: give it, with its k"),
        ({"tasks.probe.kind": "frozen"}, r"it leaves out \[tasks\.probe\]: name it, or remove"),
        ({"tasks.probe.rounds": 2}, r"tasks\.probe cannot be used: give a kind: one of frozen, f"),
        ({"tasks.critic.kind": "gan"}, r"'gan': choose one of frozen, focused, wgan, annotator"),
        ({"tasks.critic.kind": "wgen"}, "did you mean 'wgan'"),
        (
            {"tasks.critic.kind": "focused"},
            r"tasks\.critic\.kind = 'focused' .* features: .* kind 'frozen' before it",
        ),
        (
            {"schedule": "critic two", "tasks.critic.kind": "focused", "tasks.two.kind": "frozen"},
            r"tasks\.critic\.kind = 'focused' .*schedule a task of kind 'frozen' before it",
        ),
        (
            {"schedule": "one critic two", "tasks.one.kind": "annotator",
             "tasks.two.kind": "annotator"},
            "one task of its kind at most: leave out two",
        ),
        ({"tasks.critic.kind": "privatizer"}, r"\[tasks.critic\] and .*'rounds' belong together"),
    ],
)  # fmt: skip
def test_a_schedule_that_cannot_be_carried_out_is_refused(changes, said):
    with pytest.raises(ConfigError, match=said):
        Config().updated(changes)


@pytest.mark.parametrize("name", ["Warm", "a-b", "a b", "1st", "x/y"])
def test_names_of_tasks_are_plain_words(name):
    tree = Config().model_dump()
    tree["tasks"] = {name: tree["tasks"]["critic"]}
    with pytest.raises(ConfigError):
        Config.from_tree({**tree, "schedule": name})


def test_a_new_schedule_drops_the_tasks_that_it_leaves_out():
    config = Config().updated(THREE).updated({"schedule": "warmup", "release.agreement": 0.0})
    assert list(config.tasks) == ["warmup"] and config.tasks["warmup"].rounds == 2


def test_several_tasks_may_be_of_one_kind_under_names_of_their_own():
    config = Config().updated(
        {"schedule": "one two", "tasks.one.kind": "frozen", "tasks.two.kind": "wgan"}
    )
    assert [task.kind for task in config.planned.values()] == ["frozen", "wgan"]


def test_a_task_whose_kind_changes_keeps_its_mechanism_and_starts_anew_otherwise():
    before = Config().updated({"tasks.critic.rounds": 9, "tasks.critic.generator_steps": 5})
    louder = before.updated(
        {"tasks.critic.noise_multiplier": 8.75, "tasks.critic.clipping_norm": 0.1}
    )
    assert before.updated(WGAN).tasks["critic"] == WganConfig(rounds=9)
    changed = WganConfig(rounds=9, noise_multiplier=8.75, clipping_norm=0.1)
    assert louder.updated(WGAN).tasks["critic"] == changed
    kept = before.updated({**WGAN, "tasks.critic.rounds": 7}).tasks["critic"]
    assert kept == WganConfig(rounds=7)
    same = before.updated({"tasks.critic.kind": "frozen", "tasks.critic.clipping_norm": 1.0})
    assert (same.tasks["critic"].rounds, same.tasks["critic"].clipping_norm) == (9, 1.0)


def test_a_privatizer_whose_kind_changes_starts_from_the_defaults_of_its_kind():
    before = Config().updated(
        {"privatizer.kind": "trained", "privatizer.trained_by": "samples", "privatizer.width": 9}
    )
    assert before.updated({"privatizer.budget": 0.1}).privatizer.width == 9
    path = {"privatizer.kind": "pretrained", "privatizer.path": "/x"}
    assert before.updated(path).privatizer == PretrainedPrivatizer(path="/x")
    assert before.updated({"privatizer.kind": "none"}).privatizer == NoPrivatizer()
    assert isinstance(before.privatizer, SamplesPrivatizer)
    sums = {
        "schedule": "one two",
        "tasks.one.kind": "frequencies",
        "tasks.two.kind": "moments",
        "privatizer.trained_by": "sums",
    }
    assert before.updated(sums).privatizer == SumsPrivatizer()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"tasks.privatizer.method": "magic"}, "choose one of information, alpha"),
        ({"tasks.privatizer.weight": 3.0}, "'information' has none"),
        ({"tasks.privatizer.alpha": 1.5}, r"a number in \[0, 1\]"),
    ],
)
def test_a_privatizers_method_is_known_and_looks_at_what_is_set(changes, said):
    filter_ = {
        "schedule": "privatizer critic",
        "privatizer.kind": "trained",
        "privatizer.trained_by": "rounds",
    }
    with pytest.raises(ConfigError, match=said):
        Config().updated({**filter_, "tasks.privatizer.kind": "privatizer", **changes})


def test_an_unknown_kind_of_privatizer_lists_what_there_is():
    with pytest.raises(ConfigError, match="one of none, trained, pretrained"):
        Config().updated({"privatizer.kind": "magic"})
    with pytest.raises(ConfigError, match="'magic': choose one of rounds, sums, samples"):
        Config().updated({"privatizer.kind": "trained", "privatizer.trained_by": "magic"})
    with pytest.raises(ConfigError, match="the run trains is of kind 'trained'"):
        Config().updated({"privatizer.trained_by": "samples"})
    with pytest.raises(ConfigError, match=r"kind = \['none'\]: choose one of none, trained"):
        Config().updated({"privatizer.kind": ["none"]})


def test_a_run_is_noised_where_all_of_its_tasks_are():
    config = Config().updated(planned({"tasks.critic.rounds": 1, "tasks.annotator.rounds": 1}))
    assert config.noised
    for name in ("critic", "annotator"):
        assert not config.updated({f"tasks.{name}.noise_multiplier": 0.0}).noised


def test_without_noise_any_delta_will_do():
    wide = {"privacy.delta": 0.5}
    with pytest.raises(ConfigError, match="protects no user"):
        Config().updated(wide)
    assert Config().updated({**wide, "tasks.critic.noise_multiplier": 0.0}).privacy.delta == 0.5


def test_record_mode_trains_every_critic_and_bounds_the_one_whose_weights_travel():
    record = {"privacy.unit": "record"}
    assert Config().updated(record).tasks["critic"].kind == "frozen"
    assert Config().updated({**record, **WGAN}).tasks["critic"].weight_limit > 0
    with pytest.raises(ConfigError, match=r"tasks\.critic\.weight_limit = 0\.0"):
        Config().updated({**record, **WGAN, "tasks.critic.weight_limit": 0.0})
    with pytest.raises(ConfigError, match=r"privacy\.delta = 0\.0001.* 1e-05 \(record mode\)"):
        Config().updated({**record, "privacy.delta": 1e-4})


# One tree, however it is read


TREES = [
    {},
    {"data.users": 50, "tasks.critic.noise_multiplier": 3, "data.nodes": 5},
    THREE,
    {"privatizer.kind": "trained", "privatizer.trained_by": "samples", "privatizer.budget": 0.01},
    {"privatizer.kind": "pretrained", "privatizer.path": "/x", "privacy.population": "clinic"},
    {**WGAN, "privacy.unit": "record"},
]


@pytest.mark.parametrize("changes", TREES)
def test_toml_flat_and_nested_forms_give_the_same_tree_back(tmp_path, changes):
    config = Config().updated(changes)
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    forms = [
        read_config(path),
        Config().updated(config.flat()),
        Config.from_tree(config.model_dump()),
        read_run_config({**config.flat(), "run.out": "x", "run.store": ""}),
    ]
    assert all(form == config and form.digest() == config.digest() for form in forms)


def test_every_setting_decides_the_digest():
    digests = [Config().updated(changes).digest() for changes in TREES]
    assert len(set(digests)) == len(TREES)
    changed = [{"seed": 1}, {"tasks.critic.later_weight": 0.5}, {"release.attempts": 3}]
    assert all(Config().updated(c).digest() != Config().digest() for c in changed)
    assert Config().updated({"seed": 0}).digest() == Config().digest()


def test_the_order_of_tables_is_no_part_of_the_digest_and_that_of_the_schedule_is():
    two = {"tasks.one.kind": "frozen", "tasks.two.kind": "wgan"}
    config = Config().updated({"schedule": "one two", **two})
    assert Config().updated({**dict(reversed(two.items())), "schedule": "one two"}) == config
    assert config.updated({"schedule": "two one"}).digest() != config.digest()


def test_flowers_run_config_may_hold_tables_that_the_schedule_leaves_out():
    """A submission can override keys of the app's own configuration, not remove them."""
    flat = {**Config().updated(THREE).flat(), "schedule": "warmup", "release.agreement": 0.0}
    config = read_run_config({**flat, **dict.fromkeys(RUN_KEYS, "")})
    assert list(config.tasks) == ["warmup"] and config.tasks["warmup"].rounds == 2


def test_flowers_run_config_without_a_schedule_drops_nothing():
    """Dropped settings of a mechanism would be noise that somebody asked for and did not get."""
    found = read_run_config({"tasks.critic.noise_multiplier": 20.0, "tasks.critic.rounds": 2})
    assert found.tasks["critic"].noise_multiplier == 20.0
    with pytest.raises(ConfigError, match=r"leaves out \[tasks.other\]"):
        read_run_config({"tasks.other.kind": "frozen"})


def test_a_task_that_run_settings_schedule_has_what_the_run_config_says_of_it():
    flat = {**Config().updated(THREE).flat(), "schedule": "warmup", "release.agreement": 0.0}
    flat |= {"tasks.annotator.noise_multiplier": 77.0}
    more = 'schedule = "warmup annotator"\n[tasks.annotator]\n'
    found = read_run_config({**flat, "run.settings": more + "rounds = 5"}).tasks["annotator"]
    assert (found.noise_multiplier, found.rounds) == (77.0, 5)
    other = read_run_config({**flat, "run.settings": more + "kind = 'wgan'"}).tasks["annotator"]
    assert other == WganConfig()


@pytest.mark.parametrize("text", ["= 3", "[privacy\nx=1", "\x00"])
def test_a_file_that_is_not_toml_is_named(tmp_path, text):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"bad\.toml"):
        read_config(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="absent"):
        read_config(tmp_path / "absent.toml")


def test_settings_from_the_command_line_keep_their_type():
    assert parse_setting("tasks.critic.rounds=3") == ("tasks.critic.rounds", 3)
    assert parse_setting("tasks.critic.rate=.5") == ("tasks.critic.rate", 0.5)
    assert parse_setting("data.alpha= -2. ") == ("data.alpha", -2.0)
    assert parse_setting("data.name=mnist") == ("data.name", "mnist")
    assert parse_setting("data.name='a=b'") == ("data.name", "a=b")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_setting("tasks.critic.rounds")


def test_a_fixed_noise_seed_is_refused_outside_tests(monkeypatch):
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(ConfigError, match=r"privacy\.fixed_seed = 1 .*protects no user"):
        Config().updated({"privacy.fixed_seed": 1})


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Config().seed = 3
    with pytest.raises(ValidationError, match="frozen"):
        Config().tasks["critic"].rounds = 3


# The reference, and Flower's own configuration


def test_the_reference_gives_every_setting_a_meaning():
    found = list(tables())
    lacking = [s.key for table in found for s in table.settings if not s.meaning]
    assert not lacking
    assert not [table.title for table in found if not table.meaning and table.title]


def test_the_reference_has_every_key_of_every_kind():
    found = [setting.key for table in tables() for setting in table.settings]
    for kind in TASK_KINDS:
        for name in TASK_KINDS[kind].config.model_fields:
            assert name == "kind" or f"tasks.NAME.{name}" in found
    keys = {key for changes in TREES for key in Config().updated(changes).flat()}
    plain = {key for key in keys if not key.startswith("tasks.")}
    assert plain <= set(found)


def test_the_reference_says_where_a_kind_has_another_default():
    (annotator,) = [t for t in tables() if t.title == '[tasks.NAME] kind = "annotator"']
    defaults = {setting.key: setting.default for setting in annotator.settings}
    assert defaults["tasks.NAME.rounds"] == AnnotatorConfig().rounds == 20
    assert "tasks.NAME.sampling_rate" not in defaults, "it is that of every task"


def test_flowers_run_config_is_a_run_of_this_program(repository):
    tables_ = tomllib.loads((repository / "pyproject.toml").read_text())
    listed = tables_["tool"]["flwr"]["app"]["config"]
    flat = {}
    for key, value in listed.items():
        held = {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else None
        flat |= {key: value} if held is None else _flat(held)
    assert set(RUN_KEYS) <= set(flat)
    read_run_config(flat)


def _flat(settings):
    found = {}
    for key, value in settings.items():
        inner = isinstance(value, dict)
        found |= _flat({f"{key}.{k}": v for k, v in value.items()}) if inner else {key: value}
    return found


def test_deep_brackets_are_no_configuration(tmp_path):
    deep = "[" * 5000
    (tmp_path / "c.toml").write_text(f"[data]\ndir = {deep}")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_config(tmp_path / "c.toml")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_run_config({"run.settings": f"x = {deep}"})
    assert parse_setting(f"data.dir={deep}") == ("data.dir", deep)


@pytest.mark.parametrize(
    "settings",
    [
        {"privacy.unit": "record"},
        {"split.side": "below", "split.model": "runs/one"},
        {"privatizer.kind": "pretrained", "privatizer.path": "/runs/filter"},
        {"aggregation.trimmed_share": 0.1, "data.nodes": 10},
    ],
)
def test_a_card_is_left_out_where_not_all_answer_with_their_records_as_they_are(settings):
    demo = preset_config("demo")
    assert "card" in demo.schedule
    found = demo.updated(settings)
    assert found.schedule == tuple(name for name in demo.schedule if name != "card")
    alone = demo.updated({"schedule": "card", "release.agreement": 0.0})
    assert alone.schedule == ("card",)
