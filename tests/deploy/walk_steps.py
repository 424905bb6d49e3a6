"""The walk of the docs' page on deployment: its blocks, what it is carried out on, and how."""

from __future__ import annotations

import os
import re
import resource
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from PIL import Image

PAGE = "docs/how-to/deploy-a-federation.md"
BLOCK = re.compile(r"```(toml|bash)\n(.*?)```", re.DOTALL)
WARDS, PEOPLE, PICTURES = 3, 12, 4


@dataclass(frozen=True)
class Walk:
    """What the page has its reader do."""

    files: Mapping[str, str]
    install: tuple[str, ...]
    commands: tuple[str, ...]


def read_walk(repository: Path) -> Walk:
    """The page's files by name, and its two blocks of commands."""
    text = (repository / PAGE).read_text()
    blocks = BLOCK.findall(text.partition("## The walk")[2].partition("\n## ")[0])
    files = {t.splitlines()[0].removeprefix("# "): t for kind, t in blocks if kind == "toml"}
    install, commands = (t.splitlines() for kind, t in blocks if kind == "bash")
    return Walk(files, tuple(filter(None, install)), tuple(filter(None, commands)))


@dataclass
class Shell:
    """Carries command lines out in one folder; what a line exports holds for those that follow."""

    folder: Path
    environment: dict[str, str]
    seconds: float = 0.0
    """That all commands took together."""
    processor: float = 0.0
    """Processor seconds of them, without what runs on in the background."""
    exported: list[str] = field(default_factory=list)

    def __call__(self, command: str, *, fails: bool = False) -> str:
        """What a command printed; it must end well, or with ``fails`` badly."""
        if command.startswith("export "):
            self.exported.append(command)
        began, worked = time.monotonic(), processor_seconds()
        done = subprocess.run(
            ["bash", "-c", "\n".join([*self.exported, command])],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        took, worked = time.monotonic() - began, processor_seconds() - worked
        self.seconds, self.processor = self.seconds + took, self.processor + worked
        said = done.stdout + done.stderr
        print(f"{took:6.1f} s  ({worked:.1f} of a processor)  {command}")
        assert (done.returncode != 0) == fails, f"$ {command}\n{said}\n{logs(self.folder)}"
        return said


def processor_seconds() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def logs(folder: Path) -> str:
    """The end of each service's log."""
    found = sorted(folder.glob("federation/**/service.log"))
    return "\n".join(f"== {path}\n{path.read_text()[-4000:]}" for path in found)


def outside(hidden: tuple[str, ...] = ("FEDLENS_TEST_MODE",)) -> dict[str, str]:
    """The environment without what tests set."""
    return {name: value for name, value in os.environ.items() if name not in hidden}


def of_this_checkout(folder: Path, repository: Path, python: str) -> dict[str, str]:
    """An environment in which ``fedlens`` is the checkout's, run by ``python``."""
    programs = folder / ".bin"
    programs.mkdir()
    script = programs / "fedlens"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(python)} -m fedlens.cli "$@"\n')
    script.chmod(0o755)
    found = outside()
    paths = [str(repository), found.get("PYTHONPATH", "")]
    found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    found["PATH"] = os.pathsep.join([str(programs), found["PATH"]])
    return found


def draw_pictures(folder: Path) -> None:
    """Three wards' people with pictures of rings and bars, in folders by class."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[:32, :32] - 15.5
    for ward in range(1, WARDS + 1):
        for person in range(PEOPLE):
            for number in range(PICTURES):
                name = ("round", "straight")[number % 2]
                width = rng.uniform(1.5, 4)
                shape = np.hypot(x, y) - 9 if name == "round" else x + rng.uniform(-4, 4)
                pixels = (255 * (np.abs(shape) < width)).astype(np.uint8)
                home = folder / f"pictures/ward-{ward}" / name / f"person-{ward}-{person}"
                home.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(home / f"{number}.png")
