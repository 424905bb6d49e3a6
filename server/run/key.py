"""The run's key: nodes seed users' batches and a privatizer's noise with it."""

from __future__ import annotations

import hashlib
import secrets

from fedlens.foundation.errors import FedlensError
from fedlens.server.config.tree import Config
from fedlens.server.run.directory import RunDirectory

KEY_BYTES = 16
FILE = "run-key"


class RunKeyError(FedlensError, ValueError):
    """The file with a run's key holds something else."""


def new_key(config: Config) -> bytes:
    """A key of the operating system's entropy; in test mode one that follows from the seed."""
    if config.privacy.fixed_seed < 0:
        return secrets.token_bytes(KEY_BYTES)
    seed = f"{config.seed} {config.privacy.fixed_seed}".encode()
    return hashlib.blake2b(seed, digest_size=KEY_BYTES, person=b"run key").digest()


def load_key(config: Config, directory: RunDirectory) -> bytes:
    """The key of the run in ``directory``: drawn when it starts, the same when it goes on.

    Raises:
        RunKeyError: the file was damaged.
    """
    path = directory.path / FILE
    if not path.exists():
        directory.save(FILE, new_key(config).hex().encode(), private=True)
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii"))
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise RunKeyError(f"{path} is damaged; restore it from a backup")
    return key
