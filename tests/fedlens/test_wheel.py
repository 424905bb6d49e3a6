"""The wheel, installed where no checkout is seen, does everything from an empty folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

LINK = re.compile(r"http://127\.0\.0\.1:\d+/\?token=\S+")
PACKED = (
    "fedlens/data/embedded_data/mnist-sample.npz.xz",
    "fedlens/dashboard/widgets/labeller.css",
    "fedlens/dashboard/widgets/grid.js",
    "fedlens/deploy/templates/Dockerfile",
    "fedlens/store/migrations/env.py",
    "fedlens/simulations/presets/demo.toml",
)
NOT_PRODUCT = re.compile(r"mutat|fuzz|harness|benchmark|research|studies|tests/")
"""What patches noise out, breaks things or measures papers is not for users' machines."""


def folders(repository: Path) -> list[Path]:
    """`fedlens` and the folders that its links name."""
    links = [path for path in (repository / "fedlens").iterdir() if path.is_symlink()]
    return [repository / "fedlens", *(path.resolve() for path in links)]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, repository) -> Path:
    """Built from a copy, so that the checkout stays as it is."""
    source, built = (tmp_path_factory.mktemp(name) for name in ("source", "built"))
    for folder in folders(repository):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(folder, source / folder.name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(repository / name, source)
    for name in ("tests", "tools"):
        (source / name).mkdir()
        (source / name / "__init__.py").touch()
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"]
    build += ["--no-build-isolation", "--wheel-dir", str(built), str(source)]
    subprocess.run(build, check=True)
    (made,) = built.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def command(wheel, tmp_path_factory) -> Path:
    """``fedlens`` of a fresh environment that sees our dependencies, but not the checkout."""
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*install, "--no-deps", "--no-index", str(wheel)], check=True)
    (packages_folder,) = home.glob("lib/python*/site-packages")
    seen = [path for path in sys.path if path.endswith("site-packages")]
    (packages_folder / "dependencies.pth").write_text("\n".join(seen) + "\n")
    return home / "bin" / "fedlens"


def environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def run(command: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(command), *words],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.fixture(scope="module")
def settings(tiny) -> list[str]:
    """Of a run that takes a second; the noise repeats, so that transports can be compared."""
    changed = {**tiny, "privacy.fixed_seed": 3}
    return [word for key, value in changed.items() for word in ("--set", f"{key}={value}")]


@pytest.fixture(scope="module")
def folder(command, settings, tmp_path_factory) -> Path:
    """Empty, until a run was simulated there."""
    path = tmp_path_factory.mktemp("empty")
    done = run(command, path, "simulate", *settings, "--no-student", "--out", "here", "--json")
    assert json.loads(done.stdout.splitlines()[-1])["rounds"] == 2
    return path


def test_all_packages_and_their_data_are_in_it_and_nothing_else(wheel, repository):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"fedlens"}
    assert set(PACKED) <= set(names)
    assert [name for name in names if NOT_PRODUCT.search(name)] == []
    kinds = {".py", ".toml", ".js", ".css", ".html", ".xz"}
    for folder in folders(repository):
        root = "fedlens" if folder.name == "fedlens" else f"fedlens/{folder.name}"
        files = {
            f"{root}/{path.relative_to(folder).as_posix()}"
            for path in folder.rglob("*")
            if path.suffix in kinds and "__pycache__" not in path.parts
        }
        assert files <= set(names)


def test_it_is_the_installed_one_that_runs(command, tmp_path, repository):
    code = "import fedlens, fedlens.server as s; print(fedlens.__file__, s.__file__)"
    python = command.with_name("python")
    found = run(python, tmp_path, "-c", code).stdout
    assert str(repository) not in found and found.count("site-packages") == 2
    assert run(command, tmp_path, "--version").stdout.startswith("fedlens ")


def test_it_simulates_from_an_empty_folder(command, folder):
    assert (folder / "here" / "pictures" / "contact-sheet.png").exists()
    assert "entries" in run(command, folder, "ledger", "verify", "here").stdout


@pytest.mark.thorough
@pytest.mark.ray
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: fedlens[ray]")
def test_ray_carries_the_same_run(command, folder, settings):
    words = ("simulate", *settings, "--no-student", "--transport", "ray", "--out", "ray", "--json")
    there = json.loads(run(command, folder, *words).stdout.splitlines()[-1])
    here = json.loads((folder / "here" / "summary.json").read_text())
    assert there["model_sha256"] == here["model_sha256"]


def test_the_dashboard_answers(command, folder):
    process = subprocess.Popen(
        [str(command), "dashboard", "here", "--port", "0"],
        cwd=folder,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        link = next(found[0] for line in process.stderr if (found := LINK.search(line)))
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with browser.open(link, timeout=30) as answer:
            assert answer.status == 200 and b"<html" in answer.read().lower()
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)
