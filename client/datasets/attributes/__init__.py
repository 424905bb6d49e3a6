"""The registry of sources of private data: one name, one loader, one line each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from client.datasets.attributes.celeba import load_celeba
from client.datasets.attributes.cifar100 import load_cifar100
from client.datasets.attributes.data import PrivateDataError, Split
from client.datasets.attributes.digits import annotated, digits, greater_than_five, thickness
from client.datasets.attributes.eco import load_eco
from client.datasets.attributes.facescrub import load_facescrub
from client.datasets.attributes.household import load_household, load_simulated_household
from client.datasets.attributes.mixture import load_mixture
from client.datasets.attributes.orl import load_orl
from client.datasets.attributes.utkface import load_utkface

Loader = Callable[[str, str, Path | None, int], Split]
"""From a source's name, what stands behind its colon, the folder of data files, and a seed."""

SOURCES: dict[str, Loader] = {
    "mnist-greater5": digits(greater_than_five, "mnist"),
    "amnist": digits(annotated, "mnist"),
    "mnist-thickness": digits(thickness, "mnist"),
    "embedded-mnist-greater5": digits(greater_than_five, "embedded"),
    "embedded-amnist": digits(annotated, "embedded"),
    "embedded-mnist-thickness": digits(thickness, "embedded"),
    "household": load_household,
    "embedded-household": load_simulated_household,
    "orl": load_orl,
    "celeba": load_celeba,
    "facescrub": load_facescrub,
    "utkface": load_utkface,
    "cifar100": load_cifar100,
    "eco": load_eco,
    "mixture": load_mixture,
}


def load_private(name: str, data_dir: Path | str | None = None, seed: int = 0) -> Split:
    """The three parts of the source ``name`` (``kind`` or ``kind:argument``), dealt by ``seed``.

    Raises:
        PrivateDataError: there is no such source, or it has no secret to hide.
        DatasetError: its files are nowhere or damaged.
    """
    kind, _, argument = name.partition(":")
    if kind not in SOURCES:
        raise PrivateDataError(f"there is no source {name!r}; use one of {', '.join(SOURCES)}")
    return SOURCES[kind](name, argument, None if data_dir is None else Path(data_dir), seed)
