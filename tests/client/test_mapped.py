"""Large archives stay on the disk, with every check; small and packed ones are read whole."""

from __future__ import annotations

import mmap
import zipfile

import numpy as np
import pytest

from fedlens.client.users.protocol import ArrayUsers
from fedlens.data import mapped_arrays
from fedlens.data.arrays import load_npz
from fedlens.data.dataset import DatasetError


def arrays(images=60):
    source = np.random.default_rng(0)
    return {
        "train_images": source.integers(0, 256, (images, 16, 16), dtype=np.uint8),
        "train_labels": np.arange(images) % 3,
        "test_images": source.integers(0, 256, (6, 16, 16), dtype=np.uint8),
        "test_labels": np.arange(6) % 3,
    }


@pytest.fixture
def all_large(monkeypatch):
    monkeypatch.setattr(mapped_arrays, "MAPPED_FROM", 1000)


def is_mapped(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def test_a_mapped_data_set_is_the_one_that_was_read_whole(tmp_path, monkeypatch):
    np.savez(tmp_path / "set.npz", **arrays())
    whole = load_npz(tmp_path / "set.npz")
    monkeypatch.setattr(mapped_arrays, "MAPPED_FROM", 1000)
    found = load_npz(tmp_path / "set.npz")
    assert is_mapped(found.train_images) and not is_mapped(whole.train_images)
    assert found.digest == whole.digest and not found.train_images.flags.writeable
    np.testing.assert_array_equal(found.train_images, whole.train_images)


def test_users_of_a_mapped_data_set_hold_what_they_held(tmp_path, all_large):
    np.savez(tmp_path / "set.npz", **arrays())
    images = load_npz(tmp_path / "set.npz").train_images
    sets = [
        ArrayUsers(
            images=some, labels=np.zeros(60, np.int64), indices=np.arange(60),
            offsets=np.arange(0, 61, 6), shape=(1, 16, 16), classes=3, partition=0,
        )
        for some in (images, np.array(images))
    ]  # fmt: skip
    for position in (0, 9, 0):
        first, second = (users.user(position).images for users in sets)
        assert first.equal(second)


def test_packed_archives_and_other_orders_are_read_whole(tmp_path, all_large):
    wanted = arrays()
    np.savez_compressed(tmp_path / "packed.npz", **wanted)
    turned = np.asfortranarray(wanted["train_images"])
    np.savez(tmp_path / "turned.npz", **{**wanted, "train_images": turned})
    for name in ("packed", "turned"):
        found = load_npz(tmp_path / f"{name}.npz")
        assert not is_mapped(found.train_images)
        np.testing.assert_array_equal(found.train_images[:, 0], wanted["train_images"])


@pytest.mark.parametrize("place", [0.3, 0.5, 0.7])
def test_a_damaged_archive_is_named(tmp_path, all_large, place):
    path = tmp_path / "set.npz"
    np.savez(path, **arrays(600))
    content = bytearray(path.read_bytes())
    content[int(place * 600 * 256)] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"set\.npz"):
        load_npz(path)


def test_a_header_that_promises_more_than_there_is_is_refused(tmp_path, all_large):
    path = tmp_path / "set.npz"
    np.savez(path, **arrays())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members["train_images.npy"] = members["train_images.npy"].replace(b"(60, 16", b"(99, 16")
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with pytest.raises(DatasetError):
        load_npz(path)


def test_pages_that_were_written_to_are_not_let_go_of(tmp_path):
    """Of a copy on write they are nowhere else."""
    np.zeros(5000, np.uint8).tofile(tmp_path / "zeros")
    changed = np.memmap(tmp_path / "zeros", np.uint8, "c")
    changed[:] = 7
    view = changed[:]
    view.flags.writeable = False
    for array in (changed, view):
        mapped_arrays.let_go(array)
        assert (changed == 7).all()
