"""Sources of private data by name: ours, and those of other packages that are installed.

Adding one is a file with a `PrivateSource` and a line here.
"""

from __future__ import annotations

from pathlib import Path

from fedlens.data.spec import PrivateSource
from fedlens.foundation.errors import WrongUse
from fedlens.foundation.registry import Registry
from fedlens.privatizers.private_data import PrivateDataError, Split

_HERE = "fedlens.data.attributes"
SOURCES: Registry[PrivateSource] = Registry(
    "source of private data",
    "fedlens.private_sources",
    {
        "mnist-greater5": f"{_HERE}.digits:MNIST_GREATER5",
        "amnist": f"{_HERE}.digits:AMNIST",
        "mnist-thickness": f"{_HERE}.digits:MNIST_THICKNESS",
        "embedded-mnist-greater5": f"{_HERE}.digits:EMBEDDED_GREATER5",
        "embedded-amnist": f"{_HERE}.digits:EMBEDDED_AMNIST",
        "embedded-mnist-thickness": f"{_HERE}.digits:EMBEDDED_THICKNESS",
        "household": f"{_HERE}.household:HOUSEHOLD",
        "embedded-household": f"{_HERE}.household:SIMULATED_HOUSEHOLD",
        "orl": f"{_HERE}.orl:ORL",
        "celeba": f"{_HERE}.celeba:CELEBA",
        "facescrub": f"{_HERE}.facescrub:FACESCRUB",
        "utkface": f"{_HERE}.utkface:UTKFACE",
        "cifar100": f"{_HERE}.cifar100:CIFAR100",
        "eco": f"{_HERE}.eco:ECO",
        "folder": "fedlens.data.labelled.folder:LABELLED_FOLDER",
        "npz": "fedlens.data.labelled.arrays:LABELLED_ARRAYS",
        "series": "fedlens.data.labelled.series:LABELLED_SERIES",
        "mixture": f"{_HERE}.mixture:MIXTURE",
    },
)


def load_private(name: str, data_dir: Path | str | None = None, seed: int = 0) -> Split:
    """The three parts of the source ``name`` (``kind`` or ``kind:argument``), dealt by ``seed``.

    Raises:
        PrivateDataError: there is no such source, or its data has nothing to hide.
        DatasetError: its files are nowhere or damaged.
        PluginError: it is another package's and cannot be loaded.
    """
    kind, _, argument = name.partition(":")
    try:
        source = SOURCES[kind]
    except WrongUse as error:
        raise PrivateDataError(str(error)) from None
    return source.load(name, argument, None if data_dir is None else Path(data_dir), seed)
