"""The IDX reader on files written byte by byte, sound and damaged."""

import gzip
import hashlib
import struct

import numpy as np
import pytest

from fedlens.data.dataset import DatasetError, build_dataset
from fedlens.data.idx import read_images, read_labels

PIXELS = np.arange(3 * 28 * 28, dtype=np.uint32).astype(np.uint8).reshape(3, 28, 28)
IMAGES = struct.pack(">4I", 0x803, 3, 28, 28) + PIXELS.tobytes()
LABELS = struct.pack(">2I", 0x801, 3) + bytes([7, 0, 9])


def _write(folder, content, name="file"):
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
def test_reads_gzipped_and_plain_files_whatever_their_name(tmp_path, pack):
    images = read_images(_write(tmp_path, pack(IMAGES), "a"))
    labels = read_labels(_write(tmp_path, pack(LABELS), "b.gz"), 10)
    np.testing.assert_array_equal(images, PIXELS[:, None])
    assert labels.tolist() == [7, 0, 9]
    assert labels.dtype == np.int64


@pytest.mark.parametrize("pack", [gzip.compress, bytes])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (LABELS, "no IDX file of images"),
        (IMAGES[:-1], "holds only 2351"),
        (IMAGES + b"x", "holds more"),
        (IMAGES[:10], "inside its header"),
        (b"", "inside its header"),
        (struct.pack(">4I", 0x803, 2**31, 2**31, 2**31), "asks for"),
        (struct.pack(">4I", 0x803, 2**20, 1, 1), "holds only 0"),
    ],
)
def test_damaged_images_are_refused_by_name(tmp_path, pack, content, said):
    path = _write(tmp_path, pack(content))
    with pytest.raises(DatasetError, match=said) as caught:
        read_images(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("cut", [3, 40, -1])
def test_a_torn_gzip_file_is_refused(tmp_path, cut):
    with pytest.raises(DatasetError, match="cannot be read"):
        read_images(_write(tmp_path, gzip.compress(IMAGES)[:cut]))


def test_a_corrupt_gzip_body_is_refused(tmp_path):
    packed = bytearray(gzip.compress(IMAGES))
    packed[30] ^= 0xFF
    with pytest.raises(DatasetError, match="fetch the file again"):
        read_images(_write(tmp_path, bytes(packed)))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(DatasetError, match="nowhere"):
        read_images(tmp_path / "nowhere")


def test_labels_out_of_range_are_refused(tmp_path):
    with pytest.raises(DatasetError, match=r"label 9 is outside 0\.\.8"):
        read_labels(_write(tmp_path, LABELS), 9)


def test_the_digest_is_of_the_unpacked_file(tmp_path):
    digest = hashlib.sha256(IMAGES).hexdigest()
    loose, tight = gzip.compress(IMAGES, 1), gzip.compress(IMAGES, 9)
    assert read_images(_write(tmp_path, loose, "1"), digest).shape == (3, 1, 28, 28)
    assert read_images(_write(tmp_path, tight, "2"), digest).shape == (3, 1, 28, 28)
    changed = IMAGES[:-1] + bytes([IMAGES[-1] ^ 1])
    with pytest.raises(DatasetError, match="SHA-256"):
        read_images(_write(tmp_path, changed, "3"), digest)


def test_images_and_labels_must_be_as_many(tmp_path):
    whole = np.zeros((3, 1, 28, 28), np.uint8), np.zeros(3, np.int64)
    part = whole[0], whole[1][:2]
    for train, test in ((whole, part), (part, whole)):
        with pytest.raises(DatasetError, match=r"3 images but 2 labels"):
            build_dataset("x", tmp_path, train, test, class_names="0", attribution="none")
