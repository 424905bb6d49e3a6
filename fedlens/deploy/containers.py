"""Containers: a Dockerfile with and without CUDA, a compose file, a kustomize base, proxy rules."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fedlens
from fedlens.deploy.scripts import rendered
from fedlens.foundation.files import write_durably

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
        containers / "Dockerfile", rendered("Dockerfile", version=version, index=CPU_INDEX, **PLAIN)
    )
    cuda = rendered("Dockerfile", version=version, index="", **CUDA)
    _write(containers / "Dockerfile.cuda", cuda.replace(b"COPY *.whl", VENV, 1))
    _write(containers / "compose.yaml", _yaml(compose(nodes, port, version)))
    base = folder / "kubernetes"
    base.mkdir(mode=0o700)
    _write(base / "kustomization.yaml", _yaml(_kustomization(nodes)))
    _write(base / "superlink.yaml", _documents(superlink_objects(port, version)))
    for name in nodes:
        _write(base / f"{name}.yaml", _documents(node_objects(name, version)))
    (folder / "proxy").mkdir(mode=0o700)
    _write(
        folder / "proxy" / "nginx.conf", rendered("nginx.conf", name="fedlens.example", port=port)
    )


def compose(nodes: Sequence[str], port: int, version: str) -> dict[str, Any]:
    """A compose file that runs the whole federation on one machine: for trying out."""
    common = {
        "image": f"fedlens:{version}",
        "restart": "on-failure",
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "tmpfs": ["/tmp:mode=1777"],  # noqa: S108  (in the container, in memory)
        "shm_size": "2gb",
        "stop_grace_period": "90s",
    }
    services: dict[str, Any] = {
        "superlink": {
            **common,
            "volumes": ["../superlink:/fedlens"],
            "networks": {"federation": {"aliases": ["superlink"]}},
            "ports": [f"127.0.0.1:{port}:{port}"],
        }
    }
    for name in nodes:
        volumes = [f"../nodes/{name}:/fedlens"]
        services[name] = {**common, "volumes": volumes, "networks": ["federation"]}
    return {"name": "fedlens", "services": services, "networks": {"federation": {}}}


def superlink_objects(port: int, version: str) -> list[dict[str, Any]]:
    """The SuperLink: one pod, its runs on a claim, its folder from a secret."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "superlink"},
        "spec": {"selector": {"app": "superlink"}, "ports": [{"port": port, "name": "https"}]},
    }
    probe = {"tcpSocket": {"port": port}, "periodSeconds": 10}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "runs"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "20Gi"}},
        },
    }
    runs = {"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}
    mount = {"name": "runs", "mountPath": "/volumes/runs"}
    kept = ("populations", "heads")  # budgets, and how far ledgers were: they outlive a pod
    pod = _pod("superlink", version, [runs], [mount], kept, readinessProbe=probe)
    return [service, claim, _stateful("superlink", pod)]


def node_objects(name: str, version: str) -> list[dict[str, Any]]:
    """A node: one pod, its data on a claim of its organisation, its folder from a secret."""
    data = {"name": "data", "persistentVolumeClaim": {"claimName": f"{name}-data"}}
    mount = {"name": "data", "mountPath": "/volumes/data"}
    return [_stateful(name, _pod(name, version, [data], [mount], ("kept",)))]


def _stateful(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def _pod(
    name: str,
    version: str,
    volumes: list[Any],
    mounts: list[Any],
    kept: Sequence[str],
    **more: Any,
) -> dict[str, Any]:
    """A pod that copies its folder out of a secret (read-only there) into memory, and serves it.

    What is in that memory is gone with the pod, so ``kept`` folders in it lie on the first mount;
    what the secret has in them goes there where nothing is there yet, whole or not at all.
    Kubernetes makes volumes that their group may write to, so the folder lies inside one.
    """
    limited = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    image = {"image": f"fedlens:{version}", "securityContext": limited}
    lasting = f"{mounts[0]['mountPath']}/kept"
    unpack = "; ".join(
        [
            "set -e; umask 077; mkdir -p /fedlens/own",
            "tar -xf /secret/folder.tar -C /fedlens/own --strip-components=1",
            *(f"rm -rf /fedlens/own/{m['name']}" for m in mounts),
            *(f"mkdir -p {m['mountPath']}/own || true" for m in mounts),
            *(f"ln -s {m['mountPath']}/own /fedlens/own/{m['name']}" for m in mounts),
            f"cd /fedlens/own; mkdir -p {' '.join(kept)} {lasting}; rm -rf {lasting}/*.new",
            *(
                f"[ -e {lasting}/{k} ] || {{ cp -R {k} {lasting}/{k}.new; "
                f"mv {lasting}/{k}.new {lasting}/{k}; }}; rm -rf {k}; ln -s {lasting}/{k} {k}"
                for k in kept
            ),
        ]
    )
    serve = ["tini", "-g", "--", "fedlens", "deploy", "start", "/fedlens/own"]
    folder, memory = {"name": "folder", "mountPath": "/fedlens"}, {"medium": "Memory"}
    shared = {"name": "memory", "mountPath": "/dev/shm"}  # noqa: S108
    return {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
        "initContainers": [
            {
                "name": "folder",
                **image,
                "command": ["sh", "-c", unpack],
                "volumeMounts": [folder, {"name": "secret", "mountPath": "/secret"}, *mounts],
            }
        ],
        "containers": [
            {
                "name": "fedlens",
                **image,
                "command": serve,
                "volumeMounts": [folder, shared, *mounts],
                **more,
            }
        ],
        "volumes": [
            {"name": "folder", "emptyDir": memory},
            {"name": "memory", "emptyDir": memory},
            {"name": "secret", "secret": {"secretName": name, "defaultMode": 0o400}},
            *volumes,
        ],
    }


def _kustomization(nodes: Sequence[str]) -> dict[str, Any]:
    """A base of everything; an organisation keeps the file of its own part."""
    return {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "fedlens",
        "resources": ["superlink.yaml", *(f"{name}.yaml" for name in nodes)],
    }


def _yaml(tree: dict[str, Any]) -> bytes:
    """JSON, which every reader of YAML reads: no other dependency is needed for it."""
    return (json.dumps(tree, indent=2) + "\n").encode()


def _documents(trees: Sequence[dict[str, Any]]) -> bytes:
    return b"---\n".join(_yaml(tree) for tree in trees)


def _write(path: Path, content: bytes) -> None:
    write_durably(path, content, private=True)
