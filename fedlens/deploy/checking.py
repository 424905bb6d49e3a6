"""What is wrong with a machine of a federation: one line with its fix for each thing."""

from __future__ import annotations

import shutil
import socket
import stat
import time
import urllib.error
from collections.abc import Iterator
from contextlib import suppress
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from pathlib import Path

from fedlens.deploy.background import LOG, running
from fedlens.deploy.certificates import CertificateError, certificate_problems, key_problem
from fedlens.deploy.keys import UnusableKey, read_public_key
from fedlens.deploy.layout import (
    FLOWER,
    HEALTH,
    SETTINGS,
    STATUS,
    DeployError,
    NodeSettings,
    OperatorSettings,
    SuperLinkSettings,
    read_folder,
)
from fedlens.deploy.proxies import opener_to, through
from fedlens.deploy.status import Address, Unreachable, address_of, ask, fetch, read_page
from fedlens.foundation.code_digest import code_sha256
from fedlens.foundation.errors import FedlensError

LEAST_BYTES = 1 << 30
MOST_SKEW = 60.0
"""Seconds by which two clocks may differ."""


def check_folder(folder: Path) -> list[str]:
    """Everything that is wrong with a folder and its machine; empty where nothing is."""
    try:
        settings = read_folder(folder)
    except FedlensError as error:
        return [str(error)]
    problems = [*_permissions(folder), *_disk(folder), *_flower()]
    if isinstance(settings, SuperLinkSettings):
        problems += [*_superlink(folder, settings), *_nodes(folder, settings)]
    else:
        problems += certificate_problems(folder / settings.ca)
        if isinstance(settings, NodeSettings):
            problems += _node(folder, settings)
        problems += _there(folder, settings)
    if (still := _stuck(folder)) is not None:
        problems.append(still)
    return problems


def _stuck(folder: Path) -> str | None:
    """A folder whose processes are there and do not do their work, as where one hangs."""
    still = None if running(folder) is None else still_lacking(folder)
    if still is None:
        return None
    return (
        f"{folder} was started, and {still}: see {folder / LOG}; where that does not pass, "
        f"`fedlens deploy stop {folder}` and start it again"
    )


def _nodes(folder: Path, settings: SuperLinkSettings) -> Iterator[str]:
    """Nodes that were there and are not, where the SuperLink is up."""
    if running(folder) is None:
        return
    with suppress(Unreachable):
        for node in ask(address_of(folder, settings), STATUS, timeout=3.0)["nodes"]:
            if node["status"] == "offline":
                yield f"{node['name']} is offline: see its log on its machine, or start it there"


def require_startable(folder: Path) -> None:
    """Refuse to start what cannot run, with one line of what to fix first.

    Raises:
        DeployError: something is wrong that no restart fixes.
    """
    settings = read_folder(folder)
    if isinstance(settings, OperatorSettings):
        raise DeployError(f"{folder} is an operator's folder: nothing runs there")
    problems = [*_permissions(folder), *_disk(folder), *_flower()]
    if isinstance(settings, SuperLinkSettings):
        problems += [p for p in _superlink(folder, settings) if " expires on " not in p]
    else:
        expired = certificate_problems(folder / settings.ca)
        problems += [p for p in expired if " expires on " not in p]
        problems += _node(folder, settings)
    if problems:
        raise DeployError(problems[0])


def still_lacking(folder: Path) -> str | None:
    """What a folder that was started still lacks; None where it is ready."""
    settings = read_folder(folder, floor=False)
    if isinstance(settings, SuperLinkSettings):
        try:
            ask(address_of(folder, settings), HEALTH, timeout=3.0)
        except Unreachable as error:
            return str(error)
        return None
    port = settings.port if isinstance(settings, NodeSettings) else 0
    try:
        place = f"127.0.0.1:{port}"
        with opener_to(place).open(f"http://{place}/metrics", timeout=3.0) as answer:
            text = read_page(answer).decode()
    except (urllib.error.URLError, OSError, ValueError):
        return f"nothing answers on port {port}"
    if "fedlens_node_connected 1" in text.splitlines():
        return None
    by = through(settings.superlink) if isinstance(settings, NodeSettings) else ""
    return f"it has not reached the SuperLink{by}"


def _superlink(folder: Path, settings: SuperLinkSettings) -> Iterator[str]:
    yield from certificate_problems(folder / settings.ca)
    yield from certificate_problems(
        folder / settings.certificate, authority=folder / settings.ca, names=settings.names
    )
    with suppress(CertificateError):  # said above
        if problem := key_problem(folder / settings.key, folder / settings.certificate):
            yield problem
    yield from _port(folder, settings.host, settings.port)
    keys = sorted((folder / "nodes").glob("*.pub"))
    if not keys:
        yield f"{folder / 'nodes'} holds no node's public key: put each node's .pub there"
    for path in keys:
        try:
            read_public_key(path)
        except UnusableKey as error:
            yield str(error)
    if not (folder / "operators").is_file():
        yield f"{folder / 'operators'} is not there: no one could start a run"


def _node(folder: Path, settings: NodeSettings) -> Iterator[str]:
    if not (folder / settings.key).is_file():
        yield (
            f"{folder / settings.key} is not there: put the node's private key there, whose public "
            "one the SuperLink has"
        )
    data = Path(str(settings.node_config(folder)["data"]))
    if not data.exists():
        yield f"{data} is not there: prepare the node's own data, or name it in {SETTINGS} (data)"
    elif data.is_dir():
        yield from _store(data, folder)
    if settings.code_sha256 and code_sha256() != settings.code_sha256:
        yield (
            "the installed fedlens is not the agreed one (code-sha256): install the agreed version,"
            f" or write {code_sha256()} there where your organisation agrees to this one"
        )
    yield from _port(folder, "127.0.0.1", settings.port)


def _store(data: Path, folder: Path) -> list[str]:
    """What is wrong with the node's prepared store; one that is whole need not be read again."""
    from fedlens.client.node.store import mark_unchanged, store_stamp
    from fedlens.client.preparing.checking import store_faults

    stamp = store_stamp(data)
    faults = store_faults(data)
    if not faults:
        mark_unchanged(data, stamp, folder.absolute())
    return faults


def _port(folder: Path, host: str, port: int) -> Iterator[str]:
    """Whether another program holds the port; our own, where it runs, may."""
    if running(folder) is not None:
        return
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            yield (
                f"port {port} on {host} cannot be used ({error.strerror}): end what uses it "
                f"(ss -ltnp 'sport = :{port}'), or set another port in {folder / SETTINGS}"
            )


def _there(folder: Path, settings: NodeSettings | OperatorSettings) -> Iterator[str]:
    """Whether the SuperLink answers, knows the operator, and has the same time."""
    try:
        address = address_of(folder, settings)
        skew = _skew(address)
        if isinstance(settings, OperatorSettings):
            ask(address, STATUS)
    except (Unreachable, DeployError) as error:
        yield f"{error}; is it started, and is the address in {SETTINGS} right?"
        return
    if abs(skew) > MOST_SKEW:
        yield (
            f"this machine's clock is {abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} the "
            "SuperLink's: set both by NTP (timedatectl set-ntp true); Flower refuses a node's "
            "signatures otherwise"
        )


def _skew(address: Address) -> float:
    """Seconds by which this clock is ahead of the SuperLink's, to the second."""
    said = fetch(address, HEALTH, 10.0, lambda answer: answer.headers["date"])
    return time.time() - parsedate_to_datetime(said).timestamp() if said else 0.0


def _permissions(folder: Path) -> Iterator[str]:
    for path in (folder, *sorted(folder.iterdir())):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & 0o077 and not path.name.endswith((".crt", ".pub")):
            yield f"{path} is open to other users (mode {mode & 0o777:o}): chmod go= {path}"


def _disk(folder: Path) -> Iterator[str]:
    free = shutil.disk_usage(folder).free
    if free < LEAST_BYTES:
        yield (
            f"the disk of {folder} has {free / 1e6:.0f} MB free: free 1 GB, or a round could be "
            "paid for and not be kept"
        )


def _flower() -> Iterator[str]:
    if (found := version("flwr")) != FLOWER:
        yield f"Flower {found} is installed: pip install flwr=={FLOWER}"
