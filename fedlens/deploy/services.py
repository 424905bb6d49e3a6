"""Which processes run on the SuperLink's machine and on a node's, and with what arguments."""

from __future__ import annotations

import logging
import os
import resource
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

import tomli_w

from fedlens.deploy.certificates import host_here
from fedlens.deploy.layout import (
    DeployError,
    NodeSettings,
    OperatorSettings,
    SuperLinkSettings,
    ephemeral_folder,
    read_folder,
)
from fedlens.deploy.proxies import through, with_direct
from fedlens.deploy.supervise import Program, Supervisor, launch, this_python
from fedlens.foundation.files import write_durably
from fedlens.foundation.logs import set_up_logs
from fedlens.foundation.offline import SILENT
from fedlens.simulations.transports.flower_app import with_programs, write_programs

logger = logging.getLogger("fedlens.deploy.services")
SECRET = "superexec-secret"  # noqa: S105  (the name of a file)
STORE_FILE = "store-url"
RUN_LOGS = "FEDLENS_RUN_LOGS"
"""As `fedlens.client.app` names it."""
TEST_MODE = "FEDLENS_TEST_MODE"
"""As `fedlens.accountant.noise` names it, which a service does not load."""


def become_service(folder: Path) -> NoReturn:
    """Have this process become the one that serves a folder, without what its checks loaded."""
    sys.stdout.flush()
    sys.stderr.flush()
    command = this_python("fedlens.deploy.services", str(folder))
    os.execv(command[0], command)  # noqa: S606  (our own program and arguments)


def main(arguments: list[str]) -> None:
    """Run what a folder is for until it is stopped.

    Raises:
        DeployError: the folder cannot be used.
    """
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump would hold sums and keys
    set_up_logs(times=True)
    sys.exit(serve_folder(Path(arguments[0])))


def serve_folder(folder: Path) -> int:
    """Run what a folder is for until it is stopped; returns the exit status.

    Raises:
        DeployError: the folder cannot be used.
    """
    settings = read_folder(folder, floor=False)
    if isinstance(settings, OperatorSettings):
        raise DeployError(f"{folder} is an operator's folder: nothing runs there")
    if isinstance(settings, NodeSettings) and (by := through(settings.superlink)):
        logger.warning("the SuperLink at %s is asked%s", settings.superlink, by)
    with ephemeral_folder(folder, settings.state) as state:
        return Supervisor(programs_of(folder.absolute(), settings, state)).run()


def programs_of(
    folder: Path, settings: SuperLinkSettings | NodeSettings, state: Path
) -> list[Program]:
    """The processes of a folder: Flower's service, and the one that starts apps for it.

    The two share a secret made at each start, so that no other process on the machine can take an
    app's task and with it its messages.
    """
    write_durably(state / SECRET, secrets.token_bytes(32), private=True)
    environment = _environment(folder, settings, state)
    if isinstance(settings, SuperLinkSettings):
        service = this_python(
            "fedlens.deploy.superlink", str(folder), *_superlink(folder, settings)
        )
        ours = host_here(folder / settings.certificate, settings.host, settings.names)
        tls = ["--root-certificates", str(folder / settings.ca)]
    else:
        config = _node_words(settings.node_config(folder))
        service = this_python("fedlens.deploy.supernode", str(folder), *_node(folder, settings))
        service += ["--node-config", config]
        ours, tls = "127.0.0.1", ["--insecure"]
    isolation = ["--isolation", "process", "--superexec-auth-secret-file", str(state / SECRET)]
    apps = [str(state / "bin" / "flower-superexec"), *tls]
    apps += ["--runtime-api-address", f"{ours}:{settings.port}"]
    apps += ["--superexec-auth-secret-file", str(state / SECRET)]
    apps += ["--parent-pid", str(os.getpid())]
    return [
        Program(settings.role, [*service, *isolation], environment),
        Program("apps", apps, environment, settings.role, (ours, settings.port)),
    ]


def _superlink(folder: Path, settings: SuperLinkSettings) -> list[str]:
    return [
        *("--ssl-ca-certfile", str(folder / settings.ca)),
        *("--ssl-certfile", str(folder / settings.certificate)),
        *("--ssl-keyfile", str(folder / settings.key)),
        *("--host", settings.host, "--port", str(settings.port)),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
    ]


def _node(folder: Path, settings: NodeSettings) -> list[str]:
    return [
        *("--root-certificates", str(folder / settings.ca)),
        *("--superlink", settings.superlink),
        *("--auth-supernode-private-key", str(folder / settings.key)),
        *("--host", "127.0.0.1", "--port", str(settings.port)),
    ]


def _node_words(config: Mapping[str, bool | int | float | str]) -> str:
    """A node's configuration as Flower's ``--node-config`` reads it: TOML with spaces for lines."""
    return " ".join(
        tomli_w.dumps({key: value}).strip().replace(" = ", "=", 1) for key, value in config.items()
    )


def _environment(
    folder: Path, settings: SuperLinkSettings | NodeSettings, state: Path
) -> dict[str, str]:
    ours = () if isinstance(settings, NodeSettings) else (settings.host, *settings.names)
    environment = {
        **with_direct(with_programs(write_programs(state), os.environ), *ours),
        **SILENT,
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_HOME": str(state),
        "FEDLENS_HOME": str(folder),
        "TMPDIR": str(state),
        "FORWARDED_ALLOW_IPS": "",  # a proxy's word for where a caller is is not taken
        "PYTHONUNBUFFERED": "1",
    }
    environment.setdefault("OMP_NUM_THREADS", "1")
    # of the shell that starts it: with it a server could have a node draw its noise from a seed
    environment.pop(TEST_MODE, None)
    if isinstance(settings, NodeSettings):
        environment[RUN_LOGS] = str(folder / "logs")
    if isinstance(settings, SuperLinkSettings):
        allowed = [str(folder), *(str(folder / path) for path in settings.paths)]
        environment["FEDLENS_PATHS"] = os.pathsep.join(allowed)
        if (folder / STORE_FILE).exists():
            environment["FEDLENS_RUN_STORE_FILE"] = str(folder / STORE_FILE)
    return environment


if __name__ == "__main__":
    launch(main)
