"""The documents say what the code does; test_site.py has the checks that `make docs` runs too."""

from __future__ import annotations

import re
import tomllib

import pytest

from fedlens.api.presets import PRESETS, preset_names
from fedlens.cli import VERBS
from fedlens.server.config.loading import read_config
from fedlens.server.config.tree import RUN_KEYS, flatten


def test_the_readme_shows_every_verb(repository):
    shown = re.findall(r"^fedlens (\w+)", (repository / "README.md").read_text(), re.MULTILINE)
    assert {*shown, "ledger", "study"} >= set(VERBS)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_reads_and_says_whether_it_is_private(name):
    config = read_config(PRESETS / f"{name}.toml")
    text = (PRESETS / f"{name}.toml").read_text()
    assert ("NOT PRIVATE" in text) == (not config.noised)


@pytest.mark.law("documents: the pages say what the code does")
def test_the_bundle_runs_the_demo(repository):
    """So that `flwr run .` does what `make demo` does, with every setting listed."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())
    listed = flatten(project["tool"]["flwr"]["app"]["config"])
    settings = {key: value for key, value in listed.items() if key not in RUN_KEYS}
    assert settings == read_config(PRESETS / "demo.toml").flat()


def test_versions_are_pinned_for_every_dependency(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    pinned = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (repository / "constraints.txt").read_text().splitlines()
    }
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(d for extra in extras for d in extra)]
    names = {re.split(r"[\[<>=]", d)[0].lower() for d in wanted} - {"fedlens"}
    assert names <= pinned, names - pinned
