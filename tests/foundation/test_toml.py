"""TOML that nobody means: refused in no time, as one error of the kind that callers know."""

from __future__ import annotations

import tomllib

import pytest

from fedlens.client.contract import ContractError, parse_contract
from fedlens.client.node.slices import wanted_slice
from fedlens.client.users.protocol import NodeDataError
from fedlens.foundation.toml import LARGEST_TOML, parse_toml
from fedlens.server.config.loading import parse_setting, read_config, read_run_config
from fedlens.server.config.tree import Config, ConfigError

LONG = "a." * 300_000 + "a"
HOSTILE = {
    "a key of many parts": f"{LONG} = 1",
    "a table of many parts": f"[{LONG}]",
    "an inline table's key": "x = {" + LONG + " = 1}",
    "quoted parts": "'a' . \"b\". " * 70_000 + "c = 1",
    "a number of many digits": f"a = {'1' * 5000}",
    "lists in lists": f"a = {'[' * 100_000}",
    "a book": "#" * (LARGEST_TOML + 1),
}
"""Each key of 300,000 parts takes `tomllib` most of an hour."""


@pytest.mark.law("input: no file crashes, hangs or runs code")
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_toml_is_refused_wherever_it_is_read(tmp_path, text):
    with pytest.raises(tomllib.TOMLDecodeError):
        parse_toml(text)
    with pytest.raises(ContractError, match="is not TOML"):
        parse_contract(text, "f")
    with pytest.raises(NodeDataError, match="is not TOML"):
        wanted_slice({"run.settings": text})
    with pytest.raises(ConfigError, match="is not TOML"):
        read_run_config({"run.settings": text})
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(ConfigError, match="is not TOML"):
        read_config(tmp_path / "c.toml")


def test_settings_as_they_are_and_numbers_of_the_command_line_are_read():
    whole = Config().to_toml() + "# " + "1.2." * 30 + "\nnote = '" + "a b. " * 500 + "'\n"
    assert parse_toml(whole)["schedule"] == tomllib.loads(whole)["schedule"]
    assert parse_setting("x=" + "1" * 5000) == ("x", "1" * 5000)
