"""Named data sets: the embedded sample, where MNIST is looked for, and checked downloads."""

import gzip
import hashlib
import http.server
import os
import shutil
import struct
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fedlens.data import download, idx_sets
from fedlens.data.dataset import DatasetError, digest_arrays
from fedlens.data.embedded_data import make as make_embedded
from fedlens.data.idx_sets import MNIST_FILES, STEMS, load_idx_set
from fedlens.data.registry import DATASETS, load, spec_of
from fedlens.data.spec import DatasetSpec

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("FEDLENS_SHARED", ROOT.parent / "shared"))


def needs(name):
    there = (SHARED / "data" / name).is_dir()
    return pytest.mark.skipif(not there, reason=f"no {name} in FEDLENS_SHARED or ../shared")


@pytest.fixture(autouse=True)
def nothing_at_home(tmp_path, monkeypatch):
    """No test reads or fills the real cache, or leaves this machine."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FEDLENS_DATA", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)


def tiny_set(folder, n=4, **changes):
    """Four IDX files of a small set, written to ``folder``, and its description."""
    folder.mkdir(parents=True)
    digests = []
    for i, stem in enumerate(STEMS):
        if "images" in stem:
            content = struct.pack(">4I", 0x803, n, 28, 28) + bytes([i + 1]) * (n * 784)
        else:
            content = struct.pack(">2I", 0x801, n) + bytes(k % 10 for k in range(n))
        digests.append(hashlib.sha256(content).hexdigest())
        (folder / f"{stem}.gz").write_bytes(gzip.compress(content))
    return replace(MNIST_FILES, name="tiny", digests=tuple(digests), mirrors=(), **changes)


def test_the_embedded_sample_is_what_the_readme_says():
    sample = load("embedded")
    assert sample.train_images.shape == (10_000, 1, 28, 28)
    assert sample.test_images.shape == (2_000, 1, 28, 28)
    assert sample.train_images.dtype == np.uint8
    assert sample.train_labels.dtype == np.int64
    assert sample.classes == 10
    assert sample.shape == (1, 28, 28)
    assert sample.user_ids is None
    assert "LeCun" in sample.attribution
    assert len(np.unique(sample.train_images.reshape(10_000, -1), axis=0)) > 9_990


def test_arrays_cannot_be_changed_and_the_digest_is_of_their_contents():
    first, again = load("embedded"), load("embedded")
    assert first.digest == again.digest
    assert len(first.digest) == 64
    with pytest.raises(ValueError, match="read-only"):
        first.train_images[0] = 0
    changed = again.test_labels.copy()
    changed[0] ^= 1
    arrays = [again.train_images, again.train_labels, again.test_images]
    assert digest_arrays([*arrays, again.test_labels]) == first.digest
    assert digest_arrays([*arrays, changed]) != first.digest


@needs("mnist")
def test_the_embedded_sample_is_drawn_from_mnist_with_its_class_shares():
    sample, whole = load("embedded"), load("mnist", SHARED / "data" / "mnist")
    assert len(whole.train_images) == 60_000
    known = {(image.tobytes(), label) for image, label in zip(*_train(whole), strict=True)}
    assert all((i.tobytes(), label) in known for i, label in zip(*_train(sample), strict=True))
    shares = np.bincount(whole.train_labels) / 6
    assert np.abs(np.bincount(sample.train_labels) - shares).max() <= 1
    tests = {image.tobytes() for image in whole.test_images}
    assert all(image.tobytes() in tests for image in sample.test_images)


@needs("mnist")
def test_the_making_script_draws_the_shipped_sample_again():
    shipped = load("embedded")
    for name, array in make_embedded.sample(SHARED / "data" / "mnist").items():
        np.testing.assert_array_equal(array, getattr(shipped, name))


def _train(data):
    return data.train_images, data.train_labels.tolist()


@needs("fashion-mnist")
def test_fashion_mnist_has_named_classes():
    fashion = load("fashion-mnist", SHARED / "data")
    assert fashion.train_images.shape == (60_000, 1, 28, 28)
    assert fashion.class_names[7] == "Sneaker"


@needs("mnist")
def test_mnist_under_the_name_of_fashion_mnist_is_refused():
    with pytest.raises(DatasetError, match="SHA-256"):
        load("fashion-mnist", SHARED / "data" / "mnist")


def test_the_folder_asked_for_is_the_only_one_looked_into(tmp_path, monkeypatch):
    tiny = tiny_set(tmp_path / "elsewhere" / "tiny")
    monkeypatch.setenv("FEDLENS_DATA", str(tmp_path / "elsewhere"))
    assert len(load_idx_set(tiny, None).train_images) == 4
    with pytest.raises(DatasetError, match=r"--data-dir .*empty has no tiny"):
        load_idx_set(tiny, tmp_path / "empty")


@pytest.mark.parametrize("place", ["variable", "variable itself", "system", "cache"])
def test_every_place_of_the_search_is_looked_into(tmp_path, monkeypatch, place):
    folder = {
        "variable": tmp_path / "data" / "tiny",
        "variable itself": tmp_path / "data",
        "system": tmp_path / "usr",
        "cache": tmp_path / "home" / ".cache" / "fedlens" / "tiny",
    }[place]
    tiny = tiny_set(folder, system_folders=(tmp_path / "usr",))
    monkeypatch.setenv("FEDLENS_DATA", str(tmp_path / "data"))
    found = load_idx_set(tiny, None)
    assert found.train_labels.tolist() == [0, 1, 2, 3]
    assert set(found.test_images.ravel().tolist()) == {3}


def test_a_folder_with_some_of_the_files_is_an_error_not_a_skip(tmp_path):
    tiny = tiny_set(tmp_path / "tiny")
    (tmp_path / "tiny" / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DatasetError, match="lacks t10k-labels-idx1-ubyte"):
        load_idx_set(tiny, tmp_path)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def mirror(tmp_path):
    handler = partial(_Quiet, directory=str(tmp_path / "mirror"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_download_is_checked_cached_and_not_repeated(tmp_path, mirror):
    described = tiny_set(tmp_path / "mirror" / "good")
    bad = tmp_path / "mirror" / "bad"
    shutil.copytree(tmp_path / "mirror" / "good", bad)
    (bad / f"{STEMS[0]}.gz").write_bytes(gzip.compress(b"something else"))
    tiny = replace(described, mirrors=(f"{mirror}/bad", f"{mirror}/good"))
    assert len(load_idx_set(tiny, None).train_images) == 4
    cached = sorted(path.name for path in (tmp_path / "home/.cache/fedlens/tiny").iterdir())
    assert cached == sorted(f"{stem}.gz" for stem in STEMS)
    shutil.rmtree(tmp_path / "mirror")
    assert len(load_idx_set(tiny, None).train_images) == 4


def test_a_download_with_a_wrong_digest_leaves_nothing_behind(tmp_path, mirror):
    described = tiny_set(tmp_path / "mirror")
    wrong = replace(described, mirrors=(mirror,), digests=("0" * 64, *described.digests[1:]))
    with pytest.raises(DatasetError, match="not the known file"):
        load_idx_set(wrong, None)
    assert not (tmp_path / "home" / ".cache").exists()


@pytest.mark.law("input: no file crashes, hangs or runs code")
def test_a_mirrors_bomb_is_not_unpacked(tmp_path, mirror, monkeypatch):
    monkeypatch.setattr(download, "LARGEST_UNPACKED", 2**20)
    described = replace(tiny_set(tmp_path / "mirror"), mirrors=(mirror,))
    (tmp_path / "mirror" / f"{STEMS[0]}.gz").write_bytes(gzip.compress(bytes(2**20 + 1)))
    with pytest.raises(DatasetError, match="it unpacks to over 1048576 bytes"):
        load_idx_set(described, None)


def test_without_a_network_the_message_says_what_to_do():
    unreachable = replace(MNIST_FILES, mirrors=("http://127.0.0.1:9",))
    spec = DatasetSpec("MNIST", lambda _, folder: load_idx_set(unreachable, folder))
    with DATASETS.replaced("mnist", spec), pytest.raises(DatasetError) as caught:
        load("mnist")
    said = str(caught.value)
    for part in ("cannot be downloaded", "--data-dir", "FEDLENS_DATA", "embedded", STEMS[0]):
        assert part in said


def test_only_web_addresses_are_fetched(tmp_path):
    described = tiny_set(tmp_path / "mirror")
    local = replace(described, mirrors=((tmp_path / "mirror").as_uri(),))
    with pytest.raises(DatasetError, match=r"only http\(s\)"):
        load_idx_set(local, None)


def test_published_mirrors_are_encrypted_and_digests_whole():
    for published in (idx_sets.MNIST_FILES, idx_sets.FASHION_MNIST_FILES):
        assert all(mirror.startswith("https://") for mirror in published.mirrors)
        assert [len(bytes.fromhex(digest)) for digest in published.digests] == [32] * 4


@pytest.mark.parametrize("name", ["", "MNIST", "csv:x.csv"])
def test_an_unknown_name_lists_the_known_ones(name):
    with pytest.raises(DatasetError) as caught:
        load(name)
    assert all(known in str(caught.value) for known in DATASETS)


@pytest.mark.parametrize(
    ("name", "fix"),
    [("npz", "write npz:PATH"), ("npz:", "write npz:PATH"), ("mnist:here", "nothing may follow")],
)
def test_a_path_is_asked_for_where_there_is_one(name, fix):
    with pytest.raises(DatasetError, match=fix):
        load(name)


def test_every_data_set_loads_as_what_it_is_called():
    other = replace(load("embedded"), name="something else")
    with DATASETS.replaced("mnist", DatasetSpec("M", lambda *_: other)):
        assert load("mnist").name == "mnist"
    assert spec_of("npz:some.npz").by_path
    with pytest.raises(DatasetError, match=r"no data set 'mnits'.*; did you mean 'mnist'"):
        spec_of("mnits:x")
