"""Configuration: one tree, checked when made, equal however it is read."""

import dataclasses
import tomllib

import pytest

from server.config import Config, ConfigError
from server.settings import documented_settings, parse_setting, read_config

BAD = [
    ("privacy.sampling_rate", 0.0, "(0, 1]"),
    ("privacy.sampling_rate", 1.5, "(0, 1]"),
    ("privacy.sampling_rate", float("nan"), "(0, 1]"),
    ("privacy.noise_multiplier", -1.0, "or 0 (not private)"),
    ("privacy.noise_multiplier", float("inf"), "or 0 (not private)"),
    ("privacy.clipping_norm", 0.0, "above 0"),
    ("privacy.delta", 0.0, "(0, 1)"),
    ("privacy.delta", 0.5, "1/N"),
    ("privacy.unit", "both", "user, record"),
    ("privacy.epsilon_budget", -1.0, "no budget"),
    ("rounds.count", 0, "above 0"),
    ("critic.family", "gan", "frozen, wgan"),
    ("data.nodes", 2000, "at most"),
    ("data.scheme", "random", "iid"),
    ("generator.averaging", 1.0, "[0, 1)"),
    ("rounds.count", "ten", "type int"),
    ("rounds.count", True, "type int"),
    ("seed", -1, "≥ 0"),
]


@pytest.mark.parametrize(("key", "value", "mend"), BAD)
def test_a_bad_value_is_refused_naming_setting_value_and_mend(key, value, mend):
    with pytest.raises(ConfigError) as refusal:
        Config().updated({key: value})
    assert key in str(refusal.value) and mend in str(refusal.value)
    assert repr(value) in str(refusal.value)


def test_an_unknown_key_names_the_nearest():
    with pytest.raises(ConfigError, match=r"did you mean 'privacy.noise_multiplier'"):
        Config().updated({"privacy.noise_multipler": 1.0})


def test_toml_and_flat_forms_give_the_same_tree_back(tmp_path):
    config = Config().updated({"data.users": 50, "privacy.noise_multiplier": 3, "data.nodes": 5})
    path = tmp_path / "config.toml"
    path.write_text(config.to_toml())
    assert read_config(path) == config == Config().updated(config.flat())
    assert read_config(path).digest() == config.digest() != Config().digest()


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
    assert parse_setting("rounds.count=3") == ("rounds.count", 3)
    assert parse_setting("data.name=mnist") == ("data.name", "mnist")
    assert parse_setting("data.name='a=b'") == ("data.name", "a=b")
    with pytest.raises(ConfigError, match="key=value"):
        parse_setting("rounds.count")


def test_a_fixed_noise_seed_is_refused_outside_tests(monkeypatch):
    monkeypatch.delenv("FEDLENS_TEST_MODE")
    with pytest.raises(ConfigError, match="protects nobody"):
        Config().updated({"privacy.fixed_seed": 1})


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().seed = 3


def test_flowers_run_config_lists_every_setting_with_its_default(repository):
    tables = tomllib.loads((repository / "pyproject.toml").read_text())
    listed = dict(tables["tool"]["flwr"]["app"]["config"])
    flat = {}
    for key, value in listed.items():
        flat.update(
            {f"{key}.{k}": v for k, v in value.items()} if isinstance(value, dict) else {key: value}
        )
    assert flat.pop("run.out") == flat.pop("run.store") == ""
    assert flat == {key: value for key, value, _ in documented_settings()}
