"""Small fixtures of published layouts, written as their publishers describe them."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import tarfile
import zlib

import numpy as np
from PIL import Image


def pictures(count, side=28, channels=1, seed=0):
    """uint8 [count, side, side] or [count, side, side, 3]."""
    source = np.random.default_rng(seed)
    shape = (count, side, side) if channels == 1 else (count, side, side, 3)
    return source.integers(0, 256, shape, dtype=np.uint8)


def png(pixels):
    """A picture's bytes."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def emnist(folder):
    """EMNIST: IDX with rows and columns swapped, a mapping of labels to codes."""
    folder.mkdir(parents=True)
    found = pictures(5)
    for part, rows in (("train", slice(0, 4)), ("test", slice(4, 5))):
        images, labels = found[rows], np.array([0, 10, 36, 1, 10], np.uint8)[rows]
        head = struct.pack(">4I", 0x803, len(images), 28, 28)
        body = np.ascontiguousarray(images.transpose(0, 2, 1)).tobytes()
        stem = folder / f"emnist-byclass-{part}"
        packed = gzip.compress(head + body)
        stem.with_name(f"{stem.name}-images-idx3-ubyte.gz").write_bytes(packed)
        head = struct.pack(">2I", 0x801, len(labels))
        packed = gzip.compress(head + labels.tobytes())
        stem.with_name(f"{stem.name}-labels-idx1-ubyte.gz").write_bytes(packed)
    lines = [f"{k} {ord(c)}" for k, c in ((0, "0"), (1, "1"), (10, "A"), (36, "a"))]
    (folder / "emnist-byclass-mapping.txt").write_text("\n".join(lines) + "\n")
    return found, ["0", "A", "a", "1", "A"]


def femnist(folder):
    """LEAF's FEMNIST: users with lists of 784 shares and of labels."""
    folder.mkdir(parents=True)
    found = pictures(4)
    shares = [[round(float(v) / 255, 6) for v in one.reshape(-1)] for one in found]
    data = {
        "users": ["f0001_41", "f0002_08"],
        "num_samples": [3, 1],
        "user_data": {
            "f0001_41": {"x": shares[:3], "y": [0, 10, 36]},
            "f0002_08": {"x": shares[3:], "y": [61]},
        },
    }
    (folder / "all_data_0.json").write_text(json.dumps(data))
    return found, ["0", "A", "a", "z"], ["f0001_41"] * 3 + ["f0002_08"]


def cifar10(folder):
    """CIFAR-10, binary version: a label, then red, green and blue planes."""
    folder.mkdir(parents=True)
    found, labels = pictures(6, 32, 3), [3, 5, 0, 9, 1, 2]
    names = ["airplane", "automobile", "bird", "cat", "deer"]
    names += ["dog", "frog", "horse", "ship", "truck"]
    rows = [
        bytes([label]) + np.moveaxis(one, 2, 0).tobytes()
        for one, label in zip(found, labels, strict=True)
    ]
    for i in range(5):
        (folder / f"data_batch_{i + 1}.bin").write_bytes(rows[i])
    (folder / "test_batch.bin").write_bytes(rows[5])
    (folder / "batches.meta.txt").write_text("\n".join(names) + "\n\n")
    return found, [names[label] for label in labels]


def cifar100(folder):
    """CIFAR-100, binary version: coarse and fine label."""
    folder.mkdir(parents=True)
    found = pictures(3, 32, 3)
    rows = [bytes([1, 2]) + np.moveaxis(one, 2, 0).tobytes() for one in found]
    (folder / "train.bin").write_bytes(rows[0] + rows[1])
    (folder / "test.bin").write_bytes(rows[2])
    (folder / "coarse_label_names.txt").write_text("aquatic_mammals\nfish\n")
    (folder / "fine_label_names.txt").write_text("apple\naquarium_fish\nbaby\n")
    return found


def _element(kind, body):
    return struct.pack("<2I", kind, len(body)) + body + b"\0" * (-len(body) % 8)


def _matrix(name, array):
    kind, number = (9, 2) if array.dtype == np.uint8 else (6, 9)
    flags = _element(6, struct.pack("<2I", kind, 0))
    shape = _element(5, struct.pack(f"<{array.ndim}i", *array.shape))
    # a name of at most four letters stands in its tag
    label = struct.pack("<HH4s", 1, len(name), name.encode())
    return _element(14, flags + shape + label + _element(number, array.tobytes(order="F")))


def mat_file(path, **arrays):
    """A MATLAB 5 file with packed matrices."""
    head = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
    with path.open("wb") as file:
        file.write(head)
        for name, array in arrays.items():
            packed = zlib.compress(_matrix(name, array))
            file.write(struct.pack("<2I", 15, len(packed)) + packed)


def svhn(folder):
    """SVHN's cropped digits: X [32, 32, 3, n], y [n, 1] with 10 for a zero."""
    folder.mkdir(parents=True)
    found = pictures(3, 32, 3)
    mat_file(
        folder / "train_32x32.mat",
        X=np.ascontiguousarray(np.moveaxis(found, 0, 3)),
        y=np.array([[1], [10], [9]], np.uint8),
    )
    return found, ["1", "0", "9"]


def celeba(folder):
    """CelebA: aligned faces and three lists in one order."""
    (folder / "img_align_celeba").mkdir(parents=True)
    found = [np.full((218, 178, 3), 40 * i, np.uint8) for i in range(3)]
    names = [f"{i + 1:06}.png" for i in range(3)]  # published as .jpg, which would lose bits here
    for name, one in zip(names, found, strict=True):
        (folder / "img_align_celeba" / name).write_bytes(png(one))
    lines = ["3", "Male Smiling", *(f"{n} {1 if i else -1:2} -1" for i, n in enumerate(names))]
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")
    for file, first in (("list_eval_partition.txt", 0), ("identity_CelebA.txt", 70)):
        (folder / file).write_text("".join(f"{n} {first + i}\n" for i, n in enumerate(names)))
    return found, ["no", "yes", "yes"]


def medmnist(path, colour=False):
    """MedMNIST: arrays of three parts, labels [n, 1]."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = pictures(6, 28, 3 if colour else 1)
    labels = np.array([[0], [1], [2], [0], [1], [2]], np.uint8)
    rows = {"train": slice(0, 4), "val": slice(4, 5), "test": slice(5, 6)}
    arrays = {f"{part}_images": found[row] for part, row in rows.items()}
    np.savez_compressed(path, **arrays, **{f"{p}_labels": labels[r] for p, r in rows.items()})
    return found, [str(label) for label in labels[:, 0]]


def hugging_face(folder, split="train"):
    """What ``datasets.Dataset.save_to_disk`` leaves: Arrow in stream form, its features beside."""
    import pyarrow

    place = folder / split
    place.mkdir(parents=True)
    found = pictures(4, 30, 3)
    features = {
        "image": {"_type": "Image"},
        "label": {"names": ["cat", "dog"], "_type": "ClassLabel"},
        "writer_id": {"dtype": "string", "_type": "Value"},
    }
    kind = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
    images = [{"bytes": png(one), "path": None} for one in found]
    table = pyarrow.table({
        "image": pyarrow.array(images, kind),
        "label": pyarrow.array([0, 1, 1, 0], pyarrow.int64()),
        "writer_id": pyarrow.array(["w1", "w2", "w1", "w3"]),
    })  # fmt: skip
    said = json.dumps({"info": {"features": features}})
    table = table.replace_schema_metadata({"huggingface": said})
    name = "data-00000-of-00001.arrow"
    path = str(place / name)
    with pyarrow.OSFile(path, "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    state = {"_data_files": [{"filename": name}], "_split": split}
    (place / "state.json").write_text(json.dumps(state))
    (place / "dataset_info.json").write_text(json.dumps({"features": features}))
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": [split]}))
    return found, ["cat", "dog", "dog", "cat"], ["w1", "w2", "w1", "w3"]


def webdataset(path, members=None):
    """A shard: members of one name but for the ending are a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = pictures(3, 20, 3)
    if members is None:
        members = []
        for i, one in enumerate(found):
            members += [(f"a/{i:03}.png", png(one)), (f"a/{i:03}.cls", b"1" if i else b"0")]
            members += [(f"a/{i:03}.json", json.dumps({"user": f"u{i % 2}", "age": 40}).encode())]
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            head = tarfile.TarInfo(name)
            head.size = len(content)
            tar.addfile(head, io.BytesIO(content))
    return found, ["0", "1", "1"], ["u0", "u1", "u0"]


def dicom(path, pixels, **tags):
    """One uncompressed DICOM file of 16-bit grey."""
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    made = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    made.PatientID, made.Modality = "p1", "DX"
    made.Rows, made.Columns = pixels.shape
    made.SamplesPerPixel, made.PhotometricInterpretation = 1, "MONOCHROME2"
    made.BitsAllocated, made.BitsStored, made.HighBit = 16, 12, 11
    made.PixelRepresentation = 0
    made.PixelData = pixels.astype("<u2").tobytes()
    for name, value in tags.items():
        setattr(made, name, value)
    made.save_as(path, enforce_file_format=True)


def pickled_cifar(folder, protocol=2):
    """CIFAR-100, Python version: pickles of arrays and lists."""
    folder.mkdir(parents=True, exist_ok=True)
    found = pictures(3, 32, 3)
    rows = np.stack([np.moveaxis(one, 2, 0).reshape(-1) for one in found])
    for name, at in (("train", slice(0, 2)), ("test", slice(2, 3))):
        batch = {b"data": rows[at], b"coarse_labels": [0, 1, 0][at], b"fine_labels": [0, 2, 1][at]}
        (folder / name).write_bytes(pickle.dumps(batch, protocol))
    names = {b"coarse_label_names": [b"fish", b"tree"], b"fine_label_names": [b"a", b"b", b"c"]}
    (folder / "meta").write_bytes(pickle.dumps(names, protocol))
    return found


def hdf5(folder):
    """TensorFlow Federated's FEMNIST: a group a user, pixels as shares of white."""
    import h5py

    folder.mkdir(parents=True, exist_ok=True)
    found = pictures(4)
    with h5py.File(folder / "fed_emnist_train.h5", "w") as file:
        for user, at in (("f1", slice(0, 3)), ("f2", slice(3, 4))):
            group = file.create_group(f"examples/{user}")
            group["pixels"] = (found[at] / 255).astype(np.float32)
            group["label"] = np.arange(4, dtype=np.int32)[at]
    return found


TREE = [(f"{label}/{user}/0.png", png(pictures(1)[0])) for label in ("cat", "dog") for user in "uv"]
"""Members of a tar of class folders."""


def coco(folder):
    """COCO: pictures beside a file of their boxes' categories."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, one in enumerate(pictures(3)):
        (folder / f"{number}.png").write_bytes(png(one))
    said = {
        "images": [{"id": i, "file_name": f"{i}.png"} for i in range(3)],
        "annotations": [
            {"image_id": i, "category_id": i % 2, "bbox": [0, 0, 9, 9]} for i in (0, 1)
        ],
        "categories": [{"id": 0, "name": "cat"}, {"id": 1, "name": "dog"}],
    }
    (folder / "_annotations.coco.json").write_text(json.dumps(said))
