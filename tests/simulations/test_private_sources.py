"""Sources of private data: exact counts, honest splits, published layouts, clear refusals."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fedlens.data.attributes import load_private
from fedlens.data.attributes.thickness import NORMAL, THICK, THIN, AnnotatedRule, stroke_widths
from fedlens.data.registry import load
from fedlens.data.sensitive import sensitive_values_of
from fedlens.privatizers.private_data import PrivateData, PrivateDataError, Split, split_in_two
from fedlens_research.loaders.household import simulate_households
from fedlens_research.loaders.load_days import LoadDays, split_households

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("FEDLENS_SHARED", ROOT.parent / "shared")) / "data"
with_mnist = pytest.mark.skipif(
    not (SHARED / "mnist").is_dir(), reason="no mnist in FEDLENS_SHARED or ../shared"
)
with_household = pytest.mark.skipif(
    not (SHARED / "household").is_dir(), reason="no household in FEDLENS_SHARED or ../shared"
)
with_orl = pytest.mark.skipif(
    not (SHARED / "orl").is_dir(), reason="no orl in FEDLENS_SHARED or ../shared"
)


def _parts(split: Split) -> tuple[PrivateData, PrivateData, PrivateData]:
    return split.train, split.attack, split.test


def _points(count: int = 10) -> PrivateData:
    return PrivateData(
        name="points",
        records=torch.arange(2.0 * count).reshape(count, 2),
        utility=torch.arange(count) % 3,
        sensitive=torch.arange(count) % 2,
        side=torch.arange(count).float()[:, None],
        owners=torch.arange(count),
        utility_classes=3,
        sensitive_classes=2,
        low=0.0,
        high=2.0 * count,
    )


# ---- the annotated-MNIST rule and the distance transform


@with_mnist
def test_annotated_mnist_has_the_papers_images_by_the_papers_rules() -> None:
    """A rule for each part, as in the paper; the train parts are as it has them."""
    found = load("mnist", SHARED)
    parts = ((found.train_images, found.train_labels), (found.test_images, found.test_labels))
    kept = [AnnotatedRule.fit(*part).label(part[0] > 0, part[1]) for part in parts]
    counts = [[int((one == answer).sum()) for answer in (THIN, THICK)] for one in kept]
    assert counts == [[9_557, 19_011], [1_725, 2_956]]
    split = load_private("amnist", SHARED)
    known = torch.cat([split.train.sensitive, split.attack.sensitive])
    assert torch.bincount(known).tolist() == counts[0]
    assert split.train.records.shape[1:] == (1, 28, 28)


def test_one_rule_says_what_thick_is_in_training_and_in_test_images() -> None:
    split, raw = load_private("embedded-amnist"), load("embedded", None)
    rule = AnnotatedRule.fit(raw.train_images, raw.train_labels)
    for images, digits, parts in (
        (raw.train_images, raw.train_labels, (split.train, split.attack)),
        (raw.test_images, raw.test_labels, (split.test,)),
    ):
        said = rule.label(images > 0, digits)
        found = torch.cat([part.sensitive for part in parts])
        wanted = [int((said == answer).sum()) for answer in (THIN, THICK)]
        assert torch.bincount(found).tolist() == wanted


def test_the_rule_counts_ink_in_the_digits_own_row() -> None:
    images = np.zeros((3, 1, 28, 28), np.uint8)
    digits = np.array([1, 1, 1])
    for image, width in zip(images, (2, 4, 6), strict=True):
        image[0, 20, 3 : 3 + width] = 255
        image[0, 5] = 255  # another row, of no account
    rule = AnnotatedRule.fit(images, digits)
    assert rule.means[1] == 4
    assert rule.label(images > 0, digits).tolist() == [THIN, NORMAL, THICK]
    assert rule.label(images > 0, np.array([0, 0, 0])).tolist() == [NORMAL, NORMAL, NORMAL]


@pytest.mark.parametrize("width", [1, 2, 4, 6])
def test_a_stroke_has_about_its_own_width(width: int) -> None:
    image = np.zeros((1, 1, 28, 28), np.uint8)
    image[0, 0, 4:24, 10 : 10 + width] = 255
    found = stroke_widths(image)[0]
    assert found == pytest.approx(width, abs=1.05)
    assert stroke_widths(np.rot90(image, axes=(2, 3)))[0] == pytest.approx(found)
    assert stroke_widths(np.roll(image, 5, axis=3))[0] == pytest.approx(found)


def test_images_are_measured_each_on_its_own() -> None:
    thin, thick = np.zeros((2, 1, 28, 28), np.uint8)
    thin[0, 4:24, 10] = 255
    thick[0, 4:24, 8:13] = 255
    empty = np.zeros_like(thin)
    alone = [stroke_widths(image[None])[0] for image in (thin, thick, empty)]
    together = stroke_widths(np.stack([thin, thick, empty]))
    assert together.tolist() == alone
    assert alone[2] == 0 < alone[0] < alone[1]


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("embedded-mnist-greater5", (2, 10)),
        ("embedded-amnist", (10, 2)),
    ],
)
def test_embedded_digits_cover_the_same_code(name: str, classes: tuple[int, int]) -> None:
    split = load_private(name, seed=3)
    for part in _parts(split):
        assert (part.utility_classes, part.sensitive_classes) == classes
        assert float(part.records.min()) == part.low == -1
        assert float(part.records.max()) == part.high == 1
    again, other = load_private(name, seed=3), load_private(name, seed=4)
    assert torch.equal(split.train.records, again.train.records)
    assert not torch.equal(split.train.records, other.train.records)
    assert torch.equal(split.test.records, other.test.records)


def test_no_image_of_the_filters_part_is_in_the_attackers() -> None:
    split = load_private("embedded-mnist-greater5")
    seen = {image.numpy().tobytes() for image in split.train.records}
    assert not any(image.numpy().tobytes() in seen for image in split.attack.records)


def test_a_filter_is_attacked_by_the_rule_of_thickness_that_runs_train_by() -> None:
    dataset, test = load("embedded"), load_private("embedded-mnist-thickness").test
    of_runs = sensitive_values_of(dataset, "thickness").test
    assert test.sensitive.tolist() == of_runs.tolist()
    own = load_private("embedded-mnist-thickness")
    known = torch.cat([own.train.sensitive, own.attack.sensitive])
    assert int(known.sum()) == int(sensitive_values_of(dataset, "thickness").train.sum())


def test_thickness_hardly_depends_on_the_digit() -> None:
    split = load_private("embedded-mnist-thickness")
    scored, learned = (
        [float(part.sensitive[part.utility == digit].float().mean()) for digit in range(10)]
        for part in (split.test, split.train)
    )
    assert all(0.49 < share < 0.51 for share in scored), "medians of these images"
    # of 200 images' medians, in 500 others: a share has a deviation of .042
    assert all(0.37 < share < 0.63 for share in learned)


# ---- households


def test_no_household_is_in_two_parts() -> None:
    owners = [set(part.owners.tolist()) for part in _parts(load_private("embedded-household"))]  # type: ignore[union-attr]
    assert sum(len(one) for one in owners) == len(set.union(*owners)) == 12
    assert [len(one) for one in owners] == [6, 3, 3]


def test_sequences_are_the_households_own_hours() -> None:
    days = simulate_households(households=4, days=20)
    split = split_households("home", days, 0)
    for part in _parts(split):
        assert part.records.shape[1:] == (24, 1)
        assert part.sensitive.shape == part.utility.shape == (len(part), 24)
        assert part.owners is not None
        for owner in part.owners.unique().tolist():
            hours = days.power[days.household == owner].ravel() / np.float32(1000)
            present = days.active[days.household == owner].ravel()
            starts = []
            for row in torch.nonzero(part.owners == owner).flatten().tolist():
                record = part.records[row, :, 0].numpy()
                (start,) = [
                    at for at in range(len(hours) - 23) if (hours[at : at + 24] == record).all()
                ]
                assert (present[start : start + 24] == part.sensitive[row].numpy()).all()
                starts.append(start)
            assert all(later - first >= 24 for first, later in pairwise(starts))
            assert len({start % 24 for start in starts}) > 2, "sequences start at any hour"


def test_side_information_is_of_the_start_and_the_clock_only_on_demand() -> None:
    split = load_private("embedded-household")
    told = load_private("embedded-household:clock")
    assert split.train.side is not None
    assert told.train.side is not None
    assert split.train.side.shape[1:] == (19,)
    assert told.train.side.shape[1:] == (43,)
    assert torch.equal(told.train.side[:, :19], split.train.side)
    assert torch.equal(split.train.side.sum(1), torch.full((len(split.train),), 2.0))
    assert torch.equal(told.train.side[:, 19:].sum(1), torch.ones(len(split.train)))
    assert torch.equal(split.train.records, told.train.records)


def test_presence_shows_in_simulated_loads() -> None:
    days = simulate_households()
    assert days.power[days.active].mean() > 3 * days.power[~days.active].mean()
    assert 0.3 < days.active.mean() < 0.8
    assert np.array_equal(days.power, simulate_households().power)


def test_gaps_between_days_are_not_bridged() -> None:
    days = simulate_households(households=4, days=12)
    kept = days.day != 5
    cut = LoadDays(*(getattr(days, name)[kept] for name in LoadDays.__annotations__))
    for part in _parts(split_households("home", cut, 0)):
        for row in range(len(part)):
            assert part.owners is not None
            hours = days.power[days.household == int(part.owners[row])].ravel() / np.float32(1000)
            found = [
                at
                for at in range(len(hours) - 23)
                if (hours[at : at + 24] == part.records[row, :, 0].numpy()).all()
            ]
            assert len(found) == 1
            assert not any(24 * 5 <= hour < 24 * 6 for hour in range(found[0], found[0] + 24))


@with_household
def test_household_archive() -> None:
    split = load_private("household", SHARED)
    assert [len(part.owners.unique()) for part in _parts(split)] == [12, 6, 6]  # type: ignore[union-attr]
    for part in _parts(split):
        assert 0.4 < float(part.sensitive.float().mean()) < 0.5
        assert 0 < float(part.records.min()) < float(part.records.max()) < 7


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PrivateDataError, match="put it there, or name its folder"):
        load_private("household", tmp_path)
    (tmp_path / "household.npz").write_bytes(b"not an archive")
    with pytest.raises(PrivateDataError, match="no readable archive"):
        load_private("household", tmp_path)
    days = np.zeros(3, np.int16)
    np.savez(
        tmp_path / "household.npz",
        power_w=np.zeros((3, 23), np.float32),
        active=np.zeros((3, 24), bool),
        household=days,
        day_of_year=days,
        weekday=days,
    )
    with pytest.raises(PrivateDataError, match="power_w has shape"):
        load_private("household", tmp_path)
    with pytest.raises(PrivateDataError, match="4"):
        split_households("home", simulate_households(households=3, days=5), 0)
    with pytest.raises(PrivateDataError, match=":clock"):
        load_private("embedded-household:moon")


def _eco(root: Path, houses: int = 4, days: int = 4) -> None:
    """A few days in the published layout; power is 100 W times the hour, presence is evening."""
    first = date(2012, 6, 29)
    seconds = np.repeat(np.arange(24) * 100.0, 3600)
    seconds[:10] = -1
    presence = ["1" if hour >= 17 else "0" for hour in range(24) for _ in range(3600)]
    for house in range(1, houses + 1):
        meter = root / f"{house:02d}_sm_csv" / f"{house:02d}"
        seen = root / f"{house:02d}_occupancy_csv"
        meter.mkdir(parents=True)
        seen.mkdir()
        rows = []
        for number in range(days):
            day = first + timedelta(days=number)
            text = "\n".join(f"{watts},0,0" for watts in seconds)
            (meter / f"{day.isoformat()}.csv").write_text(text)
            rows.append(",".join([day.strftime("%d-%b-%Y"), *presence]))
        (seen / f"{house:02d}_summer.csv").write_text("\n".join(rows))


def test_eco_layout(tmp_path: Path) -> None:
    _eco(tmp_path)
    split = load_private(f"eco:{tmp_path}")
    part = split.train
    assert part.owners is not None
    assert len(set(part.owners.tolist())) == 2
    hours = (part.records[..., 0] * 10).round().int()
    assert bool(((hours[:, 1:] - hours[:, :-1]) % 24 == 1).all())
    assert torch.equal(part.sensitive, (hours >= 17).long())
    assert part.side is not None and part.side.shape[1] == 7 + 12
    told = load_private(f"eco:{tmp_path},clock=yes").train.side
    assert told is not None and torch.equal(told[:, 19:].argmax(1), hours[:, 0].long())
    with pytest.raises(PrivateDataError, match="clock=maybe is absent"):
        load_private(f"eco:{tmp_path},clock=maybe")
    (tmp_path / "01_sm_csv" / "01" / "2012-06-30.csv").write_text("1,2\n")
    with pytest.raises(PrivateDataError, match="it needs one a second"):
        load_private(f"eco:{tmp_path}")
    with pytest.raises(PrivateDataError, match="no day with both"):
        load_private(f"eco:{tmp_path / '01_sm_csv'}")


# ---- pictures in published layouts


def _picture(path: Path, shade: int, size: tuple[int, int] = (36, 40)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (shade, shade, shade)).save(path)


def _orl(path: Path, people: int = 3) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for person in range(1, people + 1):
            for number in range(1, 11):
                content = io.BytesIO()
                Image.new("L", (92, 112), 20 * person + number).save(content, format="PPM")
                archive.writestr(f"s{person}/{number}.pgm", content.getvalue())


def test_orl_layout(tmp_path: Path) -> None:
    _orl(tmp_path / "orl_faces.zip")
    split = load_private("orl:16", tmp_path)
    assert [len(part) for part in _parts(split)] == [12, 9, 9]
    shades = torch.cat([part.records.flatten(1).mean(1) for part in _parts(split)])
    assert len(shades.unique()) == 30, "every picture is in one part"
    assert torch.equal(split.test.utility, split.test.sensitive)
    person = (split.test.records.flatten(1).mean(1) + 1) * 127.5 // 20 - 1
    assert torch.equal(person.long(), split.test.utility)
    with pytest.raises(PrivateDataError, match="side"):
        load_private("orl:7", tmp_path)
    (tmp_path / "orl_faces.zip").write_bytes(b"PK")
    with pytest.raises(PrivateDataError, match="no readable zip"):
        load_private("orl", tmp_path)


@with_orl
def test_orl_faces() -> None:
    split = load_private("orl", SHARED)
    assert [len(part) for part in _parts(split)] == [160, 120, 120]
    assert split.train.utility_classes == 40


def _celeba(root: Path) -> None:
    names = ["Bald", "Male", "Smiling"]
    lines, parts = [], []
    for number in range(1, 13):
        file = f"{number:06d}.jpg"
        _picture(root / "img_align_celeba" / file, 20 * number)
        male, smiling = number % 2, number // 2 % 2
        lines.append(f"{file} -1 {2 * male - 1:2d} {2 * smiling - 1:2d}")
        parts.append(f"{file} {(number - 1) // 4}")
    (root / "list_attr_celeba.txt").write_text("\n".join(["12", " ".join(names), *lines]) + "\n")
    (root / "list_eval_partition.txt").write_text("\n".join(parts))


def test_celeba_layout(tmp_path: Path) -> None:
    _celeba(tmp_path)
    split = load_private(f"celeba:{tmp_path},side=16")
    assert [len(part) for part in _parts(split)] == [4, 4, 4]
    assert split.train.records.shape[1:] == (3, 16, 16)
    both = zip(split.train.utility.tolist(), split.train.sensitive.tolist(), strict=True)
    assert sorted(both) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    grey = split.attack.records.flatten(1).mean(1)
    assert float((grey - (100 / 127.5 - 1)).abs().min()) < 0.02
    assert split.train.owners is None
    (tmp_path / "identity_CelebA.txt").write_text(
        "\n".join(f"{number:06d}.jpg {number // 3}" for number in range(1, 13))
    )
    again = load_private(f"celeba:{tmp_path},utility=Smiling,sensitive=Male,side=16,limit=3")
    assert [len(part) for part in _parts(again)] == [3, 3, 3]
    assert again.train.owners is not None
    assert len(set(again.train.owners.tolist())) == 2, "of four pictures two are of one person"


def test_an_absent_attribute_is_named(tmp_path: Path) -> None:
    _celeba(tmp_path)
    with pytest.raises(
        PrivateDataError,
        match=r"no column 'Hat'.*there are Bald, Male, Smil",
    ):
        load_private(f"celeba:{tmp_path},sensitive=Hat")
    with pytest.raises(PrivateDataError, match="nothing to hide"):
        load_private(f"celeba:{tmp_path},sensitive=Bald,side=16")
    with pytest.raises(PrivateDataError, match="'hue=red' is no option"):
        load_private(f"celeba:{tmp_path},hue=red")
    with pytest.raises(PrivateDataError, match="side=2"):
        load_private(f"celeba:{tmp_path},side=2")
    (tmp_path / "img_align_celeba" / "000002.jpg").write_bytes(b"torn")
    (torn,) = (note for note in load_private(f"celeba:{tmp_path}").notes if "left out" in note)
    assert "1 left out, no picture of a known kind" in torn and "000002.jpg" in torn


def test_facescrub_layout(tmp_path: Path) -> None:
    for folder, names in (("actors", "ABC"), ("actresses", "DE")):
        for place, name in enumerate(names):
            for number in range(10):
                _picture(tmp_path / folder / "faces" / name / f"{name}_{number}.png", 50 * place)
    split = load_private(f"facescrub:{tmp_path},side=16")
    assert [len(part) for part in _parts(split)] == [20, 20, 10]
    for part in _parts(split):
        assert torch.equal(part.sensitive, (part.utility >= 3).long())
    assert split.train.utility_classes == 5
    turned = load_private(f"facescrub:{tmp_path},utility=gender,sensitive=person,side=16")
    assert torch.equal(turned.test.utility, split.test.sensitive)
    assert torch.equal(turned.test.sensitive, split.test.utility)
    with pytest.raises(PrivateDataError, match="utility=hair is absent"):
        load_private(f"facescrub:{tmp_path},utility=hair")
    with pytest.raises(PrivateDataError, match="is no folder"):
        load_private(f"facescrub:{tmp_path / 'actors'}")


def test_utkface_layout(tmp_path: Path) -> None:
    for age in range(10, 70):
        name = f"{age}_{age % 2}_{age % 5}_2017010{age}.jpg.chip.jpg"
        _picture(tmp_path / name, age)
    _picture(tmp_path / "39_1_20170116174525125.jpg.chip.jpg", 9)  # lacks its race, as published
    split = load_private(f"utkface:{tmp_path},side=16")
    assert sum(len(part) for part in _parts(split)) == 60
    assert split.train.sensitive_classes == 5
    ages = load_private(f"utkface:{tmp_path},utility=age,side=16")
    shade = ((ages.test.records.flatten(1).mean(1) + 1) * 127.5).round()
    expected = torch.bucketize(shade, torch.tensor([20.0, 35.0, 55.0]), right=True)
    assert torch.equal(ages.test.utility, expected)
    with pytest.raises(PrivateDataError, match="sensitive=hair is absent"):
        load_private(f"utkface:{tmp_path},sensitive=hair")
    with pytest.raises(PrivateDataError, match="AGE_GENDER_RACE"):
        load_private(f"utkface:{ROOT / 'tests'}")


def test_cifar100_layout(tmp_path: Path) -> None:
    for name, count in (("train.bin", 40), ("test.bin", 10)):
        records = np.zeros((count, 3074), np.uint8)
        records[:, 1] = 5 * (np.arange(count) % 2)
        records[:, 0] = records[:, 1] // 5
        records[:, 2 : 2 + 1024] = 255  # the red plane
        (tmp_path / name).write_bytes(records.tobytes())
    split = load_private(f"cifar100:{tmp_path}")
    assert [len(part) for part in _parts(split)] == [20, 20, 10]
    assert torch.equal(split.test.sensitive, split.test.utility)
    assert split.test.sensitive_names == ("0", "5") and split.test.utility_names == ("0", "1")
    assert bool((split.test.records[:, 0] == 1).all())
    assert bool((split.test.records[:, 1:] == -1).all())
    (tmp_path / "test.bin").write_bytes(b"12345")
    with pytest.raises(PrivateDataError, match="whole number of records"):
        load_private(f"cifar100:{tmp_path}")


# ---- what is refused, and what a split promises


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("imagenet", "no data set 'imagenet': choose one of celeba, svhn"),
        ("celeba", "needs a path"),
        ("mnist", "mnist: has no attribute to hide"),
        ("celeba:/nowhere/at/all", "does not exist"),
        ("embedded-amnist:7", "nothing may follow"),
    ],
)
def test_sources_that_are_not_there(name: str, text: str) -> None:
    with pytest.raises(PrivateDataError, match=text):
        load_private(name)


def _with(**changes: object) -> Callable[[], object]:
    return lambda: replace(_points(), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            _with(sensitive_classes=1, sensitive=torch.zeros(10, dtype=torch.int64)),
            "nothing to hide",
        ),
        (_with(sensitive=torch.arange(10)), r"sensitive runs from 0 to 9; with 2 classes"),
        (_with(utility=torch.zeros(9, dtype=torch.int64)), "utility is"),
        (_with(sensitive=torch.zeros(10)), "sensitive is torch.float32"),
        (_with(side=torch.zeros(3, 1)), "side has 3 rows for 10 records"),
        (_with(records=torch.full((10, 2), float("nan"))), "not finite"),
        (lambda: _points().take([]), "no records are left"),
    ],
)
def test_impossible_data_are_refused(make: Callable[[], object], text: str) -> None:
    with pytest.raises(PrivateDataError, match=text):
        make()


def test_a_part_with_one_sensitive_class_is_refused() -> None:
    data = _points()
    alike = data.take(data.sensitive == 1)
    with pytest.raises(
        PrivateDataError, match="every record of the attack part has sensitive value 1"
    ):
        Split(data, alike, data)


def test_taking_rows_keeps_everything_together() -> None:
    data = _points()
    for rows in ([7, 2], torch.tensor([7, 2])):
        taken = data.take(rows)
        assert taken.records[:, 0].tolist() == [14.0, 4.0]
        assert taken.utility.tolist() == [1, 2]
        assert taken.sensitive.tolist() == [1, 0]
        assert taken.owners is not None
        assert taken.owners.tolist() == [7, 2]
    batch = data.batch(slice(0, 4), choice=torch.ones(4, 1))
    assert batch.side is not None
    assert batch.side[:, 0].tolist() == [0, 1, 2, 3]
    assert batch.choice is not None


def test_two_parts_share_nothing() -> None:
    first, second = split_in_two(_points(), 0.3, 5)
    assert first.owners is not None
    assert second.owners is not None
    assert len(first) == 3
    assert sorted([*first.owners.tolist(), *second.owners.tolist()]) == list(range(10))
