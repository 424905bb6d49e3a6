"""What releases with one key tell, counted beside it, on real files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from fedlens.api.filter_noise import KeyedNoise, Releaser
from fedlens.api.release_budget import ReleaseBudget, _digest
from fedlens.cli import main
from fedlens.foundation.files import write_durably
from fedlens.privatizers.attacks.filter_files import save_filter
from fedlens.privatizers.networks.masks import MaskFilter
from fedlens.privatizers.networks.releasers import ConvReleaser
from fedlens.privatizers.noise_field import NoiseField

SIDE, CAPACITY = 16, 6.0


def network(seed: int = 0) -> ConvReleaser:
    source = torch.Generator().manual_seed(seed)
    net = ConvReleaser((1, SIDE, SIDE), 2, code=4, capacity=CAPACITY, generator=source)
    with torch.no_grad():
        net.encode.weight *= 400  # so that unlike pictures have codes far apart
    return net


def kept(folder: Path, seed: int = 0) -> Path:
    return save_filter(network(seed), (1, SIDE, SIDE), folder / f"{seed}.safetensors")


def unlike(folder: Path, count: int) -> Path:
    """Pictures of noise, whose codes lie far apart."""
    folder.mkdir()
    for number in range(count):
        drawn = np.random.default_rng(number).integers(0, 256, (SIDE, SIDE), dtype=np.uint8)
        Image.fromarray(drawn).save(folder / f"{number}.png")
    return folder


def burst(folder: Path, count: int) -> Path:
    """One picture with one pixel moved."""
    folder.mkdir()
    for number in range(count):
        drawn = np.random.default_rng(5).integers(0, 250, (SIDE, SIDE), dtype=np.uint8)
        drawn[3, number] += 1
        Image.fromarray(drawn).save(folder / f"{number}.png")
    return folder


def applied(*arguments: Any) -> int:
    return main(["privatizer", "apply", *map(str, arguments)])


def last(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_unlike_pictures_spend_the_budget_and_a_burst_hardly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = kept(tmp_path), tmp_path / "device.key"
    shots = burst(tmp_path / "shots", 8)
    assert applied(path, shots, tmp_path / "a", "--key", key, "--budget", 20, "--json") == 0
    told = last(capsys)
    assert told["records"] == 8 and CAPACITY <= told["nats_told_at_most"] < 1.2 * CAPACITY
    others = unlike(tmp_path / "others", 6)
    assert applied(path, others, tmp_path / "b", "--key", key, "--json") == 0
    more = last(capsys)
    assert more["records"] == 2, "20 nats are three unlike pictures"
    assert told["nats_told_at_most"] < more["nats_told_at_most"] <= 20
    assert any("4 left out, for the budget is spent" in note for note in more["notes"])
    assert len(list((tmp_path / "b").iterdir())) == 2


def test_what_was_released_goes_out_again_as_it_was_and_costs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key, source = kept(tmp_path), tmp_path / "device.key", unlike(tmp_path / "in", 2)
    budget = ("--key", key, "--budget", 2.2 * CAPACITY, "--json")
    assert applied(path, source, tmp_path / "one", *budget) == 0
    first = last(capsys)
    assert applied(path, source, tmp_path / "two", *budget) == 0
    assert last(capsys)["nats_told_at_most"] == first["nats_told_at_most"]
    for number in range(2):
        one, two = (tmp_path / name / f"{number}.png" for name in ("one", "two"))
        assert one.read_bytes() == two.read_bytes()


def test_another_filter_of_the_same_key_spends_from_the_same_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, source = tmp_path / "device.key", unlike(tmp_path / "in", 1)
    limit = ("--key", key, "--budget", 1.5 * CAPACITY, "--json")
    assert applied(kept(tmp_path, 0), source, tmp_path / "one", *limit) == 0
    assert last(capsys)["records"] == 1
    assert applied(kept(tmp_path, 1), source, tmp_path / "two", *limit) == 0
    assert last(capsys)["records"] == 0 and not list((tmp_path / "two").iterdir())


def test_an_archive_goes_whole_or_not_at_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key = kept(tmp_path), tmp_path / "device.key"
    drawn = np.random.default_rng(0).integers(0, 256, (3, SIDE, SIDE), dtype=np.uint8)
    np.save(tmp_path / "in.npy", drawn)
    given = (path, tmp_path / "in.npy", tmp_path / "out.npy", "--key", key)
    assert applied(*given, "--budget", 2.2 * CAPACITY) == 2
    assert "1 of 3 records do not fit the budget of 13.2 nats" in capsys.readouterr().err
    assert not (tmp_path / "out.npy").exists()
    assert applied(*given, "--budget", 3.3 * CAPACITY) == 0, "what was refused was not counted"


def test_the_count_is_on_disk_before_a_release_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, key, source = kept(tmp_path), tmp_path / "device.key", unlike(tmp_path / "in", 1)
    seen: list[bool] = []
    before = Releaser.release

    def looking(self: Releaser, records: torch.Tensor) -> torch.Tensor:
        seen.append(Path(f"{key}.told").exists())
        return before(self, records)

    monkeypatch.setattr(Releaser, "release", looking)
    assert applied(path, source, tmp_path / "out", "--key", key, "--budget", 20) == 0
    told = Path(f"{key}.told")
    assert seen == [True] and told.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("asked", [(), ("--budget", 20)])
def test_a_count_that_was_deleted_is_missed_and_nothing_goes_out(
    asked: tuple[Any, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key, source = kept(tmp_path), tmp_path / "device.key", unlike(tmp_path / "in", 1)
    told = Path(f"{key}.told")
    assert applied(path, source, tmp_path / "one", "--key", key, "--budget", 20) == 0
    content = told.read_bytes()
    told.unlink()
    assert applied(path, source, tmp_path / "two", "--key", key, *asked) == 2
    assert f"{told}: is gone" in capsys.readouterr().err
    assert not list((tmp_path / "two").glob("*"))
    told.write_bytes(content)
    assert applied(path, source, tmp_path / "three", "--key", key, *asked) == 0


@pytest.mark.parametrize("fault", ["cannot be read", "fails afterwards"])
def test_a_count_is_marked_where_an_error_comes_first(
    fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key, source = kept(tmp_path), tmp_path / "device.key", unlike(tmp_path / "in", 1)
    told = Path(f"{key}.told")
    given = (path, source, tmp_path / "out", "--key", key, "--budget", 20)
    if fault == "cannot be read":
        told.write_bytes(b"{")
        assert applied(*given) == 2
    else:
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr("fedlens.api.release_budget.write_durably", _written_and_stopped)
            ReleaseBudget(told, NoiseField(b"k" * 32, 4), 3.0, 20.0).take(
                torch.zeros(1, 1, SIDE, SIDE), torch.zeros(1, 4), whole=True
            )
    capsys.readouterr()
    told.unlink()
    assert applied(*given) == 2
    assert f"{told}: is gone" in capsys.readouterr().err


def _written_and_stopped(path: Path, content: bytes, **options: Any) -> None:
    write_durably(path, content, **options)
    raise KeyboardInterrupt


def test_a_budget_that_was_refused_leaves_a_key_as_it_was(tmp_path: Path) -> None:
    path, key, source = kept(tmp_path), tmp_path / "device.key", tmp_path / "in.npy"
    np.save(source, np.zeros((1, SIDE, SIDE), np.uint8))
    given = (path, source, tmp_path / "out.npy", "--key", key)
    assert applied(*given, "--budget", 0.1) == 2
    assert applied(*given) == 0, "nothing was counted yet"


def test_near_records_go_out_with_nearly_the_same_noise() -> None:
    noise, source = KeyedNoise(network().eval(), b"k" * 32), torch.Generator().manual_seed(0)
    record = torch.rand(1, 1, SIDE, SIDE, generator=source)
    near, far = record + 1e-6, torch.rand(1, 1, SIDE, SIDE, generator=source)
    drawn = [noise(one, (4,)) for one in (record, near, far)]
    assert 0 < float((drawn[0] - drawn[1]).norm()) < 0.4
    assert float((drawn[0] - drawn[2]).norm()) > 0.5


def told_of(**changes: Any) -> bytes:
    """A count of the filter with a key of zeros, with something wrong in it."""
    noise = KeyedNoise(network().eval(), bytes(32)).field
    assert noise is not None
    one = {"nats": 1.0, "records": ["a"], "codes": [[0.0] * 4]} | changes
    return json.dumps({"limit": 9, "filters": {_digest(noise.key, None): one}}).encode()


@pytest.mark.parametrize(
    ("content", "limit", "message"),
    [
        (None, "0", "--budget 0: give nats above 0"),
        (None, "nan", "--budget nan: give nats above 0"),
        (b"[]", None, "says not what was released with its key"),
        (b'{"limit": 3}', None, "says not what was released with its key"),
        (b'{"limit": 3, "filters": {"a": 1}}', None, "says not what was released with its key"),
        (b'{"limit": NaN, "filters": {}}', None, "says not what was released with its key"),
        (b'{"limit": Infinity, "filters": {}}', None, "says not what was released with its key"),
        (told_of(nats=math.nan), None, "says not what was released with its key"),
        (told_of(nats=-5.0), None, "says not what was released with its key"),
        (told_of(codes=[[1.0, 2.0]]), None, "says not what was released with its key"),
        (told_of(codes=[]), None, "says not what was released with its key"),
        (b'{"limit": 9, "filters": {"a": {"nats": 0}}}', None, "says not what was released"),
    ],
)
def test_a_budget_or_a_count_that_is_none_is_refused(
    content: bytes | None, limit: str | None, message: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path, key, source = kept(tmp_path), tmp_path / "device.key", unlike(tmp_path / "in", 1)
    key.write_bytes(bytes(32))
    key.chmod(0o600)
    if content is not None:
        (tmp_path / "device.key.told").write_bytes(content)
    asked = [] if limit is None else ["--budget", limit]
    assert applied(path, source, tmp_path / "out", "--key", key, *asked) == 2
    assert message in capsys.readouterr().err


def test_a_filter_without_a_certificate_and_a_budget_without_a_key_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = torch.ones(1, SIDE, SIDE)
    net = MaskFilter(0.1 * whole, whole.bool(), -whole)
    path = save_filter(net, (1, SIDE, SIDE), tmp_path / "mask.safetensors")
    source, key = unlike(tmp_path / "in", 1), tmp_path / "device.key"
    assert applied(path, source, tmp_path / "out", "--key", key, "--budget", 9) == 2
    assert "certifies none: its codes have no bound" in capsys.readouterr().err
    assert applied(path, source, tmp_path / "out", "--budget", 9) == 2
    assert "is counted beside a key; name one" in capsys.readouterr().err


def test_a_link_to_a_key_spends_from_the_keys_own_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key, source = kept(tmp_path), tmp_path / "device.key", unlike(tmp_path / "in", 2)
    limit = 1.2 * CAPACITY
    assert applied(path, source, tmp_path / "a", "--key", key, "--budget", limit, "--json") == 0
    assert last(capsys)["records"] == 1
    (tmp_path / "link.key").symlink_to(key)
    assert applied(path, source, tmp_path / "b", "--key", tmp_path / "link.key", "--json") == 0
    assert last(capsys)["records"] == 1, "the one that was released before"


def test_what_went_before_the_first_budget_is_said_not_to_be_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, key, source = kept(tmp_path), tmp_path / "device.key", unlike(tmp_path / "in", 1)
    said = "before its first budget is not counted"
    for number, budget in enumerate(([], ["--budget", 20], [])):
        given = (source, tmp_path / f"out{number}", "--key", key, *budget, "--json")
        assert applied(path, *given) == 0
        assert any(said in note for note in last(capsys)["notes"]) == (number == 1)


class SeriesNet(torch.nn.Module):
    """A filter of series with a bounded code, as a plug-in may be."""

    radius, coded, noise_shape, choices = 2.0, 4, (4,), 0

    def channel(self, records: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        return 0.5 * records[:, :4, 0] + noise

    def forward(self, records: torch.Tensor, noise: torch.Tensor, choice: object) -> torch.Tensor:
        return self.channel(records, noise)[..., None]


def test_series_are_counted_too(tmp_path: Path) -> None:
    noise = KeyedNoise(SeriesNet().eval(), bytes(32))
    assert noise.field is not None
    budget = ReleaseBudget(tmp_path / "told", noise.field, 2.0, 100.0)
    Releaser(SeriesNet().eval(), (4, 1), 1.0, noise, budget).release_series(np.ones((1, 4)))
    assert budget.spent()[0] > 0
