"""The store's password is named where the server runs, never in what travels to nodes."""

from __future__ import annotations

import pytest

from fedlens.server.config.tree import ConfigError
from fedlens.server.run.store import store_url

pytestmark = pytest.mark.law("deployment: no machine holds another one's secrets")

SECRET = "postgresql://fedlens:hunter2@db/fedlens"


@pytest.mark.parametrize("url", [SECRET, "postgresql://db/fedlens?password=hunter2"])
def test_a_password_in_the_run_config_is_refused_without_being_said(url):
    with pytest.raises(ConfigError, match="FEDLENS_RUN_STORE") as refused:
        store_url(url, {})
    assert "hunter2" not in str(refused.value)


def test_the_environment_names_the_store_or_a_file_with_it(tmp_path):
    file = tmp_path / "store-url"
    file.write_text(SECRET + "\n")
    file.chmod(0o600)
    assert store_url("", {"FEDLENS_RUN_STORE": SECRET}) == SECRET
    assert store_url("ignored", {"FEDLENS_RUN_STORE_FILE": str(file)}) == SECRET
    assert store_url("sqlite:///here.db", {}) == "sqlite:///here.db"
    assert store_url("postgresql://fedlens@db/fedlens", {}) == "postgresql://fedlens@db/fedlens"
    assert store_url("", {}) == ""


def test_a_file_that_others_can_read_or_that_is_not_there_is_refused(tmp_path):
    file = tmp_path / "store-url"
    with pytest.raises(ConfigError, match="No such file"):
        store_url("", {"FEDLENS_RUN_STORE_FILE": str(file)})
    file.write_text(SECRET)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600") as refused:
        store_url("", {"FEDLENS_RUN_STORE_FILE": str(file)})
    assert "hunter2" not in str(refused.value)
