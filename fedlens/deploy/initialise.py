"""Writing a new federation: one folder for each machine, with all it needs and nothing else's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import tomli_w

import fedlens
from fedlens.deploy.certificates import (
    Issued,
    certificate_problems,
    issue_server,
    key_problem,
    make_authority,
    outlives_its_servers,
    read_certificate,
    renew_authority,
)
from fedlens.deploy.keys import NAME, new_node_key, new_token, read_public_key, token_line
from fedlens.deploy.layout import CONTRACT, SETTINGS, DeployError, read_folder
from fedlens.foundation.code_digest import code_sha256
from fedlens.foundation.files import write_durably

TEMPLATES = Path(__file__).with_name("templates")
CPU_INDEX = "--index-url https://download.pytorch.org/whl/cpu"
PLAIN = {"base": "python:3.12-slim", "python": "python", "packages": "", "suffix": "", "tag": ""}
CUDA = {
    "base": "nvidia/cuda:12.8.1-runtime-ubuntu24.04",
    "python": "/opt/venv/bin/python",
    "packages": " python3 python3-venv",
    "suffix": ".cuda",
    "tag": "-cuda",
}
VENV = b"RUN python3 -m venv /opt/venv\nENV PATH=/opt/venv/bin:$PATH\nCOPY *.whl"
NODE_PORT = 9501
ROSTER = "nodes.pub"
"""In a node's folder: the public keys of all nodes, for secure sums."""
Tree = Mapping[str, object]


@dataclass(frozen=True)
class FederationPlan:
    """What is to be written."""

    nodes: tuple[str, ...]
    """Names of the nodes."""
    host: str = "127.0.0.1"
    port: int = 9443
    names: tuple[str, ...] = ("localhost",)
    """Names and addresses of the SuperLink; nodes and operators use the first."""
    operators: tuple[str, ...] = ("operator",)
    given: tuple[Path, Path, Path] | None = None
    """The organisation's own authority, certificate and key, PEM, in place of new ones."""
    contract: Path | None = None
    """The ``federation.toml`` of the data's owners, which every machine is given."""
    public_keys: Mapping[str, Path] = field(default_factory=dict)
    """OpenSSH public keys of nodes that made their key themselves, by the node's name."""


def initialise(folder: Path, plan: FederationPlan) -> None:
    """Write the folders of a federation.

    Raises:
        DeployError: the folder is not empty, or a name or file cannot be used.
    """
    _check(folder, plan)
    _make(folder)
    contract = None if plan.contract is None else plan.contract.read_bytes()
    authority = _superlink(folder, plan, contract)
    _make(folder / "operators")
    place = f"{plan.names[0]}:{plan.port}"
    lines = [
        _operator(folder / "operators" / name, name, place, authority) for name in plan.operators
    ]
    _write(folder / "superlink" / "operators", "".join(lines).encode())
    _make(folder / "nodes")
    for number, name in enumerate(plan.nodes):
        _node(folder, number, name, place, (authority, contract), plan.public_keys.get(name))
    _rosters(folder, plan.nodes)
    for made in (folder / "superlink", *(folder / "nodes" / name for name in plan.nodes)):
        write_scripts(made)
    write_containers(folder, plan.nodes, plan.port)


def _superlink(folder: Path, plan: FederationPlan, contract: bytes | None) -> bytes:
    """Write the SuperLink's folder; returns the authority's certificate."""
    superlink = folder / "superlink"
    for made in (superlink, superlink / "nodes", superlink / "runs"):
        _make(made)
    listen = {"host": plan.host, "port": plan.port, "names": list(plan.names)}
    _settings(superlink, {"role": "superlink", **listen})
    if contract is not None:
        _write(superlink / CONTRACT, contract)
    return _certificates(folder, plan)


def _node(
    root: Path,
    number: int,
    name: str,
    place: str,
    shared: tuple[bytes, bytes | None],
    given: Path | None,
) -> None:
    """Write a node's folder, and its public key into the SuperLink's.

    ``shared`` is the authority's certificate and the owners' contract.
    """
    folder, (authority, contract) = root / "nodes" / name, shared
    _make(folder)
    _settings(folder, _node_settings(number, name, place, agreed=contract is not None))
    _write(folder / "ca.crt", authority)
    if contract is not None:
        _write(folder / CONTRACT, contract)
    public = _node_key(folder, name, given)
    _write(root / "superlink" / "nodes" / f"{name}.pub", public)


def _rosters(root: Path, nodes: Sequence[str]) -> None:
    """Tell each node the public keys of all: whose masked sums it takes part in."""
    keys = (root / "superlink" / "nodes" / f"{name}.pub" for name in nodes)
    lines = [b" ".join(key.read_bytes().split()[:2]) + b"\n" for key in keys]
    for name in nodes:
        _write(root / "nodes" / name / ROSTER, b"".join(lines))


def _check(folder: Path, plan: FederationPlan) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DeployError(f"{folder} holds other files: name an empty or a new folder")
    for name in (*plan.nodes, *plan.operators):
        if not NAME.fullmatch(name):
            raise DeployError(f"{name!r} cannot be a name: give letters, digits, '.', '_' and '-'")
    if "superlink" in plan.nodes:
        raise DeployError("'superlink' is the server's name: give the node another")
    if len(set(plan.nodes)) != len(plan.nodes) or not plan.nodes:
        raise DeployError(f"nodes = {plan.nodes}: name each node once, and one at least")
    for name, path in plan.public_keys.items():
        if name not in plan.nodes:
            raise DeployError(f"a key is given for {name!r}, which is no node of {plan.nodes}")
        read_public_key(path)
    if plan.given is not None:
        _read_given(plan.given, plan.names)
    if plan.contract is not None:
        from fedlens.client.contract import read_contract

        read_contract(plan.contract)


def _read_given(given: tuple[Path, Path, Path], names: Sequence[str]) -> tuple[bytes, bytes, bytes]:
    """The organisation's authority, certificate and key.

    Raises:
        DeployError: one is not there, is something else, or no node would trust it.
    """
    for path in given[:2]:
        read_certificate(path)
    try:
        authority, certificate, key = (path.read_bytes() for path in given)
    except OSError as error:
        raise DeployError(
            f"{error.filename}: {error.strerror}; name three PEM files: the authority's "
            "certificate, the SuperLink's, and its private key"
        ) from None
    if problem := key_problem(given[2], given[1]):
        raise DeployError(problem)
    if problems := certificate_problems(given[1], authority=given[0], names=names):
        raise DeployError(problems[0])
    return authority, certificate, key


def _certificates(folder: Path, plan: FederationPlan) -> bytes:
    """Write the SuperLink's certificate and key; returns the authority's certificate."""
    superlink = folder / "superlink"
    if plan.given is not None:
        authority, certificate, key = _read_given(plan.given, plan.names)
    else:
        made = make_authority(folder.name)
        _make(folder / "authority")
        _write(folder / "authority" / "ca.crt", made.certificate)
        _write(folder / "authority" / "ca.key", made.key)
        authority, (certificate, key) = made.certificate, issue_server(made, plan.names)
    for name, content in (("ca.crt", authority), ("server.crt", certificate), ("server.key", key)):
        _write(superlink / name, content)
    return authority


def _operator(folder: Path, name: str, place: str, authority: bytes) -> str:
    """Write an operator's folder; returns what the SuperLink keeps of it."""
    _make(folder)
    _settings(folder, {"role": "operator", "name": name, "superlink": place})
    _write(folder / "ca.crt", authority)
    token = new_token()
    _write(folder / "token", f"{token}\n".encode())
    return token_line(name, token)


def _node_settings(number: int, name: str, place: str, *, agreed: bool) -> Tree:
    floor: dict[str, object] = {"partition-id": number, "least-noise-multiplier": 0.5}
    floor |= {"identity": "node.key", "roster": ROSTER}
    if agreed:
        floor["federation"] = CONTRACT
    return {
        "role": "node",
        "name": name,
        "superlink": place,
        "port": NODE_PORT + number,
        "code-sha256": code_sha256(),
        "node": floor,
    }


def _node_key(folder: Path, name: str, given: Path | None) -> bytes:
    """Make the node's key, unless it made one itself; returns the public one."""
    if given is not None:
        return given.read_bytes()
    key = new_node_key(name)
    _write(folder / "node.key", key.private)
    return key.public


def renew(folder: Path, names: Sequence[str]) -> list[Path]:
    """A new certificate for the SuperLink, from the federation's own authority.

    An authority that would not outlive it is renewed too, under its own key, in every folder of
    the federation that is here.

    Returns:
        The files ``ca.crt`` that are new, for the machines of their folders; none by default.

    Raises:
        DeployError: the authority's key is not there.
    """
    try:
        made = Issued(*((folder / "authority" / n).read_bytes() for n in ("ca.crt", "ca.key")))
    except OSError as error:
        raise DeployError(
            f"{error.filename}: {error.strerror}; the authority's key is needed, or the "
            "organisation's own certificate in its place"
        ) from None
    renewed: list[Path] = []
    if not outlives_its_servers(made.certificate):
        made = renew_authority(made)
        renewed = [one for one in sorted(folder.rglob("ca.crt")) if not one.is_symlink()]
        for path in renewed:
            _write(path, made.certificate)
    issued = issue_server(made, names)
    _write(folder / "superlink" / "server.key", issued.key)
    _write(folder / "superlink" / "server.crt", issued.certificate)
    return [path for path in renewed if path.parent.parent != folder]


def add_operator(folder: Path, name: str) -> Path:
    """Another operator of a federation; returns the new operator's folder.

    Raises:
        DeployError: there is one of that name.
    """
    from fedlens.deploy.layout import SuperLinkSettings, read_role

    superlink = folder / "superlink"
    settings: SuperLinkSettings = read_role(superlink, SuperLinkSettings)
    made, listed = folder / "operators" / name, superlink / "operators"
    try:
        text = listed.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError):
        raise DeployError(f"{listed} cannot be read as the list of operators: restore it") from None
    if made.exists() or any(line.split()[:1] == [name] for line in text.splitlines()):
        raise DeployError(f"there is an operator {name!r} already: choose another name")
    place = f"{settings.names[0]}:{settings.port}"
    line = _operator(made, name, place, (superlink / settings.ca).read_bytes())
    _write(listed, (text + line).encode())
    return made


def _settings(folder: Path, tree: Tree) -> None:
    _write(folder / SETTINGS, tomli_w.dumps(tree).encode())


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(path: Path, content: bytes) -> None:
    write_durably(path, content, private=True)


def render_template(template: str, **values: object) -> bytes:
    """A template with its names filled in; one that is missing raises ``KeyError``."""
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return Template(text).substitute(values).encode()


def write_scripts(folder: Path) -> None:
    """Write ``start.sh`` and the systemd unit of a folder."""
    settings = read_folder(folder, floor=False)
    start = folder / "start.sh"
    write_durably(start, render_template("start.sh"), private=True)
    start.chmod(0o700)
    unit = render_template(
        "service.unit", role=settings.role, name=folder.name, python=sys.executable
    )
    write_durably(folder / f"fedlens-{folder.name}.service", unit, private=True)


def write_containers(folder: Path, nodes: Sequence[str], port: int) -> None:
    """Write ``containers``, ``kubernetes`` and ``proxy``; nothing in them is secret."""
    version = fedlens.__version__
    containers = folder / "containers"
    containers.mkdir(mode=0o700)
    _write(
        containers / "Dockerfile",
        render_template("Dockerfile", version=version, index=CPU_INDEX, **PLAIN),
    )
    cuda = render_template("Dockerfile", version=version, index="", **CUDA)
    _write(containers / "Dockerfile.cuda", cuda.replace(b"COPY *.whl", VENV, 1))
    _write(containers / "compose.yaml", compose(nodes, port, version))
    base = folder / "kubernetes"
    base.mkdir(mode=0o700)
    _write(base / "kustomization.yaml", kustomization(nodes))
    _write(base / "superlink.yaml", render_template("superlink.yaml", port=port, version=version))
    for name in nodes:
        _write(base / f"{name}.yaml", render_template("node.yaml", name=name, version=version))
    (folder / "proxy").mkdir(mode=0o700)
    _write(
        folder / "proxy" / "nginx.conf",
        render_template("nginx.conf", name="fedlens.example", port=port),
    )


def compose(nodes: Sequence[str], port: int, version: str) -> bytes:
    """A compose file that runs the whole federation on one machine."""
    parts = (render_template("compose-node.yaml", name=name, version=version) for name in nodes)
    return render_template("compose.yaml", port=port, version=version) + b"".join(parts)


def kustomization(nodes: Sequence[str]) -> bytes:
    """A kustomize base of everything."""
    return render_template("kustomization.yaml") + b"".join(
        f'  - "{n}.yaml"\n'.encode() for n in nodes
    )
