"""Finding the embedded data where a bundle of .py files runs: no data beside the code."""

import json
import shutil
from importlib import metadata
from pathlib import Path

import pytest

from fedlens.data import embedded
from fedlens.data.dataset import DatasetError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def bundle(tmp_path, monkeypatch):
    """Nothing beside the module and, at first, no installed distribution."""
    monkeypatch.delenv("FEDLENS_DATA", raising=False)
    monkeypatch.setattr(embedded, "BESIDE", tmp_path / "bundle" / "data" / "embedded_data")

    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(embedded.metadata, "distribution", absent)
    return tmp_path


def _install(monkeypatch, folder, origin=None):
    """A distribution's folder as pip leaves it, read by importlib.metadata itself."""
    info = folder / "fedlens-0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Name: fedlens\nVersion: 0.0\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin)
    found = metadata.PathDistribution(info)
    monkeypatch.setattr(embedded.metadata, "distribution", lambda name: found)


def _put(folder):
    folder.mkdir(parents=True)
    return Path(shutil.copy(ROOT / "data" / "embedded_data" / embedded.FILE, folder))


def test_found_in_an_installed_distribution(bundle, monkeypatch):
    path = _put(bundle / "site" / "fedlens" / "data" / "embedded_data")
    _install(monkeypatch, bundle / "site")
    assert embedded.find_embedded() == path
    assert len(embedded.load_embedded().train_labels) == 10_000


def test_found_through_an_editable_install(bundle, monkeypatch):
    source = bundle / "my source"
    path = _put(source / "fedlens" / "data" / "embedded_data")
    origin = json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}})
    _install(monkeypatch, bundle / "site", origin)
    assert embedded.find_embedded() == path


def test_found_where_the_variable_says(bundle, monkeypatch):
    path = _put(bundle / "elsewhere")
    monkeypatch.setenv("FEDLENS_DATA", str(bundle / "elsewhere"))
    assert embedded.find_embedded() == path


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "not json",
        "[]",
        "{}",
        '{"url": 3, "dir_info": {"editable": true}}',
        '{"url": "https://example.org/x", "dir_info": {"editable": true}}',
        '{"url": "file:///nowhere", "dir_info": {}}',
    ],
)
def test_found_nowhere_is_one_clear_message(bundle, monkeypatch, origin):
    _install(monkeypatch, bundle / "site", origin)
    with pytest.raises(DatasetError) as caught:
        embedded.find_embedded()
    for part in (embedded.FILE, "FEDLENS_DATA", "install fedlens", str(bundle / "site")):
        assert part in str(caught.value)


def test_a_changed_file_is_refused(bundle, monkeypatch):
    path = _put(bundle / "elsewhere")
    monkeypatch.setenv("FEDLENS_DATA", str(bundle / "elsewhere"))
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    with pytest.raises(DatasetError, match="differs from the file that was shipped"):
        embedded.load_embedded()
