"""Containers: a Dockerfile with and without CUDA, a compose file, a kustomize base, proxy rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import fedlens
from fedlens.deploy.scripts import render_template

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
