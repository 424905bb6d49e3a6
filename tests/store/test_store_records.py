"""Records refuse what cannot be stored, and PNGs hold pixels and nothing else."""

from __future__ import annotations

import hashlib
import io
import math
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image, PngImagePlugin
from store_builders import MOMENT, a_batch, a_ledger_row, a_project, a_round, a_run

from fedlens.store import (
    Annotation,
    LabelRecord,
    SampleRecord,
    StoreError,
    decode_png,
    pixel_digest,
)
from fedlens.store.pngs import MAX_SIDE


@pytest.mark.parametrize(
    ("make", "changes", "named"),
    [
        (a_run, {"run_id": ""}, "run_id"),
        (a_run, {"status": "done"}, "status"),
        (a_run, {"users": -1}, "users"),
        (a_run, {"nodes": np.int64(2)}, "nodes"),
        (a_run, {"rounds_planned": True}, "rounds_planned"),
        (a_run, {"config": {"x": math.nan}}, "config"),
        (a_run, {"config": {"x": object()}}, "config"),
        (a_round, {"dp_epsilon": math.nan}, "dp_epsilon"),
        (a_round, {"bdp_corrected": -0.1}, "bdp_corrected"),
        (a_round, {"delta_bdp": 1.5}, "delta_bdp"),
        (a_round, {"metrics": {"loss": "low"}}, "loss"),
        (a_ledger_row, {"index": -1}, "index"),
        (a_ledger_row, {"entry_hash": ""}, "entry_hash"),
        (a_project, {"labels": ()}, "labels"),
        (a_project, {"order": "backwards"}, "order"),
    ],
)
def test_a_field_that_cannot_be_stored_is_named(make: Any, changes: Any, named: str) -> None:
    with pytest.raises(StoreError, match=named):
        make(**changes)


@pytest.mark.parametrize("make", [a_run, a_ledger_row])
def test_nothing_of_a_run_has_a_time_of_day(make: Any) -> None:
    with pytest.raises(StoreError, match="give a date, and no time of day"):
        make(created_at=MOMENT)


def test_seeds_reach_to_the_largest_integer_of_both_engines() -> None:
    assert a_batch(1, seed=2**63 - 1).seed == 2**63 - 1
    with pytest.raises(StoreError, match="seed"):
        a_batch(1, seed=2**63)


def test_two_labels_may_share_neither_key_nor_name() -> None:
    one = LabelRecord(key="1", name="one")
    for other in (LabelRecord(key="1", name="two"), LabelRecord(key="2", name="one")):
        with pytest.raises(StoreError, match="only once"):
            a_project(labels=(one, other))


@pytest.mark.parametrize(("label", "reason"), [(None, None), (None, ""), (1, "blurred")])
def test_an_answer_is_a_label_or_a_reason_to_skip(label: Any, reason: Any) -> None:
    with pytest.raises(StoreError, match="one of the two"):
        Annotation(
            client_uuid="u",
            project_id=1,
            sample_id=1,
            user_id=1,
            label_id=label,
            skip_reason=reason,
        )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.law("7: pixels survive storage and display")
def test_pixels_survive_png_and_the_digest_is_of_their_bytes(channels: int) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (channels, 20, 32), dtype=np.uint8)
    sample = SampleRecord.from_pixels(position=0, requested_class=4, pixels=pixels)
    assert np.array_equal(decode_png(sample.png), pixels)
    assert sample.sha256 == hashlib.sha256(pixels.tobytes()).hexdigest()
    turned = np.asfortranarray(pixels)
    assert pixel_digest(turned) == sample.sha256


@pytest.mark.parametrize(
    "pixels",
    [
        np.zeros((28, 28), np.uint8),
        np.zeros((2, 28, 28), np.uint8),
        np.zeros((1, 28, 28), np.float32),
        np.zeros((1, 0, 28), np.uint8),
        np.zeros((1, MAX_SIDE + 1, 8), np.uint8),
    ],
)
def test_other_arrays_are_no_pixels(pixels: Any) -> None:
    with pytest.raises(StoreError, match="pixels of"):
        SampleRecord.from_pixels(position=0, requested_class=0, pixels=pixels)


def _png(image: Image.Image, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="PNG", **options)
    return buffer.getvalue()


def _jpeg() -> bytes:
    buffer = io.BytesIO()
    Image.new("L", (28, 28)).save(buffer, format="JPEG")
    return buffer.getvalue()


def _with_text() -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("note", "anything at all")
    return _png(Image.new("L", (28, 28)), pnginfo=info)


GOOD = _png(Image.new("L", (28, 28)))
BAD_PNGS = {
    "empty": b"",
    "jpeg": _jpeg(),
    "cut short": GOOD[:-5],
    "signature only": GOOD[:8],
    "bytes after the end": GOOD + b"more",
    "text chunk": _with_text(),
    "wrong checksum": GOOD[:45] + bytes([GOOD[45] ^ 1]) + GOOD[46:],
    "transparent": _png(Image.new("RGBA", (28, 28))),
    "palette": _png(Image.new("P", (28, 28))),
    "sixteen bits": _png(Image.fromarray(np.zeros((28, 28), np.uint16))),
    "too wide": _png(Image.new("L", (MAX_SIDE + 1, 2))),
    "too many bytes": _png(
        Image.fromarray(np.random.default_rng(0).integers(0, 256, (256, 256, 3), dtype=np.uint8))
    ),
}


@pytest.mark.parametrize("name", BAD_PNGS)
def test_what_is_not_a_plain_png_is_refused(name: str) -> None:
    assert decode_png(GOOD).shape == (1, 28, 28)
    with pytest.raises(StoreError, match="png"):
        decode_png(BAD_PNGS[name])


def test_a_small_file_that_claims_to_be_huge_is_not_unpacked() -> None:
    def chunk(name: bytes, body: bytes) -> bytes:
        check = zlib.crc32(name + body).to_bytes(4, "big")
        return len(body).to_bytes(4, "big") + name + body + check

    header = (60_000).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")
    with pytest.raises(StoreError, match="png"):
        decode_png(GOOD[:8] + body)
