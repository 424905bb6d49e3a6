"""The documents say what the code does: every flag, setting and command in them is real."""

from __future__ import annotations

import re
import runpy
import shlex
import tomllib

import pytest

from fedlens.cli import VERBS, build_parser
from fedlens.presets import PRESETS, preset_names
from server.config.reading import documented_settings, flatten, read_config
from server.config.tree import RUN_KEYS
from studies.table1.figures import Group
from studies.table1.guarantees import Guarantee
from studies.table1.rows import ROWS
from studies.table1.table import Line


def test_the_reference_is_what_the_code_says(repository):
    written = (repository / "docs" / "reference.md").read_text()
    rendered = runpy.run_path(str(repository / "docs" / "make_reference.py"))["render"]()
    assert written == rendered, "run `python docs/make_reference.py`"


def test_every_setting_has_a_meaning(repository):
    meanings = runpy.run_path(str(repository / "docs" / "make_reference.py"))["meanings"]()
    assert {key for key, _, _ in documented_settings()} == set(meanings)


def commands_of(text: str) -> list[str]:
    blocks = re.findall(r"```(?:bash|sh|console)\n(.*?)```", text, re.DOTALL)
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    return [line.partition("  #")[0].strip() for line in lines if line and line[0] != "#"]


def test_every_fedlens_command_in_the_documents_parses(repository):
    commands = commands_of((repository / "README.md").read_text())
    ours = [c for c in commands if c.startswith("fedlens ")]
    assert {shlex.split(c)[1] for c in ours} >= set(VERBS) - {"resume"}
    for page in sorted((repository / "docs").glob("*.md")):
        ours += [c for c in commands_of(page.read_text()) if c.startswith("fedlens ")]
    for command in ours:
        build_parser().parse_args(shlex.split(command)[1:])


def test_every_key_of_a_line_of_the_table_is_documented(repository):
    page = (repository / "docs" / "quality.md").read_text(encoding="utf-8")
    point = {"labels": 100, "annotated": 0.8, "extended": 0.9, "requested": 0.7}
    group = Group.of({"students": {"cnn": 0.9}, "curve": [point]}, 0)
    line = Line(ROWS["mnist-record"], Guarantee(1.0, 1e-5), (group,), repository).to_json()
    keys = {*line, *line["student_accuracy"], *line["epsilon_bdp"], *line["label_curve"][0]}
    assert {*point, "mean", "sound", "epsilon_dp"} <= keys
    assert [key for key in sorted(keys) if f"`{key}`" not in page] == []


def test_every_make_target_in_the_readme_exists(repository):
    targets = set(re.findall(r"make ([a-z]+)", (repository / "README.md").read_text()))
    rules = set(re.findall(r"^([a-z]+):", (repository / "Makefile").read_text(), re.MULTILINE))
    assert targets and targets <= rules


def test_every_picture_and_link_in_the_documents_is_there(repository):
    for page in (repository / "README.md", *(repository / "docs").glob("*.md")):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), (page.name, target)


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_reads_and_says_whether_it_is_private(name):
    config = read_config(PRESETS / f"{name}.toml")
    text = (PRESETS / f"{name}.toml").read_text()
    assert ("NOT PRIVATE" in text) == (config.privacy.noise_multiplier == 0)


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
