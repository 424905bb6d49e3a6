"""An operator's settings name no file of the server but those that its owner allows."""

from __future__ import annotations

import pytest
from flwr.app import Context, RecordDict

import fedlens.server.app
from fedlens.server.config.tree import Config, ConfigError
from fedlens.server.paths import VARIABLE, check_paths

pytestmark = pytest.mark.law("deployment: no machine holds another one's secrets")


@pytest.fixture
def home(tmp_path):
    """The server's folder, with a link out of it, and a folder beside it."""
    home = tmp_path / "home"
    (home / "runs").mkdir(parents=True)
    (tmp_path / "homework").mkdir()
    (home / "out").symlink_to(tmp_path / "homework")
    (home / "loop").symlink_to(home / "loop")
    return home


INSIDE = [
    ("run.out", "{home}/runs/first"),
    ("run.store", "sqlite:///{home}/runs/first/other.db"),
    ("run.store", "{home}/other.db"),
    ("privacy.population", "{home}/populations/ward-7"),
    ("privacy.population", "ward-7"),
    ("data.name", "federation:{home}/federation.toml"),
    ("data.name", "embedded"),
    ("tasks.critic.kind", "frozen"),
    ("split.side", "a.b/c"),
]
OUTSIDE = [
    ("run.out", "/etc/cron.d"),
    ("run.out", "relative"),
    ("run.out", "{home}/runs/../../elsewhere"),
    ("run.out", "{home}work"),
    ("run.out", "{home}/out/run"),
    ("run.out", "{home}/loop/run"),
    ("run.out", "~root/run"),
    ("run.out", "{home}/a\0b"),
    ("run.store", "sqlite:////etc/passwd"),
    ("run.store", "/var/lib/other.db"),
    ("run.store", "postgresql+psycopg://db.example.org/metadata"),
    ("run.store", "sqlite:///file:/etc/passwd?uri=true"),
    ("run.store", "sqlite://"),
    ("run.store", "a://b:c:d"),
    ("privacy.population", "/srv/other/population"),
    ("privacy.population", ".."),
    ("data.name", "federation:/etc/shadow"),
    ("data.name", "folder:/etc,utility=a"),
    ("data.name", "folder:faces/../../x,utility=a"),
    ("split.model", "/elsewhere/runs/secret"),
    ("data.dir", "../up"),
    ("data.dir", "~/up"),
]


@pytest.mark.parametrize(("key", "value"), INSIDE)
def test_what_lies_in_the_servers_folder_may_be_named(home, key, value):
    check_paths({key: value.format(home=home), "rounds": 3}, {VARIABLE: str(home)})


@pytest.mark.parametrize(("key", "value"), OUTSIDE)
def test_what_lies_elsewhere_is_refused_with_the_fix(home, key, value):
    with pytest.raises(ConfigError, match=r"outside the folders.*paths in the SuperLink's") as said:
        check_paths({key: value.format(home=home)}, {VARIABLE: str(home)})
    assert str(said.value).startswith(f"{key} = ") and "\n" not in str(said.value)


@pytest.mark.parametrize("path", ["/etc", "~/up", "../up", "~nosuchuser/x"])
@pytest.mark.parametrize(
    "written",
    [
        '[data]\ndir = "{path}"',
        "data.dir = '{path}'",
        '[data]\nname = "folder:{path},utility=a"',
        '[split]\nmodel = ["x", "{path}"]',
    ],
)
def test_settings_over_the_others_are_looked_at_too(home, written, path):
    """What an operator's ``run.settings`` says is read after all else, so it must not slip by."""
    with pytest.raises(ConfigError, match="outside the folders"):
        check_paths({"run.settings": written.format(path=path)}, {VARIABLE: str(home)})
    check_paths({"run.settings": written.format(path=home / "x")}, {VARIABLE: str(home)})


def test_escapes_hide_no_path_and_what_is_no_toml_is_refused(home):
    hidden = '[data]\nname = "folder:\\u002fetc,utility=a"'
    with pytest.raises(ConfigError, match="outside the folders"):
        check_paths({"run.settings": hidden}, {VARIABLE: str(home)})
    with pytest.raises(ConfigError, match="not TOML"):
        check_paths({"run.settings": "= /etc"}, {VARIABLE: str(home)})


@pytest.mark.parametrize(
    ("key", "value"), [("data.dir", "beside"), ("data.name", "folder:beside,utility=a")]
)
def test_a_path_from_where_the_server_runs_must_lie_inside_too(
    home, tmp_path, monkeypatch, key, value
):
    (tmp_path / "beside").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="outside the folders"):
        check_paths({key: value}, {VARIABLE: str(home)})
    (home / "beside").mkdir()
    monkeypatch.chdir(home)
    check_paths({key: value}, {VARIABLE: str(home)})


def test_the_owner_may_add_folders_and_an_empty_list_allows_none(home, tmp_path):
    both = f"{home}:{tmp_path / 'homework'}"
    check_paths({"run.out": str(tmp_path / "homework" / "x")}, {VARIABLE: both})
    with pytest.raises(ConfigError):
        check_paths({"run.out": str(home / "x")}, {VARIABLE: ""})


def test_a_machine_of_ones_own_sets_no_limit():
    check_paths({"run.out": "/anywhere"}, {})


def test_the_server_app_looks_before_it_touches_anything(home, tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(home))
    config = {**Config().flat(), "run.out": str(tmp_path / "homework" / "run")}
    context = Context(1, 1, {}, RecordDict(), config)
    with pytest.raises(ConfigError, match=r"run\.out = .*outside the folders"):
        fedlens.server.app.main(None, context)
    assert list((tmp_path / "homework").iterdir()) == []
