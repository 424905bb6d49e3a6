"""Which code is installed, as one number that two machines can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from fedlens.foundation.errors import FedlensError

NODE_PACKAGES = (
    "fedlens",
    *("fedlens.accountant", "fedlens.client", "fedlens.data"),
    *("fedlens.deploy", "fedlens.foundation", "fedlens.models", "fedlens.privatizers"),
    "fedlens.simulations",
)
"""Packages of fedlens that a node's processes import; a server's code is no business of a node's.

`fedlens` itself stands for its own files, without the packages in it.
"""


class CodeError(FedlensError):
    """The installed code is not there, or is not what was agreed."""


def code_sha256(packages: Sequence[str] = NODE_PACKAGES) -> str:
    """SHA-256 (hex) over the names and contents of all Python files of ``packages``.

    A checkout and a wheel of the same commit give the same number. It tells an edited or another
    version apart, to people who are honest about their own machine: who changes the code can
    change this function too.

    Raises:
        CodeError: a package is not installed.
    """
    digest = hashlib.sha256()
    for package in sorted(packages):
        folder = _folder_of(package)
        for file in sorted(_files_in(folder, whole=package != "fedlens")):
            name = Path(package, file.relative_to(folder)).as_posix()
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def _files_in(folder: Path, *, whole: bool) -> Iterable[Path]:
    return folder.rglob("*.py") if whole else folder.glob("*.py")


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise CodeError(f"the package {package!r} is not installed: install fedlens again")
    return Path(next(iter(spec.submodule_search_locations)))
