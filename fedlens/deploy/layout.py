"""The folder of one machine of a federation, and the ``deploy.toml`` in it.

A folder is one of three kinds, which its ``role`` says: ``superlink`` (the server's machine),
``node`` (a machine that holds users' records) and ``operator`` (who starts runs). Paths in the file
are relative to the folder, so that it can be moved.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedlens.foundation.errors import WrongUse
from fedlens.foundation.toml import parse_toml

MEMORY = Path("/dev/shm")  # noqa: S108  (the folder is made for its owner alone, and checked)


@contextmanager
def ephemeral_folder(folder: Path, named: str) -> Iterator[Path]:
    """A folder that is empty now and gone when the context ends, for its owner alone (0700).

    What a process that was killed left behind is removed before anything new is written.

    Args:
        folder: the deployment's, from which the place is named.
        named: the ``state`` setting; empty for memory.

    Raises:
        DeployError: the place belongs to another user.
    """
    place = state_place(folder, named)
    _remove(place)
    try:
        place.mkdir(mode=0o700, parents=named != "")
    except FileExistsError:
        raise DeployError(f"{place} belongs to another user: set state in deploy.toml") from None
    try:
        yield place
    finally:
        _remove(place)


def state_place(folder: Path, named: str) -> Path:
    """Where the state of a deployment's folder lies."""
    if named:
        return (folder / named).absolute()
    memory = MEMORY if os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    tag = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
    return memory / f"fedlens-{os.getuid()}-{tag}"


def wipe_state(folder: Path, named: str) -> None:
    """Remove what processes that were killed left, once none of the folder's runs."""
    _remove(state_place(folder, named))


def _remove(place: Path) -> None:
    try:
        status = place.lstat()
    except FileNotFoundError:
        return
    if status.st_uid == os.getuid() and stat.S_ISDIR(status.st_mode):
        shutil.rmtree(place, ignore_errors=True)


FLOWER = "1.41.0"
"""The Flower whose extension points are used."""
HEALTH, METRICS, STATUS = "/health", "/metrics", "/fedlens/status"
CONTRACT = "federation.toml"
"""File of the owners' contract in a machine's folder."""
NODE_NAMES = "node-names.json"
"""File of the SuperLink's folder: names of nodes by Flower's ids, for the logs of runs."""
OWN_DATA = "federation"
"""``data.name`` of a run that goes by the contract in the SuperLink's folder."""


SETTINGS = "deploy.toml"
Port = Annotated[int, Field(ge=1, le=65535)]


class DeployError(WrongUse):
    """A folder of a deployment that cannot be used; the message names file, value and fix."""


class _Folder(BaseModel):
    """What all kinds of folder have."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    role: str
    ca: str = "ca.crt"
    """Certificate of the authority that signed the SuperLink's."""


class SuperLinkSettings(_Folder):
    """The server's machine."""

    role: Literal["superlink"]
    host: str = "127.0.0.1"
    """Address to listen on; ``0.0.0.0`` for all of the machine's."""
    port: Port = 9443
    """Its port."""
    certificate: str = "server.crt"
    """Its certificate, PEM."""
    key: str = "server.key"
    """The certificate's private key, PEM."""
    names: tuple[str, ...] = ("localhost",)
    """Host names and addresses by which nodes and operators reach it."""
    trusted_bundles: tuple[str, ...] = Field(default=(), alias="trusted-bundles")
    """SHA-256 of app bundles whose code operators may run here. One without code, as
    ``fedlens deploy run`` submits it, needs no entry; every other one is refused."""
    paths: tuple[str, ...] = ()
    """Folders besides this one whose files a run's settings may name (``run.out``, ``run.store``,
    ``privacy.population``, ``split.model``, ``data.name``); all others are refused."""
    state: str = ""
    """Folder of what Flower keeps while it runs; emptied at every start and stop. By default in
    memory (``/dev/shm``), where there is one."""


class NodeSettings(_Folder):
    """A machine that holds users' records."""

    role: Literal["node"]
    name: str
    """The node's name, that of its public key in the SuperLink's folder."""
    superlink: str
    """``HOST:PORT`` of the SuperLink."""
    port: Port = 9094
    """Port of the node's own processes, on 127.0.0.1 only."""
    key: str = "node.key"
    """The node's private key, OpenSSH, on a NIST curve."""
    data: str = "data"
    """The node's own users: what ``fedlens node prepare`` wrote, or a ``.npz`` file."""
    code_sha256: str = Field(default="", alias="code-sha256")
    """Hash of the fedlens that the organisation agreed to run; a node with another one does not
    start. Empty: any."""
    trusted_bundles: tuple[str, ...] = Field(default=(), alias="trusted-bundles")
    """SHA-256 of app bundles whose code may run here. A bundle without code, which only names the
    fedlens that is installed, needs no entry; every other one is refused."""
    state: str = ""
    """As the SuperLink's."""
    node: dict[str, bool | int | float | str] = {}
    """The node's floor: keys of its own configuration, such as ``least-noise-multiplier``."""

    def node_config(self, folder: Path) -> dict[str, bool | int | float | str]:
        """What Flower is given as the node's configuration; relative paths are of ``folder``."""
        found = {"data": str((folder / self.data).absolute()), **self.node}
        for key in ("data", "rounds-file", "federation", "identity", "roster", "members-key-file"):
            if found.get(key):
                found[key] = str((folder / str(found[key])).absolute())
        return found


class OperatorSettings(_Folder):
    """Who starts runs."""

    role: Literal["operator"]
    name: str
    """The operator's name."""
    superlink: str
    """``HOST:PORT`` of the SuperLink."""
    token: str = "token"  # noqa: S105  (the name of a file)
    """File with the operator's token."""


DeploySettings = SuperLinkSettings | NodeSettings | OperatorSettings
_KINDS: dict[str, type[SuperLinkSettings | NodeSettings | OperatorSettings]] = {
    "superlink": SuperLinkSettings,
    "node": NodeSettings,
    "operator": OperatorSettings,
}


def read_folder(folder: Path, *, floor: bool = True) -> DeploySettings:
    """The settings in a folder's ``deploy.toml``.

    Args:
        folder: the folder.
        floor: whether to look at a node's floor too, which loads what nodes compute with.

    Raises:
        DeployError: there is none, it is not TOML, or a setting cannot be used.
    """
    path = folder / SETTINGS
    try:
        tree = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DeployError(
            f"{path}: {error.strerror}; name a folder that `fedlens deploy init` wrote"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DeployError(f"{path} is not TOML: {error}") from None
    kind = _KINDS.get(str(tree.get("role", "")))
    if kind is None:
        raise DeployError(f"{path}: role = {tree.get('role')!r}: give {', '.join(_KINDS)}")
    found = _validated(path, kind, tree)
    if floor and isinstance(found, NodeSettings):
        _check_floor(path, found, folder)
    return found


def _validated(path: Path, kind: type[Any], tree: dict[str, Any]) -> DeploySettings:
    try:
        found: DeploySettings = kind.model_validate(tree)
    except ValidationError as error:
        wrong = error.errors()[0]
        key = ".".join(str(part) for part in wrong["loc"])
        raise DeployError(
            f"{path}: {key} = {wrong.get('input')!r}: {wrong['msg'].lower()}"
        ) from None
    return found


def _check_floor(path: Path, found: NodeSettings, folder: Path) -> None:
    from fedlens.client.node.policy import NodePolicy
    from fedlens.client.users.protocol import NodeDataError

    known = {name.replace("_", "-") for name in NodePolicy.model_fields}
    known |= {"data", "partition-id", "declared", "federation", "members-key-file"}
    if strange := sorted(set(found.node) - known):
        raise DeployError(f"{path}: [node] {strange[0]} is no key of a node: {sorted(known)}")
    try:
        NodePolicy.of(found.node_config(folder))
    except NodeDataError as error:
        raise DeployError(f"{path}: [node] {error}") from None


def read_role(folder: Path, kind: type[Any]) -> Any:
    """The settings of a folder that must be of one kind.

    Raises:
        DeployError: it is of another.
    """
    found = read_folder(folder, floor=False)
    if not isinstance(found, kind):
        raise DeployError(f"{folder} is the folder of a {found.role}, not what this needs")
    return found
