"""Every package that an installed fedlens needs has a known licence that goes with Apache-2.0."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("attacks", "datasets", "export", "postgres", "ray", "traces")
CLASSIFIER = "License :: OSI Approved :: "
FORBIDDEN = re.compile(r"(?<!L)GPL|affero|non-?commercial|cc-by-nc", re.IGNORECASE)
LESSER = re.compile(r"LGPL|lesser|library general", re.IGNORECASE)
STATED_IN_FILES_ALONE = {"pgserver": "Apache-2.0"}


def required(package: Distribution, extras: tuple[str, ...]) -> Iterator[Requirement]:
    for requirement in map(Requirement, package.requires or ()):
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def installed_with(name: str, extras: tuple[str, ...]) -> dict[str, Distribution]:
    """Every installed package that ``name`` with ``extras`` needs, by its name."""
    found: dict[str, Distribution] = {}
    waiting = [(name, extras)]
    while waiting:
        package, wanted = waiting.pop()
        key = canonicalize_name(package)
        try:
            found[key] = distribution(package)
        except PackageNotFoundError:
            continue  # of another system
        waiting += [
            (one.name, tuple(one.extras))
            for one in required(found[key], wanted)
            if canonicalize_name(one.name) not in found
        ]
    return found


def licence_of(package: Distribution) -> str:
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return str(expression)
    classifiers = [c for c in metadata.get_all("Classifier") or () if c.startswith(CLASSIFIER)]
    text = "; ".join(classifiers) or str(metadata.get("License") or "").strip()
    return text or STATED_IN_FILES_ALONE.get(canonicalize_name(package.name), "")


def test_every_licence_is_known_and_goes_with_ours():
    packages = installed_with("fedlens", EXTRAS)
    assert {"fedlens", "flwr", "torch", "grpcio", "cryptography", "cffi"} <= set(packages)
    licences = {name: licence_of(package) for name, package in packages.items()}
    assert [name for name, licence in licences.items() if not licence] == []
    forbidden = {
        name: licence
        for name, licence in licences.items()
        if FORBIDDEN.search(licence) and not LESSER.search(licence) and " OR " not in licence
    }
    assert forbidden == {}
