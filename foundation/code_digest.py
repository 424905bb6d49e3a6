"""Which code is installed, as one number that two machines can compare."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from fedlens.foundation.errors import FedlensError

NODE_PACKAGES = (
    *("accountant", "client", "fedlens", "foundation", "models", "privatizers", "simulations"),
)
"""All that a node's processes import; a server's code is no business of a node's."""


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
        for file in sorted(folder.rglob("*.py")):
            name = Path(package, file.relative_to(folder)).as_posix()
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest()


def _folder_of(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise CodeError(f"the package {package!r} of fedlens is not installed: install it anew")
    return Path(next(iter(spec.submodule_search_locations)))
