"""Flower's SuperNode that runs the fedlens installed beside it, and no code that is sent to it.

    python -m fedlens.deploy.supernode FOLDER FLOWER-ARGUMENT...

Flower's own check of signed bundles (``--trusted-entities``) serves bundles of its hub alone: one
that an operator submits has no signatures in 1.41. So this takes that check's place, by the rule of
`fedlens.deploy.bundles` and the hash of the installed code.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedlens.deploy.bundles import bundle_problem
from fedlens.deploy.layout import METRICS, DeployError, NodeSettings, read_role
from fedlens.deploy.metrics import NodeCounts, node_metrics
from fedlens.deploy.supervise import launch, prepare_process
from fedlens.foundation.code_digest import code_sha256

logger = logging.getLogger("fedlens.deploy.supernode")


def check_code(settings: NodeSettings) -> None:
    """Refuse to go on with other code than the organisation agreed to.

    Raises:
        DeployError: the installed fedlens has another hash than ``code-sha256``.
    """
    if settings.code_sha256 and (found := code_sha256()) != settings.code_sha256:
        raise DeployError(
            f"the installed fedlens has the hash {found[:16]}..., and code-sha256 in deploy.toml "
            f"agreed to {settings.code_sha256[:16]}...: install the agreed version, or, where your "
            "organisation has looked at this one, write its hash there "
            "(`fedlens deploy code`)"
        )


def guard_pull(pull: Callable[..., Any], settings: NodeSettings, counts: NodeCounts) -> Any:
    """Flower's step that takes a message, with our judgement of bundles in place of its own."""

    def pull_and_store(**kwargs: Any) -> Any:
        get_fab, counts.connected = kwargs["get_fab"], True

        def marked(*args: Any) -> Any:
            fab = get_fab(*args)
            fab.verifications["valid_license"] = "the node judges by itself"
            return fab

        kwargs["get_fab"] = marked
        kwargs["trusted_entities"] = {"fedlens": "the node's own rule"}
        run = pull(**kwargs)
        counts.messages += run is not None
        return run

    return pull_and_store


def judge_bundles(settings: NodeSettings, counts: NodeCounts) -> Callable[[Any, Any], bool]:
    """Whether a bundle may be used here, said in the node's own log where it may not."""

    def accepted(fab: Any, _entities: Any) -> bool:
        problem = bundle_problem(fab.content, fab.hash_str, settings.trusted_bundles)
        try:
            check_code(settings)
        except DeployError as error:
            problem = problem or str(error)
        if problem is not None:
            counts.refused += 1
            logger.error("refused a run's bundle: %s", problem)
        return problem is None

    return accepted


def main(arguments: list[str]) -> None:
    """Run Flower's SuperNode until it is stopped.

    Raises:
        DeployError: Flower or fedlens are not the agreed ones.
    """
    prepare_process()
    from flwr.supernode import main as node_api
    from flwr.supernode import start_client_internal as inner
    from flwr.supernode.cli.flower_supernode import flower_supernode

    settings: NodeSettings = read_role(Path(arguments[0]), NodeSettings)
    check_code(settings)
    counts = NodeCounts()
    inner._pull_and_store_message = guard_pull(inner._pull_and_store_message, settings, counts)
    inner.__dict__["_verify_fab"] = judge_bundles(settings, counts)
    node_api.create_app = _with_metrics(node_api.create_app, counts)
    sys.argv = ["flower-supernode", *arguments[1:]]
    flower_supernode()


def _with_metrics(create: Callable[..., Any], counts: NodeCounts) -> Callable[..., Any]:
    def create_app(*args: Any, **kwargs: Any) -> Any:
        from starlette.responses import PlainTextResponse

        app = create(*args, **kwargs)
        app.add_route(METRICS, lambda _: PlainTextResponse(node_metrics(counts)))
        return app

    return create_app


if __name__ == "__main__":
    launch(main, supervised=True)
