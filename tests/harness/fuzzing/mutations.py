"""Spoiling bytes and messages, by a generator of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

Source = random.Random
"""What draws inputs: it is a tenth of the price of NumPy's for one number at a time."""
Mutation = Callable[[bytearray, Source], None]

TOKENS = (
    b"\x00", b"\xff" * 4, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"NaN",
    b"Infinity", b"-1", b"1e999", b"9" * 40, b"null", b"[" * 200, b"{" * 200, b'"', b"\\ud800",
    b"\n", b"\r\n", b",", b"=", b"\xef\xbb\xbf", "é".encode(), b"../../etc/passwd", b"/dev/zero",
    b"\x1f\x8b", b"PK\x03\x04",
)  # fmt: skip


def _place(data: bytearray, source: Source) -> int:
    return source.randrange(len(data) + 1)


def _flip(data: bytearray, source: Source) -> None:
    if data:
        data[source.randrange(len(data))] ^= 1 << source.randrange(8)


def _replace(data: bytearray, source: Source) -> None:
    if data:
        data[source.randrange(len(data))] = source.randrange(256)


def _insert(data: bytearray, source: Source) -> None:
    place = _place(data, source)
    data[place:place] = source.choice(TOKENS)


def _write_over(data: bytearray, source: Source) -> None:
    token, place = source.choice(TOKENS), _place(data, source)
    data[place : place + len(token)] = token


def _delete(data: bytearray, source: Source) -> None:
    place = _place(data, source)
    del data[place : place + source.randrange(1, 64)]


def _cut(data: bytearray, source: Source) -> None:
    del data[_place(data, source) :]


def _repeat(data: bytearray, source: Source) -> None:
    place = _place(data, source)
    part = data[place : place + source.randrange(1, 256)]
    data[place:place] = part * source.randrange(1, 8)


MUTATIONS: tuple[Mutation, ...] = (_flip, _replace, _insert, _write_over, _delete, _cut, _repeat)


def spoiled(seeds: Sequence[bytes], source: Source) -> bytes:
    """One of the seeds after one to six mutations."""
    data = bytearray(source.choice(seeds))
    for _ in range(source.randrange(1, 7)):
        source.choice(MUTATIONS)(data, source)
    return bytes(data)


def _value(source: Source) -> object:
    """A value that a config record can hold, of any kind and size."""
    choices: list[object] = [
        True, -1, 0, 2**31, 2**62, -(2**62), float("nan"), float("inf"), -0.0, "", "done", "user",
        "x" * 5000, b"", b"\xff" * 33, [1, 2, 3], [0.5], ["a"], [], [-1, 28, 28], [2**40] * 3,
    ]  # fmt: skip
    return source.choice(choices)


KINDS = (np.float64, np.float32, np.int64, np.uint8, np.bool_, np.complex128)


def _array(source: Source) -> Array:
    """An array, sound or not: kinds, shapes, and bytes that are no array at all."""
    shape = tuple(source.randrange(5) for _ in range(source.randrange(4)))
    sound = _zeros(source.randrange(len(KINDS)), shape)
    data = spoiled([sound.data], source) if source.random() < 0.5 else sound.data
    stype = "pickle" if source.random() < 0.1 else sound.stype
    return Array(sound.dtype, sound.shape, stype, data)


@cache
def _zeros(kind: int, shape: tuple[int, ...]) -> Array:
    return Array(np.zeros(shape, KINDS[kind]))


def spoiled_record(seeds: Sequence[RecordDict], source: Source) -> RecordDict:
    """One of some messages, with fields changed, taken away or added."""
    seed = source.choice(seeds)
    config = dict(seed.config_records.get("config", ConfigRecord()))
    arrays = {name: dict(record) for name, record in seed.array_records.items()}
    for _ in range(source.randrange(1, 5)):
        keys = [*config, "added"]
        key = source.choice(keys)
        if source.random() < 0.3:
            config.pop(key, None)
        else:
            config[key] = _value(source)  # type: ignore[assignment]
        for record in arrays.values():
            if record and source.random() < 0.5:
                record[source.choice(list(record))] = _array(source)
    made = RecordDict({name: ArrayRecord(record) for name, record in arrays.items()})
    if source.random() < 0.97:
        made["config"] = ConfigRecord(config)
    return made
