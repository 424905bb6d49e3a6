"""What is fuzzed: parsers of messages, ledgers, evidence, labels, data files and settings."""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import Context, RecordDict
from PIL import Image

from fedlens.accountant.bayesian.noised_norms import noised_norms
from fedlens.accountant.bayesian.norms import NORM_BINS
from fedlens.accountant.events import SubsampledGaussian
from fedlens.accountant.ledger.chain import Reader
from fedlens.accountant.ledger.evidence import EvidenceFile
from fedlens.accountant.ledger.ledger import Ledger
from fedlens.accountant.noise import private_source
from fedlens.client.messages import Description, Mechanism, TrainReply, TrainRequest
from fedlens.client.node.file import open_node_users
from fedlens.data.arrays import load_npz
from fedlens.data.attributes import load_private
from fedlens.data.formats.formats import open_source
from fedlens.data.idx import read_images, read_labels
from fedlens.data.labelled.tables import read_table
from fedlens.server.config.loading import parse_setting, read_config, read_run_config
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import load_generator
from fedlens.store import read_labels_file
from harness.fuzzing.mutations import Source, spoiled, spoiled_record
from harness.fuzzing.structured import (
    Make,
    either,
    odd_idx,
    odd_lines,
    odd_npz,
    odd_tensors,
    plain_line,
    sealed_line,
)

PICTURES = 2


@dataclass(frozen=True)
class FuzzTarget:
    """A parser with input to spoil. What it does with it must be a result or a FedlensError."""

    name: str
    make: Callable[[Source], object]
    parse: Callable[[object], object]


@contextmanager
def targets() -> Iterator[dict[str, FuzzTarget]]:
    """All targets by name, with a folder for their files as long as the context lasts."""
    home = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=home if home.is_dir() else None) as folder:
        made = [
            *_messages(),
            *_ledgers(Path(folder)),
            *_files(Path(folder)),
            *_settings(Path(folder)),
        ]
        made += [*_labels()]
        yield {target.name: target for target in made}


# Messages


def _messages() -> list[FuzzTarget]:
    mechanism = Mechanism(
        unit="user", sampling_rate=0.1, noise_multiplier=1.0, clipping_norm=1.0, denominator=4.0,
        steps=1, fixed_seed=-1,
    )  # fmt: skip
    weights = {"w": np.ones(4, np.float32)}
    request = TrainRequest(
        1, (0, 3), "frozen", mechanism, {"rate": 0.1}, weights, 5, 9, b"k" * 16, 8
    )
    reply = TrainReply(np.ones(6), np.zeros(NORM_BINS, np.int64))
    told = Description(partition=0, users=7, shape=(1, 28, 28), classes=10, members=b"m" * 56)
    readers: dict[str, tuple[RecordDict, Callable[[RecordDict], object]]] = {
        "message: request": (request.to_record(), TrainRequest.from_record),
        "message: reply": (reply.to_record(), TrainReply.from_record),
        "message: description": (told.to_record(), Description.from_record),
    }
    return [
        FuzzTarget(name, _records_of(record), read)  # type: ignore[arg-type]
        for name, (record, read) in readers.items()
    ]


def _records_of(record: RecordDict) -> Callable[[Source], object]:
    return lambda source: spoiled_record([record], source)


# Ledgers


def _ledgers(folder: Path) -> list[FuzzTarget]:
    whole, kept = folder / "ledger.jsonl", folder / "evidence.jsonl"
    ledger, evidence = Ledger.create(whole, {"run_id": "fuzzed"}), EvidenceFile(kept)
    event = SubsampledGaussian(
        unit="user",
        sampler="poisson",
        adjacency="add-remove",
        sampling_rate=0.1,
        noise_multiplier=2.0,
        clipping_norm=1.0,
        released="a sum",
    )
    norms = noised_norms(
        np.zeros(NORM_BINS, np.int64), clipping_norm=1.0, noise=9.0, source=private_source(-1, 1)
    )
    for number in range(4):
        sealed = evidence.seal(norms)
        evidence.append(number, sealed)
        ledger.append(
            event, round=number + 1, purpose="round é", evidence_digest=sealed.digest,
            run="r", users="a=b",
        )  # fmt: skip
    target = folder / "spoiled.jsonl"

    def of_file(read: Callable[[Path], object]) -> Callable[[object], object]:
        return lambda data: read(_written(target, data))

    lines, noted = whole.read_bytes(), kept.read_bytes()
    chained = either(_bytes_of([lines]), odd_lines(lines.splitlines(True), sealed_line))
    plain = either(_bytes_of([noted]), odd_lines(noted.splitlines(True), plain_line))
    return [
        FuzzTarget("ledger: reader", chained, lambda data: Reader().feed(_raw(data))),
        FuzzTarget("ledger: file", chained, of_file(Ledger.open)),
        FuzzTarget("ledger: evidence", plain, of_file(EvidenceFile)),
    ]


# Files


def _files(folder: Path) -> list[FuzzTarget]:
    images = np.arange(4 * 8 * 8, dtype=np.uint8).reshape(4, 1, 8, 8)
    labels = np.arange(4) % 2
    node = _npz(images=images, labels=labels, users=labels, classes=np.array(2))
    large = np.zeros((4, 1, 16, 16), np.uint8)
    own = _npz(train_images=large, train_labels=labels, test_images=large, test_labels=labels)
    idx = b"\x00\x00\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (4, 8, 8)) + images.tobytes()
    numbers = b"\x00\x00\x08\x01" + (4).to_bytes(4, "big") + bytes([0, 1, 0, 1])
    readers: list[tuple[str, str, bytes, Make | None, Callable[[Path], object]]] = [
        ("data: IDX images", "a.idx", idx, odd_idx(idx[:4], 3, idx[16:]), read_images),
        ("data: IDX labels", "b.idx", numbers, odd_idx(numbers[:4], 1, b"\1"), _read_labels),
        ("data: npz of a node", "c.npz", node, odd_npz(_members(node)), _open_node),
        ("data: npz", "d.npz", own, odd_npz(_members(own)), load_npz),
        ("data: table", "e.csv", _manifest(), None, read_table),
        ("state: generator", "f.safetensors", _tensors(), odd_tensors(_tensors()), load_generator),
    ]
    made = []
    for name, file, seed, inside, read in readers:
        outside = _bytes_of([seed])
        make = outside if inside is None else either(outside, inside)
        made.append(FuzzTarget(name, make, _from_file(folder / file, read)))
    return [*made, *_columnar(folder), _folder_target(folder / "pictures")]


def _columnar(folder: Path) -> list[FuzzTarget]:
    """Arrow streams, packed and not, and Parquet files, as pictures and as a table."""
    import pyarrow
    import pyarrow.parquet as parquet

    table = pyarrow.table({"image": [b"x" * 60, b"y"] * 3, "label": ["a", None, "b"] * 2})
    table = table.append_column("user", table["label"].combine_chunks().dictionary_encode())
    streams, tables = list[bytes](), list[bytes]()
    for packing in (None, "zstd"):
        made, options = io.BytesIO(), pyarrow.ipc.IpcWriteOptions(compression=packing)
        with pyarrow.ipc.new_stream(made, table.schema, options=options) as writer:
            writer.write_table(table)
        streams.append(made.getvalue())
        made = io.BytesIO()
        parquet.write_table(table, made, compression=packing or "none")
        tables.append(made.getvalue())
    return [
        FuzzTarget(name, _bytes_of(seeds), _from_file(folder / file, read))
        for name, file, seeds, read in (
            ("data: Arrow stream", "g.arrow", streams, _read_pictures),
            ("data: Parquet pictures", "h.parquet", tables, _read_pictures),
            ("data: Parquet table", "i.parquet", tables, read_table),
        )
    ]


def _read_pictures(path: Path) -> object:
    return list(open_source(path, "hf", owner="each").records())


def _members(npz: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(npz)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _read_labels(path: Path) -> object:
    return read_labels(path, 2)


def _open_node(path: Path) -> object:
    users = open_node_users(Context(1, 1, {"data": str(path)}, RecordDict(), {}))
    return [users.held(position) for position in range(min(len(users), 50))]


def _folder_target(folder: Path) -> FuzzTarget:
    """Pictures and their manifest, one of the two spoiled."""
    folder.mkdir()
    picture = io.BytesIO()
    Image.fromarray(np.arange(8 * 8, dtype=np.uint8).reshape(8, 8)).save(picture, "PNG")
    for place in range(PICTURES):
        (folder / f"{place}.png").write_bytes(picture.getvalue())
    seeds = {"manifest.csv": [_manifest()], "0.png": [picture.getvalue()]}
    (folder / "manifest.csv").write_bytes(_manifest())

    def make(source: Source) -> object:
        file = source.choice(list(seeds))
        return file, spoiled(seeds[file], source)

    def parse(spoiled_file: object) -> object:
        if not isinstance(spoiled_file, tuple):
            raise TypeError("a file's name and content")
        file, content = spoiled_file
        try:
            (folder / file).write_bytes(content)
            return load_private(f"folder:{folder},utility=kind,sensitive=sex")
        finally:
            (folder / file).write_bytes(seeds[file][0])

    return FuzzTarget("data: folder and manifest", make, parse)


def _manifest() -> bytes:
    rows = [f"{place}.png,{'ab'[place % 2]},{'mf'[place // 2 % 2]}" for place in range(PICTURES)]
    return "\n".join(["file,kind,sex", *rows, ""]).encode()


def _npz(**arrays: object) -> bytes:
    made = io.BytesIO()
    np.savez(made, allow_pickle=False, **{name: np.asarray(a) for name, a in arrays.items()})
    return made.getvalue()


def _tensors() -> bytes:
    from safetensors.numpy import save

    return save({"average": np.ones(8, np.float32)}, metadata={"facts": "{}"})


# Labels and settings


def _labels() -> list[FuzzTarget]:
    digest = "a" * 64
    table = f"sha256,label,annotator,note,more_labels\n{digest},seven,ann,,\n{digest},,bo,n,x\n"
    studio = [
        {
            "id": 1,
            "data": {"image": "x", "sha256": digest},
            "annotations": [
                {"result": [{"type": "choices", "value": {"choices": ["7"]}}], "completed_by": 3}
            ],
        }
    ]
    seeds = [table.encode(), json.dumps(studio).encode()]
    make = either(_bytes_of(seeds), odd_lines([seeds[1]], plain_line))
    return [FuzzTarget("labels: import", make, lambda data: read_labels_file(_raw(data)))]


def _settings(folder: Path) -> list[FuzzTarget]:
    flat = Config().flat()
    sections = [f"[{part}" for part in Config().to_toml().split("\n[")[1:]]

    def make(source: Source) -> object:
        keys = list(flat)
        chosen = {key: flat[key] for key in source.choices(keys, k=9)}
        key = source.choice(keys)
        values: list[object] = [
            "", -1, 2**70, float("nan"), float("inf"), True, "x" * 300, 1e308, -0.0, "a b", b"x",
            [], {},
        ]  # fmt: skip
        return {**chosen, key: source.choice(values)}

    of_file = _from_file(folder / "config.toml", read_config)

    def one(data: object) -> object:
        key, value = parse_setting(_raw(data).decode("utf-8", "replace"))
        return Config().updated({key: value})

    pairs = [f"{key}={value!r}".encode() for key, value in flat.items()]
    return [
        FuzzTarget("settings: file", _bytes_of([part.encode() for part in sections]), of_file),
        FuzzTarget("settings: run config", make, read_run_config),  # type: ignore[arg-type]
        FuzzTarget("settings: --set", _bytes_of(pairs), one),
    ]


def _bytes_of(seeds: list[bytes]) -> Make:
    return lambda source: spoiled(seeds, source)


def _from_file(path: Path, read: Callable[[Path], object]) -> Callable[[object], object]:
    return lambda data: read(_written(path, data))


def _written(path: Path, data: object) -> Path:
    path.write_bytes(_raw(data))
    return path


def _raw(data: object) -> bytes:
    if not isinstance(data, bytes):
        raise TypeError("a target of bytes was given something else")
    return data
