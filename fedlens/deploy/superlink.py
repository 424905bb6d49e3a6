"""Flower's SuperLink behind the gate, with the nodes whose keys lie in its folder.

    python -m fedlens.deploy.superlink FOLDER FLOWER-ARGUMENT...

Uses two places of Flower 1.41 that it keeps for extensions (middleware and the app's lifespan), its
link state to register nodes, and its handler that starts runs; all of that is in this file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from fedlens.deploy.bundles import refuse_code
from fedlens.deploy.gate import Gate, Page
from fedlens.deploy.keys import Operators, UnusableKey, read_public_key
from fedlens.deploy.layout import (
    CONTRACT,
    METRICS,
    NODE_NAMES,
    STATUS,
    SuperLinkSettings,
    read_role,
)
from fedlens.deploy.metrics import server_metrics
from fedlens.deploy.status import run_reports
from fedlens.deploy.supervise import launch, prepare_process
from fedlens.foundation.files import write_durably

logger = logging.getLogger("fedlens.deploy.superlink")

LOOK_SECONDS = 2.0


class Nodes:
    """The nodes that may take part: a public key each in a folder, looked at every two seconds.

    A key that is put there is registered, one that is taken away is shut out.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ids: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        """Files that hold no key that can be used, and why."""

    @property
    def known(self) -> dict[str, int]:
        """Flower's ids of the nodes that may take part, by their names."""
        return dict(self._ids)

    def look(self, state: Any) -> None:
        """Bring Flower's list of nodes in line with the folder."""
        found = {path.stem: path for path in sorted(self._folder.glob("*.pub"))}
        for name in set(self._ids) - set(found):
            self._shut_out(name, state)
        self.refused = {n: why for n, why in self.refused.items() if n in found}
        for name in set(found) - set(self._ids):
            self._register(name, found[name], state)

    def _register(self, name: str, path: Path, state: Any) -> None:
        from flwr.common.constant import (
            HEARTBEAT_DEFAULT_INTERVAL,
            NOOP_ACCOUNT_NAME,
            NOOP_FLWR_AID,
        )

        try:
            key = read_public_key(path)
            known = state.get_node_id_by_public_key(key)
            self._ids[name] = known or state.create_node(
                owner_aid=NOOP_FLWR_AID,
                owner_name=NOOP_ACCOUNT_NAME,
                public_key=key,
                heartbeat_interval=HEARTBEAT_DEFAULT_INTERVAL,
                name=name,
            )
            self.refused.pop(name, None)
            logger.info("node %s may take part", name)
        except (UnusableKey, ValueError) as error:
            if name not in self.refused:
                logger.warning("node %s may not take part: %s", name, error)
            self.refused[name] = str(error)

    def _shut_out(self, name: str, state: Any) -> None:
        from flwr.common.constant import NOOP_FLWR_AID

        with suppress(ValueError):
            state.delete_node(NOOP_FLWR_AID, self._ids[name])
        del self._ids[name]
        logger.info("node %s may take part no more: its key was taken away", name)

    def seen(self, state: Any) -> list[dict[str, str]]:
        """Every node's name and whether it is online, registered only, or offline; or refused."""
        names = {identity: name for name, identity in self._ids.items()}
        infos = state.get_node_info(node_ids=list(names)) if names else []
        status = {info.node_id: str(info.status) for info in infos}
        found = [
            {"name": name, "status": status.get(identity, "offline")}
            for identity, name in names.items()
        ]
        found += [{"name": n, "status": "refused", "why": w} for n, w in self.refused.items()]
        return sorted(found, key=lambda node: node["name"])


class Service:
    """What this process knows of its federation, and the pages that show it."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._nodes = folder, Nodes(folder / "nodes")
        self._seen: list[dict[str, str]] = []
        self._names: dict[str, str] = {}
        self.operators = Operators(folder / "operators")

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[Mapping[str, Any] | None]:
        """Look after the nodes for as long as the app runs."""
        state = app.state.linkstate_factory.state()
        self._look(state)
        task = asyncio.create_task(self._look_again(state))
        try:
            yield None
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def _look_again(self, state: Any) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await asyncio.to_thread(self._look, state)
            except Exception:  # the next look may succeed; the SuperLink must not end for it
                logger.exception("the list of nodes could not be looked at")

    def _look(self, state: Any) -> None:
        self._nodes.look(state)
        self._keep_names()
        self._seen = self._nodes.seen(state)

    def _keep_names(self) -> None:
        """Have the server's part of runs call nodes by their names."""
        names = {str(identity): name for name, identity in self._nodes.known.items()}
        if names != self._names:
            content = json.dumps(names, sort_keys=True).encode()
            write_durably(self._folder / NODE_NAMES, content, private=True)
            self._names = names

    def status(self) -> dict[str, Any]:
        """What `fedlens deploy status` shows: nodes and runs."""
        contract = self._folder / CONTRACT
        return {
            "nodes": self._seen,
            "runs": run_reports(self._folder / "runs"),
            "contract": str(contract) if contract.exists() else "",
        }

    def pages(self) -> dict[str, Page]:
        """The gate's own pages."""
        return {
            STATUS: lambda: ("application/json", json.dumps(self.status()).encode()),
            METRICS: lambda: ("text/plain; version=0.0.4", server_metrics(self.status()).encode()),
        }


def main(arguments: list[str]) -> None:
    """Run Flower's SuperLink until it is stopped.

    Raises:
        DeployError: another Flower is installed than the one whose extension points are used.
    """
    prepare_process()
    from flwr.superlink import extensions
    from flwr.superlink.cli.flower_superlink import flower_superlink
    from flwr.superlink.servicer.control import control_handlers
    from starlette.middleware import Middleware

    service = Service(Path(arguments[0]))
    gate = Middleware(Gate, operators=service.operators, pages=service.pages())
    settings: SuperLinkSettings = read_role(Path(arguments[0]), SuperLinkSettings)
    start_run = refuse_code(control_handlers.start_run, settings.trusted_bundles)
    control_handlers.__dict__["start_run"] = start_run
    extensions.get_middleware = lambda: (gate,)
    extensions.get_lifespan_contexts = lambda: (service.lifespan,)
    sys.argv = ["flower-superlink", *arguments[1:]]
    flower_superlink()


if __name__ == "__main__":
    launch(main, supervised=True)
