"""A node's own file: users by their own numbers, images on the disk until they are drawn."""

from __future__ import annotations

import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from fedlens.client.node.file import open_node_users
from fedlens.client.train import train
from fedlens.client.users.protocol import NodeDataError

FORMS = pytest.mark.parametrize("save", [np.savez, np.savez_compressed])


def arrays(**changes: object) -> dict[str, object]:
    source = np.random.default_rng(0)
    made = {
        "images": source.integers(0, 256, (6, 1, 28, 28), dtype=np.uint8),
        "labels": np.arange(6),
        "users": np.array([7, 4, 9, 4, 7, 7]),
        "classes": np.array(10),
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


@pytest.fixture
def opened(tmp_path):
    """Users in a file with these arrays."""

    def write(found, save=np.savez):
        path = tmp_path / f"users-{len(list(tmp_path.iterdir()))}.npz"
        save(path, **found)
        return open_node_users(SimpleNamespace(run_config={}, node_config={"data": str(path)}))

    return write


@FORMS
def test_users_come_with_their_own_numbers_and_records(opened, save):
    found = arrays()
    users = opened(found, save)
    assert [users.user_id(place) for place in range(len(users))] == [4, 7, 9]
    assert [users.held(place) for place in range(3)] == [2, 3, 1]
    for place, own in enumerate(([1, 3], [0, 4, 5], [2])):
        data = users.user(place)
        assert data.labels.tolist() == own
        pixels = (data.images.numpy() + 1) * 127.5
        assert np.array_equal(pixels.round().astype(np.uint8), found["images"][own])
    assert users.user(1, np.array([2])).labels.tolist() == [5]


@FORMS
def test_images_stay_on_the_disk(opened, save):
    assert isinstance(opened(arrays(), save).images, np.memmap)


@FORMS
def test_a_flipped_byte_of_the_images_is_refused(tmp_path, save):
    """Or a node would train on what the disk made of its users' images."""
    path = tmp_path / "users.npz"
    save(path, **arrays())
    asked = SimpleNamespace(run_config={}, node_config={"data": str(path)})
    assert open_node_users(asked).images.shape == (6, 1, 28, 28)
    with zipfile.ZipFile(path) as archive:
        member = archive.getinfo("images.npy")
    content = bytearray(path.read_bytes())
    content[member.header_offset + member.compress_size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(NodeDataError, match=r"users\.npz cannot be read"):
        open_node_users(asked)


def test_arrays_in_columns_are_read_as_they_are(opened):
    found = arrays()
    turned = opened({**found, "images": np.asfortranarray(found["images"])})
    assert np.array_equal(turned.user(0).images, opened(found).user(0).images)


def test_users_without_records_can_be_enrolled_and_strangers_do_not_count(opened):
    users = opened(arrays(enrolled=np.array([9, 5, 4])))
    assert [users.user_id(place) for place in range(3)] == [4, 5, 9]
    assert [users.user(place).labels.tolist() for place in range(3)] == [[1, 3], [], [2]]
    empty = opened(arrays(enrolled=np.array([], dtype=np.int64)))
    assert len(empty) == 0


def test_a_stranger_hides_for_no_one(opened):
    sensitive = {
        "sensitive": np.zeros(6, dtype=np.int64),
        "sensitive_attribute": np.array("height"),
        "sensitive_classes": np.array(2),
        "hides": np.array([True, False, False, False, True, True]),
    }
    assert opened(arrays(**sensitive, enrolled=np.array([4, 9]))).hides.tolist() == [False, False]
    assert opened(arrays(**sensitive)).hides.tolist() == [False, True, False]


@pytest.mark.parametrize("kind", ["frozen", "wgan"])
@pytest.mark.law("1: one user moves a sum by at most the clip")
def test_a_user_taken_out_of_the_file_changes_nothing_for_the_others(opened, make_request, kind):
    """Seeds by place would move everyone behind: sums differed by several times the clip."""
    free = {"kind": kind, "clipping_norm": 1.0, "local_batch": 5} if kind == "wgan" else {}
    found = arrays()
    others = found["users"] != 4
    fewer = {name: value[others] if np.ndim(value) else value for name, value in found.items()}
    whole = train(opened(found), make_request(1, 2, enrolled=3, **free)).total
    left = train(opened(fewer), make_request(0, 1, enrolled=2, **free)).total
    assert np.array_equal(whole, left) and whole.any()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"images": None}, "lacks"),
        ({"users": None}, "lacks"),
        ({"images": np.zeros((6, 28, 28), np.uint8)}, "images must be"),
        ({"images": np.zeros((6, 1, 28, 28))}, "images must be"),
        ({"labels": np.zeros(5, np.int64)}, "one integer for each image"),
        ({"users": np.zeros(6)}, "one integer for each image"),
        ({"enrolled": np.zeros((2, 2), np.int64)}, "one integer for each user"),
        ({"labels": np.array([None] * 6)}, "cannot be read"),
    ],
    ids=str,
)
def test_a_file_that_cannot_be_used_is_named(opened, changes, words):
    with pytest.raises(NodeDataError, match=words):
        opened(arrays(**changes))


def test_a_file_that_is_no_archive_is_named(tmp_path):
    path = tmp_path / "users.npz"
    for content in (b"", b"PK\x03\x04 cut short", np.random.default_rng(0).bytes(500)):
        path.write_bytes(content)
        with pytest.raises(NodeDataError, match="cannot be read"):
            open_node_users(SimpleNamespace(run_config={}, node_config={"data": str(path)}))


def test_an_empty_file_has_no_users(opened):
    none = {"images": np.zeros((0, 1, 28, 28), np.uint8), "labels": np.zeros(0, np.int64)}
    assert len(opened(arrays(**none, users=np.zeros(0, np.int64)))) == 0


def crafted(path, declared=None, **members):
    """An archive of members as they are given; ``declared`` says another size of the images."""
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
        if declared is not None:
            archive.getinfo("images.npy").file_size = declared
    return path


def npy_of(array):
    import io

    made = io.BytesIO()
    np.save(made, array, allow_pickle=False)
    return made.getvalue()


def test_what_is_no_array_or_no_number_is_named(tmp_path):
    sound = {
        "images": npy_of(np.zeros((2, 1, 16, 16), np.uint8)),
        "labels": npy_of(np.zeros(2, np.int64)),
        "users": npy_of(np.zeros(2, np.int64)),
        "classes": npy_of(np.array(2)),
    }
    odd = {
        "labels": b"no array at all",
        "classes": npy_of(np.array("2026-01-01", "datetime64[s]")),
        "users": npy_of(np.array(["a", "b"])),
    }
    for name, content in odd.items():
        path = crafted(tmp_path / f"{name}.npz", **{**sound, name: content})
        context = SimpleNamespace(node_config={"data": str(path)}, run_config={})
        with pytest.raises(NodeDataError, match=r"no array|one integer"):
            open_node_users(context)


def test_an_archive_that_would_unfold_to_a_terabyte_is_refused_unread(tmp_path):
    images = npy_of(np.zeros((2, 1, 16, 16), np.uint8))
    path = crafted(tmp_path / "bomb.npz", declared=1 << 40, images=images)
    context = SimpleNamespace(node_config={"data": str(path)}, run_config={})
    with pytest.raises(NodeDataError, match=r"images\.npy would unfold from \d+ to 1099511627776"):
        open_node_users(context)
