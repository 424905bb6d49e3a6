"""Spoiling that keeps an outer form, so that inputs come past checksums and magic numbers.

A flipped bit in a zip, a chained ledger or a safetensors file fails at the first check, and what
lies behind it is hardly ever reached. Here what lies inside is spoiled, and the form around it is
made anew.
"""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from harness.fuzzing.mutations import Source, spoiled

ODD: tuple[object, ...] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 2**64, -(2**63), 10**30, 0.5, -0.0, 1e308,
    float("inf"), float("-inf"), float("nan"), "", "x", "é" * 60, "\ud800", "0" * 64, "NaN", [],
    [[]], [1, "a", None], {}, {"a": {}}, {"kind": "x"},
)  # fmt: skip
"""What may stand in place of any value of JSON."""
Make = Callable[[Source], bytes]


def odd_json(value: object, source: Source) -> object:
    """A JSON value with one value in it, however deep, changed, taken away, added or nested."""
    if isinstance(value, dict) and value and source.random() < 0.85:
        key = source.choice(list(value))
        kind = source.random()
        if kind < 0.1:
            return {k: v for k, v in value.items() if k != key}
        if kind < 0.15:
            return {**value, "added": source.choice(ODD)}
        return {**value, key: odd_json(value[key], source)}
    if isinstance(value, list) and value and source.random() < 0.85:
        place = source.randrange(len(value))
        return [*value[:place], odd_json(value[place], source), *value[place + 1 :]]
    if isinstance(value, str) and value and source.random() < 0.5:
        return spoiled([value.encode("utf-8", "replace")], source).decode("latin-1")
    if source.random() < 0.02:
        for _ in range(source.randrange(1, 1200)):
            value = [value]
        return value
    return source.choice(ODD)


def odd_lines(lines: Sequence[bytes], seal: Callable[[object], bytes]) -> Make:
    """Lines of JSON, one to three of whose values are odd; ``seal`` writes a line anew."""
    records = [json.loads(line) for line in lines]

    def make(source: Source) -> bytes:
        made = list(lines)
        place = source.randrange(len(made))
        record = records[place]
        for _ in range(source.randrange(1, 4)):
            record = odd_json(record, source)
        made[place] = seal(record)
        return b"".join(made)

    return make


def plain_line(record: object) -> bytes:
    """A record as a line of JSON, as Python writes it: Infinity and halves of letters too."""
    try:
        return json.dumps(record).encode() + b"\n"
    except RecursionError:
        return b"[" * 900 + b"]" * 900 + b"\n"


def sealed_line(record: object) -> bytes:
    """A record as a ledger's line whose own hash fits."""
    body = {k: v for k, v in record.items() if k != "sha256"} if isinstance(record, dict) else {}
    try:
        text = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    except RecursionError:
        return plain_line(record)
    digest = hashlib.sha256(text).hexdigest().encode()
    return text[:-1] + b',"sha256":"' + digest + b'"}\n'


def odd_npz(members: Mapping[str, bytes]) -> Make:
    """A zip of arrays whose checksums fit, with an array spoiled, odd, missing, twice or packed."""
    names = list(members)

    def make(source: Source) -> bytes:
        changed = dict(members)
        name = source.choice(names)
        kind = source.random()
        if kind < 0.1:
            del changed[name]
        elif kind < 0.5:
            changed[name] = spoiled([members[name]], source)
        else:
            changed[name] = odd_array(source)
        return zip_of(changed, source.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)))

    return make


def zip_of(members: Mapping[str, bytes], packing: int) -> bytes:
    """A zip of files, packed that way."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", packing) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, packing, 1)
    return made.getvalue()


def odd_array(source: Source) -> bytes:
    """A ``.npy`` file of an odd kind, order or shape, or whose header lies about its content."""
    kind = source.choice(("|u1", "<i8", ">i4", "<f8", "<c16", "|b1", "<U3", "|S4", "|O", "<M8[s]"))
    shape = tuple(source.choice((0, 1, 2, 4, 8, 2**31, 2**62)) for _ in range(source.randrange(5)))
    order = source.choice(("True", "False"))
    header = f"{{'descr': '{kind}', 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    if source.random() < 0.2:
        header = spoiled([header], source)
    header = header.ljust(117) + b"\n"
    size = source.choice((0, 1, 8, 256, 512))
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(size)


def odd_tensors(whole: bytes) -> Make:
    """A safetensors file whose header is odd JSON of the length that it says."""
    length = int.from_bytes(whole[:8], "little")
    header, data = json.loads(whole[8 : 8 + length]), whole[8 + length :]

    def make(source: Source) -> bytes:
        text = plain_line(odd_json(header, source)).rstrip()
        return len(text).to_bytes(8, "little") + text + data[: source.randrange(len(data) + 1)]

    return make


def odd_idx(header: bytes, sides: int, data: bytes) -> Make:
    """An IDX file with other sides, and as much content as they say, or not."""

    def make(source: Source) -> bytes:
        shape = [source.choice((0, 1, 2, 4, 8, 28, 2**16, 2**31)) for _ in range(sides)]
        stated = b"".join(side.to_bytes(4, "big") for side in shape)
        wanted = int(np.prod(shape, dtype=object))
        size = wanted if wanted < 4096 and source.random() < 0.8 else len(data)
        return header + stated + (data * (size // len(data) + 1))[:size]

    return make


def either(first: Make, second: Make) -> Make:
    """Inputs of both makings in turn, by chance."""
    return lambda source: (first if source.random() < 0.5 else second)(source)
