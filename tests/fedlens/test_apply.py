"""A kept filter over people's own pictures, archives, series and streams."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedlens.api import privatizer
from fedlens.api.filter_noise import AT_ONCE, KeyedNoise, Releaser, system_noise, system_normal
from fedlens.cli import main
from fedlens.privatizers.attacks.filter_files import RecordUnits, save_filter
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser, LstmReleaser

SIDE, STEPS, UNIT = 16, 8, 500.0
NAMES = ("cat", "dog"), ("blue", "red")


def mask(channels: int = 1, sigma: float = 0.1) -> MaskFilter:
    """Sends the left half with noise, and -1 (black) for the right half."""
    shape = (channels, SIDE, SIDE)
    keep = torch.zeros(shape, dtype=torch.bool)
    keep[..., : SIDE // 2] = True
    return MaskFilter(torch.full(shape, sigma), keep, torch.full(shape, -1.0))


def kept(folder: Path, channels: int = 1) -> Path:
    units = RecordUnits(1.0, *NAMES)
    return save_filter(mask(channels), (channels, SIDE, SIDE), folder / "f.safetensors", units)


def kept_series(folder: Path) -> Path:
    net = LstmReleaser(hidden=4, layers=1, steps=STEPS, output_noise_std=0.01)
    return save_filter(net, (STEPS, 1), folder / "s.safetensors", RecordUnits(UNIT))


def applied(*arguments: Any) -> int:
    return main(["privatizer", "apply", *map(str, arguments)])


def pixels(path: Path) -> np.ndarray[Any, Any]:
    with Image.open(path) as picture:
        return np.asarray(picture)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Pictures of several kinds, one with a place in it, one damaged, and a text."""
    root = tmp_path / "in"
    (root / "deep").mkdir(parents=True)
    for number in range(AT_ONCE + 3):
        Image.new("L", (SIDE, SIDE), 100 + number).save(root / f"{number:02}.png")
    exif = Image.Exif()
    exif[0x010E] = "at home"
    Image.new("L", (40, 20), 200).save(root / "deep" / "photo.JPG", exif=exif)
    (root / "broken.png").write_text("nothing")
    (root / "owner.csv").write_text("name\nAda\n")
    (root / "link.png").symlink_to(tmp_path / "elsewhere.png")
    Image.new("L", (SIDE, SIDE), 7).save(tmp_path / "elsewhere.png")
    return root


def test_a_folder_gives_a_folder_of_the_same_names(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert applied(kept(tmp_path), pictures, out, "--json") == 0
    printed = capsys.readouterr().out
    found = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert found == [*(f"{one:02}.png" for one in range(AT_ONCE + 3)), "deep/photo.JPG"]
    assert json.loads(printed.splitlines()[-1])["records"] == AT_ONCE + 4
    assert "1 left out, as no readable picture: broken.png" in printed
    assert "1 left out, as links: link.png" in printed
    assert "40 x 20 pixels are cut" in printed and "not differentially private" in printed
    for number in range(AT_ONCE + 3):
        sent = pixels(out / f"{number:02}.png")
        assert (sent[:, SIDE // 2 :] == 0).all(), "what the filter gives up is given up"
        left = sent[:, : SIDE // 2].astype(float)
        assert abs(left.mean() - (100 + number)) < 5 and left.std() > 5
    with Image.open(out / "deep" / "photo.JPG") as photo:
        assert photo.size == (SIDE, SIDE) and not photo.getexif()


def test_two_releases_differ(pictures: Path, tmp_path: Path) -> None:
    """Fresh noise of the system, no seed."""
    path = kept(tmp_path)
    for name in ("one", "two"):
        assert applied(path, pictures, tmp_path / name) == 0
    first, second = (pixels(tmp_path / name / "00.png") for name in ("one", "two"))
    assert not np.array_equal(first, second)


def test_with_a_key_a_second_release_is_the_first(
    pictures: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = kept(tmp_path), tmp_path / "secrets" / "device.key"
    assert applied(path, pictures, tmp_path / "one", "--key", key) == 0
    assert "a new key" in capsys.readouterr().out
    assert len(key.read_bytes()) == 32 and key.stat().st_mode & 0o077 == 0
    (pictures / "00.png").unlink()  # what else is released changes nothing
    assert applied(path, pictures, tmp_path / "two", "--key", key) == 0
    for number in range(1, AT_ONCE + 3):
        first, second = (tmp_path / one / f"{number:02}.png" for one in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
    assert not np.array_equal(pixels(tmp_path / "one/01.png"), pixels(tmp_path / "one/02.png"))
    assert applied(path, pictures, tmp_path / "other", "--key", tmp_path / "b.key") == 0
    other = pixels(tmp_path / "other" / "01.png")
    assert not np.array_equal(other, pixels(tmp_path / "one/01.png"))


def test_with_a_key_two_filters_do_not_share_their_noise() -> None:
    """Or the difference of two releases of a record would be free of it."""
    records, key = torch.rand(2, 1, SIDE, SIDE), b"k" * 32
    first, second = (KeyedNoise(mask(sigma=one), key) for one in (0.1, 0.2))
    shape = (1, SIDE, SIDE)
    assert torch.equal(first(records, shape), KeyedNoise(mask(sigma=0.1), key)(records, shape))
    correlated = (first(records, shape) * second(records, shape)).mean()
    assert abs(float(correlated)) < 0.25


@pytest.mark.parametrize("other", [{"capacity": 9.0}, {"high": 0.5}, {"output_noise_std": 0.2}])
def test_with_a_key_the_same_weights_with_another_limit_are_another_filter(
    other: dict[str, float],
) -> None:
    """A radius is no tensor, and codes of two radii with one noise differ by the record alone."""
    usual = {"capacity": 6.0, "output_noise_std": 0.1}
    records, key = torch.rand(2, 1, SIDE, SIDE), b"k" * 32
    one, again, two = (
        ConvReleaser((1, SIDE, SIDE), 2, code=4, **usual | more)  # type: ignore[arg-type]
        for more in ({}, {}, other)
    )
    assert all(
        torch.equal(one.state_dict()[name], two.state_dict()[name]) for name in one.state_dict()
    )
    first, same, second = (
        KeyedNoise(net, key)(records, (256,)) for net in (one, again.eval(), two)
    )
    assert torch.equal(first, same) and not bool((first == second).any())


def test_with_a_key_a_filter_that_differs_in_one_bit_draws_fresh_noise() -> None:
    """So that who supplies filters gets as many noises as filters: the docs say so."""
    records, key = torch.rand(2, 1, SIDE, SIDE), b"k" * 32
    one, two = (ConvReleaser((1, SIDE, SIDE), 2, code=4, output_noise_std=0.1) for _ in range(2))
    with torch.no_grad():
        two.encode.bias[0] = torch.nextafter(one.encode.bias[0], torch.tensor(9.0))
    first, second = (KeyedNoise(net, key)(records, (256,)) for net in (one, two))
    assert not bool((first == second).any())
    assert abs(float((first * second).mean())) < 0.25


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        (b"short", "k", "has 5 bytes; a key has 32 to 64"),
        (None, "out/k", "lies in OUT"),
        (None, ".", "cannot be used"),
    ],
)
def test_a_key_that_is_none_is_refused(
    content: bytes | None, place: str, message: str, pictures: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    if content is not None:
        (tmp_path / place).write_bytes(content)
    path, key = kept(tmp_path), tmp_path / place
    assert applied(path, pictures, tmp_path / "out", "--key", key) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_noise_of_the_system_is_standard_normal() -> None:
    noise = system_normal(40, 50, 50)
    assert noise.shape == (40, 50, 50) and noise.dtype == torch.float32
    assert bool(torch.isfinite(noise).all())
    assert abs(float(noise.mean())) < 6 / 100_000**0.5 and abs(float(noise.std()) - 1) < 0.02
    shares = [float((noise < edge).double().mean()) for edge in (-1.0, 0.0, 2.0)]
    assert shares == pytest.approx([0.1587, 0.5, 0.9772], abs=0.01)
    torch.manual_seed(0)
    one = system_normal(8)
    torch.manual_seed(0)
    assert not torch.equal(one, system_normal(8))


def test_a_record_s_release_hangs_on_no_other() -> None:
    net = ConvReleaser((1, SIDE, SIDE), 2, code=4, output_noise_std=0.1)
    releaser = Releaser(
        net.eval(), (1, SIDE, SIDE), 1.0, lambda some, shape: some.new_ones(len(some), *shape)
    )
    records = torch.rand(AT_ONCE + 5, 1, SIDE, SIDE)
    together = releaser.release(records)
    alone = torch.cat([releaser.release(one[None]) for one in records])
    assert torch.equal(together, alone)


@pytest.mark.parametrize("shape", [(5, SIDE, SIDE), (5, 1, SIDE, SIDE), (5, 30, 20)])
def test_an_archive_gives_its_records_alone(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = np.full(shape, 120, np.uint8)
    np.savez(tmp_path / "in.npz", images=images, sensitive=np.arange(5), names=np.array(["a"] * 5))
    assert applied(kept(tmp_path), tmp_path / "in.npz", tmp_path / "new" / "out.npz") == 0
    with np.load(tmp_path / "new" / "out.npz") as found:
        assert found.files == ["images"]
        sent = found["images"]
    assert sent.dtype == np.uint8 and sent.shape == (5, *([1] * (len(shape) - 3)), SIDE, SIDE)
    assert (sent[..., SIDE // 2 :] == 0).all()


def test_colour_and_named_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", faces=np.zeros((3, 40, 40, 3), np.uint8), other=np.zeros(3))
    path = kept(tmp_path, 3)
    assert applied(path, tmp_path / "in.npz", tmp_path / "out.npz", "--records", "faces") == 0
    with np.load(tmp_path / "out.npz") as found:
        assert found["faces"].shape == (3, 3, SIDE, SIDE)


def test_wide_series_keep_their_columns_and_units(tmp_path: Path) -> None:
    rows = [{"who": "Ada", "secret": 1, **{f"h{hour}": 500 + hour for hour in range(STEPS)}}] * 3
    with (tmp_path / "in.csv").open("w", newline="") as stream:
        lines = csv.DictWriter(stream, list(rows[0]))
        lines.writeheader()
        lines.writerows(rows)
        lines.writerow(rows[0] | {"h3": ""})
    assert applied(kept_series(tmp_path), tmp_path / "in.csv", tmp_path / "out.csv") == 0
    text = (tmp_path / "out.csv").read_text()
    assert "Ada" not in text and "secret" not in text
    found = list(csv.DictReader(io.StringIO(text)))
    assert [row["row"] for row in found] == ["1", "2", "3"]
    assert list(found[0]) == ["row", *(f"h{hour}" for hour in range(STEPS))]
    values = np.array([[float(row[f"h{hour}"]) for hour in range(STEPS)] for row in found])
    assert 0.2 < values.mean() / 500 < 2 and not np.array_equal(values[0], values[1])


def test_long_series_are_released_in_whole_pieces(tmp_path: Path) -> None:
    with (tmp_path / "in.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["series", "step", "value", "home"])
        lines.writerows([one, step, 5 * step, 1] for one in "ab" for step in range(2 * STEPS + 3))
    assert applied(kept_series(tmp_path), tmp_path / "in.csv", tmp_path / "out.csv") == 0
    found = list(csv.DictReader((tmp_path / "out.csv").open()))
    assert list(found[0]) == ["series", "step", "value"]
    assert [(row["series"], int(row["step"])) for row in found] == [
        (one, step) for one in "ab" for step in range(2 * STEPS)
    ]


@pytest.mark.parametrize("packed", [False, True])
def test_a_stream_runs_through(packed: bool, tmp_path: Path, repository: Path) -> None:
    """A pipe between two programs: records alone on standard output, words on the other."""
    content, images = io.BytesIO(), np.full((4, SIDE, SIDE), 90, np.uint8)
    if packed:
        np.savez(content, images=images)
    else:
        np.save(content, images)
    script = "import sys; from fedlens.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", script, "privatizer", "apply", str(kept(tmp_path)), "-", "-"],
        input=content.getvalue(), capture_output=True, check=True, cwd=repository,
    )  # fmt: skip
    found = np.load(io.BytesIO(done.stdout))
    sent = found["images"] if packed else found
    assert sent.shape == images.shape and (sent[..., SIDE // 2 :] == 0).all()
    assert b"4 records released" in done.stderr


def test_the_names_of_values_travel_with_the_filter(tmp_path: Path) -> None:
    loaded = privatizer.load(kept(tmp_path))
    assert (loaded.utility_names, loaded.sensitive_names) == NAMES
    found = privatizer.export(kept(tmp_path)).to_json()
    assert found["sensitive_names"] == list(NAMES[1])
    assert privatizer.load(kept_series(tmp_path)).unit == UNIT


def _source(folder: Path, name: str) -> Path:
    path = folder / name
    if name.endswith(".npz"):
        np.savez(path, a=np.zeros((2, 9)), b=np.zeros(2))
    elif name.endswith(".npy"):
        np.save(path, np.zeros((2, 3, 4), np.float32))
    elif name.endswith(".csv"):
        path.write_text("t0,t1,t2,t3\n1,2,3,4\n")
    elif name == "cut.png":
        path.write_text("")
    else:
        path.mkdir()
    return path


@pytest.mark.parametrize(
    ("series", "source", "target", "message"),
    [
        (False, "nowhere.npz", "o.npz", "no such file or folder"),
        (False, "empty", "o", "has no PNG, JPEG or PPM"),
        (False, "cut.png", "o", "give a folder of pictures"),
        (False, "a.npz", "o.npz", "which array are the records.*--records: a, b"),
        (False, "a.npz", "o.csv", "what is written is .npz"),
        (False, "a.npy", "o.npy", "give pictures as uint8"),
        (False, "a.csv", "o.csv", "is a table of series"),
        (True, "a.csv", "o.csv", "has 4 columns of steps, the filter takes 8"),
        (True, "a.npy", "o.npy", r"the filter takes finite numbers \[n, 8\]"),
        (True, "empty", "o", "takes records .8, 1., no square pictures"),
        (False, "empty", "empty/in", "lies in IN or around it"),
        (False, "empty", "-", "pictures go into a folder"),
        (False, "a.npy", "a.npy", "is there already"),
    ],
)
def test_what_does_not_fit_is_refused(
    series: bool, source: str, target: str, message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = kept_series(tmp_path) if series else kept(tmp_path)
    place = tmp_path / source if source.startswith("nowhere") else _source(tmp_path, source)
    assert applied(path, place, target if target == "-" else tmp_path / target) in (1, 2)
    error = capsys.readouterr().err
    assert len(error.strip().splitlines()) == 1
    assert re.search(message, error), error


def test_a_target_that_has_something_is_kept(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("kept")
    assert applied(kept(tmp_path), pictures, tmp_path / "out") == 2
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_noise_of_the_default_source_is_fresh_for_each_record() -> None:
    noise = system_noise(torch.zeros(3, 1, 4, 4), (5,))
    assert noise.shape == (3, 5) and len(noise.flatten().unique()) == 15
