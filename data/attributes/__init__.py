"""Private data: records with an attribute to keep and one to hide, in three parts."""

from __future__ import annotations

from pathlib import Path

from fedlens.data.dataset import DatasetError
from fedlens.data.registry import DATASETS
from fedlens.foundation.errors import WrongUse
from fedlens.privatizers.private_data import PrivateDataError, Split


def load_private(name: str, data_dir: Path | str | None = None, seed: int = 0) -> Split:
    """The three parts of the data set ``name`` (``kind`` or ``kind:argument``), dealt by ``seed``.

    Raises:
        PrivateDataError: there is no such data set, its files are nowhere or damaged, or it has
            nothing to hide.
        PluginError: it is another package's and cannot be loaded.
    """
    from fedlens.data.formats.gathered import split_records

    kind, _, argument = name.partition(":")
    try:
        spec = DATASETS[kind]
        if spec.private is not None:
            return spec.private(name, argument, None if data_dir is None else Path(data_dir), seed)
        if spec.format is not None:
            return split_records(name, seed)
    except PrivateDataError:
        raise
    except (DatasetError, WrongUse) as error:
        raise PrivateDataError(str(error)) from None
    raise PrivateDataError(f"{name}: has no attribute to hide; choose another data set")
