"""People's own data: folders of pictures and NumPy archives, sound and wrong."""

import numpy as np
import pytest
from PIL import Image

from fedlens.data.registry import DatasetError, load


def picture(path, value=0, size=(28, 28), mode="L"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, value).save(path)


@pytest.fixture
def folders(tmp_path):
    """Two classes, 40 grey pictures each, without train and test."""
    for name, base in (("cat", 0), ("dog", 100)):
        for i in range(40):
            picture(tmp_path / name / f"{i:02}.png", base + i)
    return tmp_path


def test_a_folder_is_split_by_the_paths_alone(folders):
    data = load(f"image-folder:{folders}")
    assert data.class_names == ("cat", "dog")
    assert data.shape == (1, 28, 28)
    assert len(data.train_labels) + len(data.test_labels) == 80
    assert 4 <= len(data.test_labels) <= 28
    held_back = set(data.test_images[:, 0, 0, 0].tolist())
    assert held_back.isdisjoint(data.train_images[:, 0, 0, 0].tolist())
    for images, labels in (
        (data.train_images, data.train_labels),
        (data.test_images, data.test_labels),
    ):
        assert ((images[:, 0, 5, 5] >= 100) == labels).all()
    picture(folders / "ant" / "new.png", 250)
    more = load(f"image-folder:{folders}")
    assert held_back <= set(more.test_images[:, 0, 0, 0].tolist())


def test_train_and_test_folders_are_taken_as_they_are(tmp_path):
    picture(tmp_path / "train" / "a" / "1.png", (255, 0, 0), (32, 32), "RGB")
    picture(tmp_path / "train" / "b" / "1.JPG", (0, 255, 0), (32, 32), "RGB")
    picture(tmp_path / "test" / "b" / "2.png", 7, (32, 32))
    (tmp_path / "train" / "a" / "notes.txt").write_text("not a picture")
    data = load(f"image-folder:{tmp_path}")
    assert data.shape == (3, 32, 32)
    assert data.train_labels.tolist() == [0, 1]
    assert data.test_labels.tolist() == [1]
    assert data.train_images[0, :, 3, 3].tolist() == [255, 0, 0]
    assert data.test_images[0, :, 3, 3].tolist() == [7, 7, 7]


def _odd_size(root):
    picture(root / "cat" / "odd.png", 1, (30, 30))
    return "odd.png.*30 x 30"


def _two_sizes(root):
    picture(root / "dog" / "big.png", 1, (32, 32))
    return "big.png: is 32 x 32 pixels, the others are 28 x 28"


def _torn(root):
    path = root / "cat" / "00.png"
    path.write_bytes(path.read_bytes()[:45])
    return "00.png"


def _disguised(root):
    (root / "cat" / "00.png").write_text("GIF89a, not really")
    return "00.png: no readable picture"


def _deep(root):
    Image.new("LAB", (28, 28)).save(root / "cat" / "00.tif")
    return "00.tif: has pixels of kind LAB"


def _strange_test_class(root):
    picture(root / "train" / "cat" / "1.png")
    picture(root / "test" / "cow" / "1.png")
    return "classes cow that the training folder lacks"


@pytest.mark.parametrize(
    "spoil", [_odd_size, _two_sizes, _torn, _disguised, _deep, _strange_test_class]
)
def test_a_bad_picture_is_named_with_the_fix(folders, spoil):
    said = spoil(folders)
    with pytest.raises(DatasetError, match=said):
        load(f"image-folder:{folders}")


def test_empty_and_missing_folders(tmp_path):
    with pytest.raises(DatasetError, match="is no folder"):
        load(f"image-folder:{tmp_path / 'none'}")
    with pytest.raises(DatasetError, match="no sub-folders"):
        load(f"image-folder:{tmp_path}")
    (tmp_path / "cat").mkdir()
    with pytest.raises(DatasetError, match="no pictures in its sub-folders"):
        load(f"image-folder:{tmp_path}")
    picture(tmp_path / "cat" / "only.png")
    with pytest.raises(DatasetError, match="too few to split"):
        load(f"image-folder:{tmp_path}")


def arrays(**changes):
    rng = np.random.default_rng(0)
    sound = {
        "train_images": rng.integers(0, 256, (6, 3, 32, 32), dtype=np.uint8),
        "train_labels": np.array([0, 1, 2, 0, 1, 2]),
        "test_images": rng.integers(0, 256, (2, 3, 32, 32), dtype=np.uint8),
        "test_labels": np.array([2, 0], np.uint8),
        "user_ids": np.array([5, 5, 9, 9, 1, 1], np.int32),
    }
    return {key: value for key, value in {**sound, **changes}.items() if value is not None}


def saved(tmp_path, **changes):
    np.savez(tmp_path / "own.npz", **arrays(**changes))
    return f"npz:{tmp_path / 'own.npz'}"


def test_an_archive_is_read_with_its_users(tmp_path):
    data = load(saved(tmp_path))
    assert data.classes == 3
    assert data.user_ids.tolist() == [5, 5, 9, 9, 1, 1]
    assert data.user_ids.dtype == data.train_labels.dtype == np.int64
    np.testing.assert_array_equal(data.train_images, arrays()["train_images"])
    assert data.digest != load(saved(tmp_path, user_ids=None)).digest


def test_no_one_persons_label_decides_how_many_classes_there_are(tmp_path):
    one_less = {"train_labels": np.array([0, 1, 0, 0, 1, 0]), "test_labels": np.array([0, 1])}
    assert load(saved(tmp_path, **one_less)).classes == 2
    assert load(saved(tmp_path, **one_less, classes=np.array(3))).classes == 3
    named = load(saved(tmp_path, **one_less, classes=np.array(["cat", " cafe\u0301", "dog"])))
    assert named.class_names == ("cat", "caf\u00e9", "dog")


def test_grey_images_may_leave_the_channel_out(tmp_path):
    grey = {key: np.zeros((n, 28, 28), np.uint8) for key, n in _COUNTS}
    data = load(saved(tmp_path, user_ids=None, **grey))
    assert data.shape == (1, 28, 28)
    assert data.user_ids is None


def test_colour_images_may_have_their_channels_last(tmp_path):
    sound = arrays()
    last = {key: np.moveaxis(sound[key], 1, 3) for key, _ in _COUNTS}
    data = load(saved(tmp_path, **last))
    np.testing.assert_array_equal(data.train_images, sound["train_images"])


_COUNTS = (("train_images", 6), ("test_images", 2))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"test_labels": None}, "lacks test_labels"),
        ({"train_images": np.zeros((6, 3, 32, 32))}, "train_images has type float64"),
        ({"train_images": np.zeros((6, 3, 31, 31), np.uint8)}, "31 x 31 pixels"),
        ({"train_images": np.zeros((6, 1, 28, 28), np.uint8)}, "make both the same"),
        ({"train_images": np.zeros((0, 3, 32, 32), np.uint8)}, "training set is empty"),
        ({"train_labels": np.zeros(5, np.int64)}, "6 images but 5 labels"),
        ({"train_labels": np.array([0, 1, 2, 0, 1, -2])}, "labels from -2 to 2"),
        ({"train_labels": np.array([0, 1, 2, 0, 1, -1])}, "set data.labels = 'own-or-none'"),
        ({"train_labels": np.zeros(6)}, "train_labels has type float64"),
        ({"train_labels": np.array([0, 1, 2, 0, 1, 10**9])}, "1000000001 classes"),
        ({"train_labels": np.array([0] * 5 + [2**64 - 1], np.uint64)}, r"over 2\*\*63"),
        ({"user_ids": np.zeros(2, np.int64)}, "one user id per training image"),
        ({"user_ids": np.array(["a"] * 6)}, "user_ids has type <U1"),
        ({"train_images": np.array([{}] * 6)}, "cannot be read"),
        ({"classes": np.array(2)}, "with 2 classes"),
        ({"classes": np.array([3, 3])}, "classes must be one whole number"),
        ({"classes": np.array(3.0)}, "classes must be one whole number"),
        ({"classes": np.array(1001)}, "from 1 to 1000, or as many texts"),
        ({"classes": np.array(["cat", "dog"])}, "with 2 classes"),
        ({"classes": np.array(["cat", "dog", "cat "])}, r"classes\[2\] is 'cat'; call each"),
        ({"classes": np.array(["cat", "Unlabelled", "dog"])}, "and not unlabelled"),
        ({"classes": np.array([97, 2**32 - 1, 98], np.uint32).view("<U1")}, "cannot be read"),
        ({"classes": np.array(["cat", "", "dog"])}, r"classes\[1\] is ''"),
        ({"classes": np.array(["cat", "a\nb", "dog"])}, r"classes\[1\] is 'a\\nb'"),
        ({"classes": np.array(["cat", "owl", "dog"], object)}, "cannot be read"),
    ],
)
def test_a_wrong_archive_is_refused_with_the_fix(tmp_path, changes, said):
    with pytest.raises(DatasetError, match=said):
        load(saved(tmp_path, **changes))


def test_a_file_that_is_no_archive(tmp_path):
    path = tmp_path / "own.npz"
    with pytest.raises(DatasetError, match="no readable"):
        load(f"npz:{path}")
    path.write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(DatasetError, match=r"own\.npz"):
        load(f"npz:{path}")
    with path.open("wb") as out:
        np.save(out, np.zeros(3))
    with pytest.raises(DatasetError, match="single array"):
        load(f"npz:{path}")
    np.savez_compressed(path, **arrays())
    torn = bytearray(path.read_bytes())
    torn[2000:2100] = bytes(100)
    path.write_bytes(bytes(torn))
    with pytest.raises(DatasetError, match="cannot be read"):
        load(f"npz:{path}")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "No such file"),
        (b"a picture", "no NumPy file, or Python objects in it"),
    ],
)
def test_an_archive_that_is_none_is_refused_without_advice_to_trust_it(tmp_path, content, said):
    path = tmp_path / "own.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DatasetError, match=said) as caught:
        load(f"npz:{path}")
    assert "pickle" not in str(caught.value)


def test_a_simulation_is_told_to_name_a_column_behind_the_path(tmp_path):
    (tmp_path / "manifest.csv").write_text("file,kind\na.png,round\n")
    Image.fromarray(np.zeros((28, 28), np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(DatasetError, match=r"behind a path: ,label=COLUMN"):
        load(f"manifest:{tmp_path}")
