"""Spoiling bytes and messages, by a generator of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

Mutation = Callable[[bytearray, np.random.Generator], None]

TOKENS = (
    b"\x00", b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"NaN",
    b"Infinity", b"-1", b"1e999", b"9" * 40, b"null", b"[" * 200, b"{" * 200, b'"', b"\\ud800",
    b"\n", b"\r\n", b",", b"=", b"\xef\xbb\xbf", "é".encode(), b"../../etc/passwd", b"/dev/zero",
    b"\x1f\x8b", b"PK\x03\x04",
)  # fmt: skip


def _place(data: bytearray, source: np.random.Generator) -> int:
    return int(source.integers(len(data) + 1))


def _flip(data: bytearray, source: np.random.Generator) -> None:
    if data:
        data[int(source.integers(len(data)))] ^= 1 << int(source.integers(8))


def _replace(data: bytearray, source: np.random.Generator) -> None:
    if data:
        data[int(source.integers(len(data)))] = int(source.integers(256))


def _insert(data: bytearray, source: np.random.Generator) -> None:
    place = _place(data, source)
    data[place:place] = TOKENS[int(source.integers(len(TOKENS)))]


def _write_over(data: bytearray, source: np.random.Generator) -> None:
    token, place = TOKENS[int(source.integers(len(TOKENS)))], _place(data, source)
    data[place : place + len(token)] = token


def _delete(data: bytearray, source: np.random.Generator) -> None:
    place = _place(data, source)
    del data[place : place + int(source.integers(1, 64))]


def _cut(data: bytearray, source: np.random.Generator) -> None:
    del data[_place(data, source) :]


def _repeat(data: bytearray, source: np.random.Generator) -> None:
    place = _place(data, source)
    part = data[place : place + int(source.integers(1, 256))]
    data[place:place] = part * int(source.integers(1, 8))


MUTATIONS: tuple[Mutation, ...] = (_flip, _replace, _insert, _write_over, _delete, _cut, _repeat)


def spoiled(seeds: Sequence[bytes], source: np.random.Generator) -> bytes:
    """One of the seeds after one to six mutations."""
    data = bytearray(seeds[int(source.integers(len(seeds)))])
    for _ in range(int(source.integers(1, 7))):
        MUTATIONS[int(source.integers(len(MUTATIONS)))](data, source)
    return bytes(data)


def _value(source: np.random.Generator) -> object:
    """A value that a config record can hold, of any kind and size."""
    choices: list[object] = [
        True, -1, 0, 2**31, 2**62, -(2**62), float("nan"), float("inf"), -0.0, "", "done", "user",
        "x" * 5000, b"", b"\xff" * 33, [1, 2, 3], [0.5], ["a"], [], [-1, 28, 28], [2**40] * 3,
    ]  # fmt: skip
    return choices[int(source.integers(len(choices)))]


def _array(source: np.random.Generator) -> Array:
    """An array, sound or not: kinds, shapes, and bytes that are no array at all."""
    kinds = (np.float64, np.float32, np.int64, np.uint8, np.bool_, np.complex128)
    shape = tuple(int(side) for side in source.integers(0, 5, int(source.integers(0, 4))))
    made = Array(np.zeros(shape, kinds[int(source.integers(len(kinds)))]))
    if source.random() < 0.5:
        made.data = spoiled([made.data], source)
    if source.random() < 0.1:
        made.stype = "pickle"
    return made


def spoiled_record(seeds: Sequence[RecordDict], source: np.random.Generator) -> RecordDict:
    """One of some messages, with fields changed, taken away or added."""
    seed = seeds[int(source.integers(len(seeds)))]
    config = dict(seed.config_records.get("config", ConfigRecord()))
    arrays = {name: dict(record) for name, record in seed.array_records.items()}
    for _ in range(int(source.integers(1, 5))):
        keys = [*config, "added"]
        key = keys[int(source.integers(len(keys)))]
        if source.random() < 0.3:
            config.pop(key, None)
        else:
            config[key] = _value(source)  # type: ignore[assignment]
        for record in arrays.values():
            if record and source.random() < 0.5:
                record[list(record)[int(source.integers(len(record)))]] = _array(source)
    made = RecordDict({name: ArrayRecord(record) for name, record in arrays.items()})
    if source.random() < 0.97:
        made["config"] = ConfigRecord(config)
    return made
