"""Configuration: one tree, checked when made, equal however it is read."""

import dataclasses
import tomllib

import pytest

from server.config.reading import documented_settings, parse_setting, read_config
from server.config.tree import Config, ConfigError

BAD = [
    ("tasks.critic.sampling_rate", 0.0, "(0, 1]"),
    ("tasks.critic.sampling_rate", 1.5, "(0, 1]"),
    ("tasks.critic.sampling_rate", float("nan"), "(0, 1]"),
    ("tasks.critic.noise_multiplier", -1.0, "or 0 (not private)"),
    ("tasks.critic.noise_multiplier", float("inf"), "or 0 (not private)"),
    ("tasks.critic.clipping_norm", 0.0, "above 0"),
    ("privacy.delta", 0.0, "(0, 1)"),
    ("privacy.delta", 0.5, "1/N"),
    ("privacy.unit", "both", "user, record"),
    ("privacy.epsilon_budget", -1.0, "no budget"),
    ("tasks.critic.rounds", 0, "above 0"),
    ("tasks.critic.kind", "gan", "frozen, focused, wgan"),
    ("data.nodes", 2000, "at most"),
    ("data.scheme", "random", "iid"),
    ("generator.averaging", 1.0, "[0, 1)"),
    ("tasks.critic.rounds", "ten", "type int"),
    ("tasks.critic.rounds", True, "type int"),
    ("seed", -1, "≥ 0"),
    ("tasks.warmup.rounds", -1, "≥ 0"),
    ("tasks.warmup.rounds", 2, "critic.family = 'focused' or 'wgan'"),
    ("tasks.warmup.sampling_rate", 0.0, "(0, 1]"),
    ("tasks.warmup.noise_multiplier", -4.0, "or 0 (not private)"),
    ("tasks.warmup.clipping_norm", 0.0, "above 0"),
    ("tasks.warmup.generator_steps", 0, "above 0"),
    ("tasks.warmup.generator_rate", 0.0, "above 0"),
    ("tasks.warmup.later_weight", -1.0, "≥ 0"),
    ("tasks.annotator.rounds", -1, "≥ 0"),
    ("tasks.annotator.sampling_rate", 1.5, "(0, 1]"),
    ("tasks.annotator.noise_multiplier", 1e-9, "or 0 (not private)"),
    ("tasks.annotator.clipping_norm", -1.0, "above 0"),
    ("tasks.annotator.components", 0, "above 0"),
    ("tasks.annotator.decorrelation", -0.5, "≥ 0"),
    ("tasks.annotator.rate", 0.0, "above 0"),
    ("tasks.annotator.momentum", 1.0, "[0, 1)"),
    ("tasks.annotator.weight", -0.1, "≥ 0"),
    ("tasks.annotator.sharpness", 0.0, "above 0"),
    ("tasks.annotator.guided_steps", -1, "≥ 0"),
    ("tasks.annotator.guided_rate", 0.0, "above 0"),
    ("release.agreement", 1.0, "[0, 1)"),
    ("release.agreement", 0.5, "tasks.annotator.rounds"),
    ("release.attempts", 0, "above 0"),
]


@pytest.mark.parametrize(("key", "value", "mend"), BAD)
def test_a_bad_value_is_refused_naming_setting_value_and_mend(key, value, mend):
    with pytest.raises(ConfigError) as refusal:
        Config().updated({key: value})
    assert key in str(refusal.value) and mend in str(refusal.value)
    assert repr(value) in str(refusal.value)


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'tasks.critic.noise_multiplier'"):
        Config().updated({"privacy.noise_multipler": 1.0})


def test_toml_and_flat_forms_give_the_same_tree_back(tmp_path):
    config = Config().updated({"data.users": 50, "tasks.critic.noise_multiplier": 3, "data.nodes": 5})
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert read_config(path) == config == Config().updated(config.flat())
    assert read_config(path).digest() == config.digest() != Config().digest()


@pytest.mark.parametrize(
    ("changes", "digest"),
    [
        ({}, "84be249f70ddf3a209a341034e2266c66baaa98abf7518cf503a083401cca6c1"),
        (
            {"data.users": 50, "privacy.population": "staff"},
            "e09abb535569c94a2ce127bcb89ef16af3bbfa5ea6f514f6dd839834f8cd034c",
        ),
        (
            {"privacy.unit": "record", "tasks.critic.kind": "wgan", "seed": 7},
            "c8fc722a4e60d64d140274064e114d64efe2d7a29bceaca08772de80c1553487",
        ),
    ],
)
def test_runs_of_before_there_were_parts_keep_their_digest(changes, digest):
    """The digests are those that the program gave these settings then."""
    assert Config().updated(changes).digest() == digest


LATER = {
    "tasks.warmup.generator_steps": 5,
    "tasks.annotator.rounds": 2,
    "tasks.annotator.rate": 2.0,
    "tasks.annotator.guided_rate": 0.1,
    "release.attempts": 3,
}


@pytest.mark.parametrize("key", LATER)
def test_a_later_setting_changes_the_digest_where_it_is_set(key):
    assert Config().updated({key: LATER[key]}).digest() != Config().digest()


def test_a_run_is_noised_where_all_of_its_parts_are():
    open_annotator = {"tasks.annotator.noise_multiplier": 0.0, "privacy.delta": 1e-5}
    assert Config().updated(open_annotator).noised  # it has no rounds
    assert not Config().updated({**open_annotator, "tasks.annotator.rounds": 1}).noised
    assert not Config().updated({"tasks.critic.noise_multiplier": 0.0, "tasks.annotator.rounds": 1}).noised


def test_record_mode_trains_every_family_and_bounds_the_one_whose_weights_travel():
    record = {"privacy.unit": "record", "tasks.critic.weight_limit": 0.0}
    assert Config().updated(record).critic.family == "frozen"
    with pytest.raises(ConfigError, match=r"critic\.weight_limit = 0\.0"):
        Config().updated({**record, "tasks.critic.kind": "wgan"})


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
    assert parse_setting("data.name=mnist") == ("data.name", "mnist")
    assert parse_setting("data.name='a=b'") == ("data.name", "a=b")
    with pytest.raises(ConfigError, match="KEY=VALUE"):
        parse_setting("tasks.critic.rounds")


def test_a_fixed_noise_seed_is_refused_outside_tests(monkeypatch):
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(ConfigError, match="protects nobody"):
        Config().updated({"privacy.fixed_seed": 1})


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().seed = 3


def test_flowers_run_config_lists_every_setting(repository):
    tables = tomllib.loads((repository / "pyproject.toml").read_text())
    listed = dict(tables["tool"]["flwr"]["app"]["config"])
    flat = {}
    for key, value in listed.items():
        flat.update(
            {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        )
    assert flat.pop("run.out") == flat.pop("run.store") == ""
    defaults = {key: value for key, value, _ in documented_settings()}
    assert {key: type(value) for key, value in flat.items()} == {
        key: type(value) for key, value in defaults.items()
    }
